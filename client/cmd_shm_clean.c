/* cmd_shm_clean.c - shm clean: buffers on this machine whose worker is gone
 *
 * From: shm_dir of the configuration, and the folders of local farms in it.  To: unlink.
 * Works without sluiced. A file goes only when it is one of ours (its name and head), nobody holds its lock, the worker named in its head is dead, and no
 * process of this machine has it open or mapped: a worker in another container is seen by its lock, a reconstruction process that outlived its worker by its mapping.
 */
#include "config.h"

#include "command.h"

#include "conf.h"
#include "file.h"
#include "mem.h"
#include "nodelist.h"
#include "shm_layout.h"
#include "show.h"
#include "str.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#define YOUNG_S 10                      /* a file without a head that is younger may be one that a worker begins this moment */

static const struct column columns[] = {
    { "path" }, { "node" }, { "farm" }, { "size", NULL, AS_SIZE }, { "owner_pid" }, { "removed" }, { "text" }, { 0 },
};
static const struct listing listing = { "buffers", columns, "path,node,size,removed,text", NULL };

struct cleaning {
    struct hostlist *only;              /* NULL: all nodes */
    bool     dry_run;
    json_t  *list;
    unsigned failed;
};

/* ---- whether anybody has it ---- */

static bool is_open_in(const char *pid, const struct stat *st)
{
    char path[300];
    struct dirent *d;
    struct stat it;
    bool found = false;

    snprintf(path, sizeof(path), "/proc/%.16s/fd", pid);
    DIR *dir = opendir(path);
    while (dir != NULL && !found && (d = readdir(dir)) != NULL)
        found = fstatat(dirfd(dir), d->d_name, &it, 0) == 0 && it.st_dev == st->st_dev && it.st_ino == st->st_ino;
    if (dir != NULL)
        closedir(dir);
    return found;
}

static bool is_mapped_in(const char *pid, const struct stat *st)
{
    char path[64], line[4352];
    unsigned at_major, at_minor;
    unsigned long inode;
    bool found = false;

    snprintf(path, sizeof(path), "/proc/%.16s/maps", pid);
    FILE *f = fopen(path, "re");
    while (f != NULL && !found && fgets(line, sizeof(line), f) != NULL)
        found = sscanf(line, "%*s %*s %*s %x:%x %lu", &at_major, &at_minor, &inode) == 3 && inode == st->st_ino
                && makedev(at_major, at_minor) == st->st_dev;
    if (f != NULL)
        fclose(f);
    return found;
}

/* The pid of another process that has it open or mapped, as far as we may see; 0: none. */
static long user_of(const struct stat *st)
{
    DIR *dir = opendir("/proc");
    struct dirent *d;
    long found = 0;

    while (dir != NULL && found == 0 && (d = readdir(dir)) != NULL) {
        long pid = strtol(d->d_name, NULL, 10);
        if (pid > 0 && pid != getpid() && (is_open_in(d->d_name, st) || is_mapped_in(d->d_name, st)))
            found = pid;
    }
    if (dir != NULL)
        closedir(dir);
    return found;
}

/* A lease for writing is given only on a file that nobody else has open or mapped, whatever namespace they live in. Where the file system
 * has none, the processes that we may see are looked at. */
static char *used_by(int fd, const struct stat *st)
{
    long pid = 0;
    int rc = fcntl(fd, F_SETLEASE, F_WRLCK);

    if (rc == 0)
        return NULL;
    if (errno != EAGAIN || (pid = user_of(st)) != 0) {
        pid = pid != 0 ? pid : user_of(st);
        return pid != 0 ? mem_printf("in use by pid %ld", pid) : NULL;
    }
    return mem_strdup("in use by a process that cannot be seen from here");
}

/* ---- one file ---- */

static bool is_ours(const struct shm_head *h)
{
    return h->magic == SHM_MAGIC && strnlen(h->farm, sizeof(h->farm)) < sizeof(h->farm) && strnlen(h->node, sizeof(h->node)) < sizeof(h->node);
}

static bool is_empty_head(const struct shm_head *h)
{
    static const struct shm_head none;

    return memcmp(h, &none, sizeof(none)) == 0;
}

static bool owner_lives(const struct shm_head *h)
{
    struct file_owner o = { .pid = (pid_t)h->owner_pid, .start = h->owner_start };

    memcpy(o.boot_id, h->owner_boot, sizeof(o.boot_id) - 1);
    return file_owner_alive(&o) != 0;
}

/* Why it stays; NULL: it may go. The caller frees. */
static char *why_not(int fd, const struct stat *st, struct shm_head *h)
{
    if (!S_ISREG(st->st_mode))
        return mem_strdup("no regular file: left alone");
    if (geteuid() != 0 && st->st_uid != geteuid())
        return mem_printf("belongs to user %u: left alone", (unsigned)st->st_uid);
    if (pread(fd, h, sizeof(*h), 0) < 0)
        return mem_printf("its head cannot be read: %s", strerror(errno));
    if (flock(fd, LOCK_EX | LOCK_NB) < 0)
        return mem_strdup("in use: its worker holds it");
    if (pread(fd, h, sizeof(*h), 0) < 0)         /* as it is now that nobody else writes it */
        return mem_printf("its head cannot be read: %s", strerror(errno));
    if (is_empty_head(h))
        return time(NULL) - st->st_mtime < YOUNG_S ? mem_strdup("just begun: left alone") : used_by(fd, st);
    if (!is_ours(h))
        return mem_strdup("no buffer of a worker: left alone");
    if (owner_lives(h))
        return mem_printf("in use: its owner, pid %" PRIu64 ", lives", h->owner_pid);
    return used_by(fd, st);
}

static void note(struct cleaning *c, const char *path, const struct shm_head *h, uint64_t size, bool removed, const char *text)
{
    bool known = is_ours(h);
    json_t *o = json_pack("{s:s?,s:s?,s:s?,s:I,s:b,s:s}", "path", path, "node", known ? h->node : NULL, "farm", known ? h->farm : NULL, "size",
                          (json_int_t)size, "removed", removed, "text", text);

    if (o == NULL)                       /* a name that is no text */
        o = json_pack("{s:n,s:I,s:b,s:s}", "path", "size", (json_int_t)size, "removed", removed, "text", text);
    json_object_set_new(o, "owner_pid", known ? json_integer((json_int_t)h->owner_pid) : json_null());
    json_array_append_new(c->list, o);
}

static bool is_asked(const struct cleaning *c, const struct shm_head *h, const char *name)
{
    const char *node = is_ours(h) ? h->node : NULL;
    char *copy = NULL;
    bool asked;

    if (c->only == NULL)
        return true;
    if (node == NULL) {                  /* no head yet: sluice-FARM-NODE.buffer, where FARM has no '-' */
        const char *dash = strchr(name + strlen("sluice-"), '-');
        copy = dash != NULL ? mem_strdup(dash + 1) : mem_strdup("");
        if (strlen(copy) > strlen(".buffer"))
            copy[strlen(copy) - strlen(".buffer")] = '\0';
        node = copy;
    }
    asked = hostlist_has(c->only, node) != 0;
    free(copy);
    return asked;
}

static bool is_buffer_name(const char *name)
{
    size_t n = strlen(name), tail = strlen(".buffer");

    return strncmp(name, "sluice-", 7) == 0 && n > 7 + tail && strcmp(name + n - tail, ".buffer") == 0;
}

/* true: it was removed. */
static bool clean_file(struct cleaning *c, int dir, const char *folder, const char *name)
{
    int fd = openat(dir, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    char *path = mem_printf("%s/%s", folder, name), *why;
    struct shm_head h = { 0 };
    struct stat st = { 0 };
    bool removed = false;

    if (fd < 0 || fstat(fd, &st) < 0) {
        why = errno == ENOENT ? NULL : mem_printf("cannot be opened: %s: left alone", strerror(errno));
        if (why != NULL && c->only == NULL)
            note(c, path, &h, 0, false, why);
    } else {
        why = why_not(fd, &st, &h);
        if (!is_asked(c, &h, name)) {
            ;
        } else if (why != NULL) {
            note(c, path, &h, (uint64_t)st.st_blocks * 512, false, why);
        } else if (c->dry_run) {
            note(c, path, &h, (uint64_t)st.st_blocks * 512, false, "would be removed");
        } else if (unlinkat(dir, name, 0) == 0) {
            removed = true;
            note(c, path, &h, (uint64_t)st.st_blocks * 512, true, "removed");
        } else {
            why = mem_printf("cannot be removed: %s", strerror(errno));
            note(c, path, &h, (uint64_t)st.st_blocks * 512, false, why);
            c->failed++;
        }
    }
    if (fd >= 0)
        close(fd);
    free(why);
    free(path);
    return removed;
}

/* ---- the folders ---- */

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The names in it that begin with "sluice-", sorted. */
static char **names_of(int dir, size_t *n)
{
    DIR *d = fdopendir(dup(dir));
    char **names = NULL;
    struct dirent *e;

    *n = 0;
    while (d != NULL && (e = readdir(d)) != NULL) {
        if (strncmp(e->d_name, "sluice-", 7) != 0)
            continue;
        names = mem_grow(names, *n + 1, sizeof(*names));
        names[(*n)++] = mem_strdup(e->d_name);
    }
    if (d != NULL)
        closedir(d);
    if (*n > 1)
        qsort(names, *n, sizeof(*names), compare_names);
    return names;
}

/* The folder and, one level below, those that local farms have in it. An empty one goes after the last file that was removed there. */
static void clean_folder(struct cleaning *c, int dir, const char *folder, bool deeper, bool *removed)
{
    size_t n;
    char **names = names_of(dir, &n);

    for (size_t i = 0; i < n; i++) {
        bool gone = false;
        int sub = deeper ? openat(dir, names[i], O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;

        if (sub >= 0) {
            char *path = mem_printf("%s/%s", folder, names[i]);
            clean_folder(c, sub, path, false, &gone);
            close(sub);
            if (gone)
                unlinkat(dir, names[i], AT_REMOVEDIR);      /* not empty: it stays */
            free(path);
        } else if (is_buffer_name(names[i])) {
            *removed = clean_file(c, dir, folder, names[i]) || *removed;
        }
        free(names[i]);
    }
    free(names);
}

/* The caller frees. NULL: e. */
static char *folder_of(const struct args *a, struct err *e)
{
    char *path, *folder;
    struct conf *conf;

    if (args_has(a, "dir"))
        return args_path(args_text(a, "dir", ""));
    path = config_here(a);
    conf = conf_read(path, e);
    free(path);
    if (conf == NULL)
        return NULL;
    folder = mem_strdup(conf->worker.shm_dir);
    conf_destroy(conf);
    return folder;
}

int cmd_shm_clean(struct context *ctx, const struct args *a, struct err *e)
{
    struct cleaning c = { .dry_run = args_has(a, "dry-run") };
    bool removed = false;
    char *folder;
    int dir, r;

    if (show_columns_help(ctx, &listing))
        return 0;
    if (show_columns_check(ctx, &listing, e) < 0)
        return -1;
    if (a->n > 0 && (c.only = nodelist(ctx, a, a->at[0], &listing, &r, e)) == NULL)
        return r;
    folder = folder_of(a, e);
    dir = folder != NULL ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (dir < 0) {
        r = folder != NULL ? err_errno(e, errno == ENOENT ? ERR_NOT_FOUND : ERR_FAILED, "%s", folder) : -1;
    } else {
        signal(SIGIO, SIG_IGN);          /* somebody opens what we have a lease on: we are done with it at once */
        c.list = json_array();
        clean_folder(&c, dir, folder, true, &removed);
        close(dir);
        r = show_list(ctx, &listing, NULL, c.list, e);
    }
    free(folder);
    hostlist_destroy(c.only);
    return r < 0 || c.failed == 0 ? r : ERR_FAILED;
}
