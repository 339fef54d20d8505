/* file.h - files: whole reads with a limit, replacing writes, folders, paths of any length for sockets */
#ifndef SLUICE_FILE_H
#define SLUICE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>
#include "err.h"

/* The whole of a regular file, NUL after it; refuses one above limit bytes. Caller frees. */
char *file_read(const char *path, size_t limit, size_t *size, struct err *e);
/* Written beside, fsynced, renamed over path, folder fsynced. */
int   file_replace(const char *path, const void *data, size_t size, mode_t mode, struct err *e);
int   file_mkdirs(const char *path, mode_t mode, struct err *e);
int   file_write_all(int fd, const void *data, size_t size, struct err *e);
/* Fills addr for a Unix socket at any path: one too long for sun_path goes through /proc/self/fd/N of its folder, whose
 * descriptor comes back in *dirfd (else -1) and must stay open until bind or connect is done. */
int   file_socket_address(const char *path, struct sockaddr_un *addr, socklen_t *len, int *dirfd, struct err *e);
int   file_set_cloexec_nonblock(int fd);
/* From now on the program ends with ERR_FAILED and a sentence when what it printed did not go out whole, however it ends. */
void  file_watch_stdout(void);

/* Who lives: pid together with its start time (clock ticks since boot, /proc/PID/stat field 22), which a recycled pid does not share. */
struct file_owner { pid_t pid; uint64_t start; char boot_id[37]; };
int   file_owner_self(struct file_owner *o, struct err *e);
int   file_owner_alive(const struct file_owner *o);                  /* 1 alive, 0 not (zombies are not) */
uint64_t file_process_start(pid_t pid);                              /* 0 when there is no such process */
/* What the kernel says of a process, or of a thread of ours, whatever its name; never waits for it. 0, or -1: there is none. */
struct file_stat { char state; pid_t parent, session; uint64_t start; };       /* state: its letter of proc(5) */
int   file_process_stat(pid_t pid, struct file_stat *s);
int   file_thread_stat(pid_t tid, struct file_stat *s);
bool  file_has_ended(const struct file_stat *s);                     /* a zombie */
const char *file_boot_id(void);
#endif
