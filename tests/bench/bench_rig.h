/* bench_rig.h - programs of the build tree in a scratch folder, for benchmarks of sluiced; whatever fails ends the program */
#ifndef SLUICE_BENCH_RIG_H
#define SLUICE_BENCH_RIG_H

#include <jansson.h>
#include <stdbool.h>
#include <sys/types.h>

extern char *bench_socket;                   /* of sluiced; SLUICE_SOCKET names it */

void  bench_open(const char *self);          /* argv[0]; descriptors as many as there may be */
int   bench_close(void);                     /* removes the folder */
char *bench_path(const char *name);          /* in the folder; the caller frees */
void  bench_conf(const char *path);          /* a configuration with the class fake */
void  bench_die(const char *what) __attribute__((noreturn));

struct program { pid_t pid; int out; };      /* out: its stdout, or where it says ready */
struct program bench_start(bool ready, const char *const *argv);
char *bench_command(const char *const *argv);        /* one that ends by itself: its first line */
struct program bench_daemon(const char *const *argv);        /* one that says "ready" on descriptor 9 */
json_t *bench_end(struct program *p, const char *name);      /* asks it to end; its line of JSON */
double bench_cpu(pid_t pid);                 /* processor time of all threads, s */
void  bench_sleep(double s);

#endif
