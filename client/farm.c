/* farm.c - the folder of a farm: its lock, its list of processes, their end
 *
 * A process is known by pid and start time, so that a pid that came round is never signalled. Each was started as the leader
 * of a session; what it left behind when it was killed is found by that session and ended as well.
 * A copy of a farm's folder is another farm: the list names the folder by device and inode and counts only there.
 */
#include "config.h"

#include "farm.h"

#include "clock.h"
#include "mem.h"
#include "str.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

enum { LIST_MAX_BYTES = 16 << 20 };

/* --- where it is ---------------------------------------------------------------------------- */

/* Ours, and where it is a link that leads elsewhere, the link too: in a folder that others write to they could turn theirs. */
static bool is_own(const char *path, mode_t type)
{
    struct stat link, end;

    return lstat(path, &link) == 0 && link.st_uid == geteuid() && stat(path, &end) == 0 && end.st_uid == geteuid() && (end.st_mode & S_IFMT) == type;
}

/* Its real path, or NULL. */
static char *own_farm(const char *dir)
{
    char *conf = mem_printf("%s/sluice.conf", dir);
    char *farm = is_own(dir, S_IFDIR) && is_own(conf, S_IFREG) ? realpath(dir, NULL) : NULL;

    free(conf);
    return farm;
}

char *farm_search(const char *from)
{
    char *dir = realpath(from, NULL);

    while (dir != NULL) {
        char *candidate = mem_printf("%s/sluice-farm", strcmp(dir, "/") == 0 ? "" : dir), *farm = own_farm(candidate), *slash;

        free(candidate);
        if (farm != NULL) {
            free(dir);
            return farm;
        }
        slash = strrchr(dir, '/');
        if (slash == NULL || dir[1] == '\0')
            break;
        slash[slash == dir ? 1 : 0] = '\0';
    }
    free(dir);
    return NULL;
}

char *farm_path(const struct farm *f, const char *name)
{
    return mem_printf("%s/%s", f->dir, name);
}

/* --- the list of processes ------------------------------------------------------------------ */

static void forget_all(struct farm *f)
{
    for (unsigned i = 0; i < f->n; i++)
        free(f->processes[i].name);
    free(f->processes);
    f->processes = NULL;
    f->n = 0;
}

static void add(struct farm *f, const char *name, const struct file_owner *owner)
{
    for (unsigned i = 0; i < f->n; i++) {
        if (strcmp(f->processes[i].name, name) == 0) {
            f->processes[i].owner = *owner;
            return;
        }
    }
    f->processes = mem_grow(f->processes, f->n + 1, sizeof(*f->processes));
    f->processes[f->n++] = (struct farm_process){ mem_strdup(name), *owner };
}

static int folder_id(const struct farm *f, char out[64], struct err *e)
{
    struct stat st;

    if (stat(f->dir, &st) < 0)
        return err_errno(e, ERR_FAILED, "%s", f->dir);
    snprintf(out, 64, "%ju:%ju", (uintmax_t)st.st_dev, (uintmax_t)st.st_ino);
    return 0;
}

/* First line: "folder DEV:INODE SHM_DIR". Then "NAME PID START BOOT_ID" a process. */
static int list_read(struct farm *f, struct err *e)
{
    char *path = farm_path(f, "started"), *text, *line, *rest, own[64], id[64] = "", name[64], shm[4096] = "";
    struct file_owner o;
    long pid;

    if (access(path, F_OK) < 0 && errno == ENOENT) {
        free(path);
        return 0;
    }
    text = file_read(path, LIST_MAX_BYTES, NULL, e);
    free(path);
    if (text == NULL || folder_id(f, own, e) < 0) {
        free(text);
        return -1;
    }
    line = strtok_r(text, "\n", &rest);
    if (line != NULL && sscanf(line, "folder %63s %4095[^\n]", id, shm) == 2 && strcmp(id, own) == 0) {
        free(f->shm_dir);
        f->shm_dir = mem_strdup(shm);
        while ((line = strtok_r(NULL, "\n", &rest)) != NULL) {
            memset(&o, 0, sizeof(o));
            if (sscanf(line, "%63s %ld %" SCNu64 " %36s", name, &pid, &o.start, o.boot_id) == 4) {
                o.pid = (pid_t)pid;
                add(f, name, &o);
            }
        }
    }
    free(text);
    return 0;
}

static int list_write(const struct farm *f, struct err *e)
{
    char *path = farm_path(f, "started"), id[64];
    struct str s = { 0 };
    int r = folder_id(f, id, e);

    str_addf(&s, "folder %s %s\n", id, f->shm_dir);
    for (unsigned i = 0; i < f->n; i++) {
        const struct file_owner *o = &f->processes[i].owner;

        str_addf(&s, "%s %ld %" PRIu64 " %s\n", f->processes[i].name, (long)o->pid, o->start, o->boot_id);
    }
    if (r == 0)
        r = file_replace(path, str_text(&s), s.len, 0600, e);
    str_free(&s);
    free(path);
    return r;
}

struct farm_process *farm_running(struct farm *f, const char *name)
{
    for (unsigned i = 0; i < f->n; i++)
        if (strcmp(f->processes[i].name, name) == 0)
            return file_owner_alive(&f->processes[i].owner) ? &f->processes[i] : NULL;
    return NULL;
}

int farm_record(struct farm *f, const char *name, pid_t pid, struct err *e)
{
    struct file_owner o;

    if (file_owner_self(&o, e) < 0)
        return -1;
    o.pid = pid;
    o.start = file_process_start(pid);
    if (o.start == 0)
        return err_set(e, ERR_FAILED, "%s: process %ld is not there", name, (long)pid);
    add(f, name, &o);
    return list_write(f, e);
}

/* --- opening -------------------------------------------------------------------------------- */

/* Polls, because a lock that is waited for by flock() cannot be given up. */
static int take_lock(struct farm *f, double limit_s, struct err *e)
{
    char *path = farm_path(f, "lock");
    int64_t end = clock_mono_ns() + (int64_t)(limit_s * 1e9);
    int r = 0;

    f->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (f->lock < 0 && errno == EROFS)           /* enough for the lock: down changes nothing that must last */
        f->lock = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (f->lock < 0)
        r = err_errno(e, ERR_FAILED, "%s", path);
    while (r == 0 && flock(f->lock, LOCK_EX | LOCK_NB) < 0) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            r = err_errno(e, ERR_FAILED, "%s", path);
        else if (clock_mono_ns() > end)
            r = err_set(e, ERR_TIMEOUT, "farm %s: another up or down is at work there since more than %.0f s", f->dir, limit_s);
        else
            nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
    }
    free(path);
    return r;
}

static int check_folder(const char *dir, struct err *e)
{
    struct stat st;

    if (stat(dir, &st) < 0)
        return err_errno(e, errno == ENOENT ? ERR_NOT_FOUND : ERR_FAILED, "farm %s", dir);
    if (!S_ISDIR(st.st_mode))
        return err_set(e, ERR_FAILED, "farm %s: a folder is wanted", dir);
    if (st.st_uid != geteuid())
        return err_set(e, ERR_PERMISSION, "farm %s: the folder belongs to user %lu, not to you", dir, (unsigned long)st.st_uid);
    return 0;
}

/* A folder where up was at work has one of these. */
static int check_farm(const char *dir, struct err *e)
{
    static const char *const names[] = { "sluice.conf", "started", "lock" };
    bool found = false;

    for (size_t i = 0; !found && i < ARRAY_LEN(names); i++) {
        char *path = mem_printf("%s/%s", dir, names[i]);

        found = access(path, F_OK) == 0;
        free(path);
    }
    return found ? 0 : err_set(e, ERR_NOT_FOUND, "farm %s: there is no farm in this folder (it has no sluice.conf)", dir);
}

static char *shm_name(const struct farm *f, const char *parent)
{
    return mem_printf("%s/sluice-%lu-%016" PRIx64, parent, (unsigned long)geteuid(), (uint64_t)XXH3_64bits(f->dir, strlen(f->dir)));
}

struct farm *farm_open(const char *dir, bool create, double limit_s, struct err *e)
{
    struct farm *f = mem_zalloc(sizeof(*f));

    f->lock = -1;
    if ((create && file_mkdirs(dir, 0755, e) < 0) || check_folder(dir, e) < 0 || (!create && check_farm(dir, e) < 0))
        goto fail;
    f->dir = realpath(dir, NULL);
    if (f->dir == NULL) {
        err_errno(e, ERR_FAILED, "farm %s", dir);
        goto fail;
    }
    if (strpbrk(f->dir, "\n\t") != NULL) {
        err_set(e, ERR_USAGE, "farm: a folder with line breaks or tabs in its path is not taken");
        goto fail;
    }
    f->shm_dir = shm_name(f, "/dev/shm");
    if (take_lock(f, limit_s, e) < 0 || list_read(f, e) < 0)
        goto fail;
    return f;
fail:
    farm_close(f);
    return NULL;
}

void farm_close(struct farm *f)
{
    if (f == NULL)
        return;
    forget_all(f);
    if (f->lock >= 0)
        close(f->lock);
    free(f->shm_dir);
    free(f->dir);
    free(f);
}

int farm_make_shm(struct farm *f, const char *parent, struct err *e)
{
    char *record, *line;
    struct stat st;
    int r = 0;

    if (f->n == 0) {                 /* what runs, or ran, keeps its own */
        free(f->shm_dir);
        f->shm_dir = shm_name(f, parent);
    }
    record = farm_path(f, "shm-dir");
    line = mem_printf("%s\n", f->shm_dir);
    if (mkdir(f->shm_dir, 0700) < 0 && errno != EEXIST)
        r = err_errno(e, ERR_FAILED, "%s", f->shm_dir);
    else if (lstat(f->shm_dir, &st) < 0)
        r = err_errno(e, ERR_FAILED, "%s", f->shm_dir);
    else if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 077) != 0)
        r = err_set(e, ERR_PERMISSION, "%s: it is there already and is not a folder of yours alone", f->shm_dir);
    if (r == 0)
        r = file_replace(record, line, strlen(line), 0644, e);
    if (r == 0)
        r = list_write(f, e);
    free(record);
    free(line);
    return r;
}

/* --- ending --------------------------------------------------------------------------------- */

/* The session of a process that still runs; 0 when there is none. */
static pid_t session_of(pid_t pid)
{
    struct file_stat s;

    return file_process_stat(pid, &s) == 0 && !file_has_ended(&s) ? s.session : 0;
}

/* Whether the number of this leader now belongs to somebody else: then its session is not ours either. */
static bool came_round(const struct file_owner *o)
{
    uint64_t start = file_process_start(o->pid);

    return strcmp(o->boot_id, file_boot_id()) != 0 || (start != 0 && start != o->start);
}

static bool is_sluiced(const struct farm_process *p)
{
    return strcmp(p->name, "sluiced") == 0;
}

/* The sessions of one kind of process that still count as ours. The caller frees. */
static pid_t *own_sessions(const struct farm *f, bool sluiced, size_t *n)
{
    pid_t *sessions = mem_array(f->n, sizeof(*sessions));

    *n = 0;
    for (unsigned i = 0; i < f->n; i++)
        if (is_sluiced(&f->processes[i]) == sluiced && !came_round(&f->processes[i].owner))
            sessions[(*n)++] = f->processes[i].owner.pid;
    return sessions;
}

/* Sends sig (0: nothing) to all that is left of one kind: the processes and what they started. Returns how many there were. */
static unsigned signal_sessions(const struct farm *f, bool sluiced, int sig)
{
    size_t n;
    pid_t *sessions = own_sessions(f, sluiced, &n);
    DIR *proc = opendir("/proc");
    struct dirent *entry;
    unsigned found = 0;

    while (proc != NULL && (entry = readdir(proc)) != NULL) {
        pid_t pid = (pid_t)atol(entry->d_name), session = pid > 0 ? session_of(pid) : 0;

        for (size_t i = 0; session > 0 && i < n; i++) {
            if (sessions[i] != session)
                continue;
            found++;
            if (sig != 0)
                kill(pid, sig);
            break;
        }
    }
    if (proc != NULL)
        closedir(proc);
    free(sessions);
    return found;
}

/* The leader alone is asked first: it knows how to end its children. A stopped one must go on to hear it. */
static void ask_to_end(const struct file_owner *o)
{
    if (!file_owner_alive(o))
        return;
    kill(o->pid, SIGTERM);
    kill(o->pid, SIGCONT);
}

int farm_end_one(struct farm_process *p, double limit_s, struct err *e)
{
    int64_t end = clock_mono_ns() + (int64_t)(limit_s * 1e9);
    bool killed = false;

    ask_to_end(&p->owner);
    while (file_owner_alive(&p->owner)) {
        if (clock_mono_ns() > end && killed)
            return err_set(e, ERR_FAILED, "%s, pid %ld, did not end even when killed", p->name, (long)p->owner.pid);
        if (clock_mono_ns() > end) {
            kill(p->owner.pid, SIGKILL);
            killed = true;
            end += (int64_t)(limit_s * 1e9);
        }
        nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
    }
    return 0;
}

static void wait_until_gone(const struct farm *f, bool sluiced, double limit_s)
{
    int64_t end = clock_mono_ns() + (int64_t)(limit_s * 1e9);

    while (signal_sessions(f, sluiced, 0) > 0 && clock_mono_ns() < end)
        nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
}

/* One kind of process at a time: workers end while sluiced still hears them. */
static int end_kind(const struct farm *f, bool sluiced, double limit_s, unsigned *ended, struct err *e)
{
    unsigned left;

    for (unsigned i = 0; i < f->n; i++) {
        if (is_sluiced(&f->processes[i]) != sluiced)
            continue;
        if (file_owner_alive(&f->processes[i].owner))
            ++*ended;
        ask_to_end(&f->processes[i].owner);
    }
    wait_until_gone(f, sluiced, limit_s);
    signal_sessions(f, sluiced, SIGKILL);
    wait_until_gone(f, sluiced, limit_s);
    left = signal_sessions(f, sluiced, 0);
    if (left > 0)
        return err_set(e, ERR_FAILED, "farm %s: %u processes did not end even when killed", f->dir, left);
    return 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path) < 0 && errno != ENOENT ? -1 : 0;
}

/* Only a folder that we made: of our naming, ours alone, no link. */
static int remove_shm(const struct farm *f, struct err *e)
{
    char *prefix = mem_printf("/sluice-%lu-", (unsigned long)geteuid());
    const char *name = strrchr(f->shm_dir, '/');
    bool ours = name != NULL && strncmp(name, prefix, strlen(prefix)) == 0;
    struct stat st;

    free(prefix);
    if (!ours || lstat(f->shm_dir, &st) < 0 || !S_ISDIR(st.st_mode) || st.st_uid != geteuid())
        return 0;
    if (nftw(f->shm_dir, remove_one, 16, FTW_DEPTH | FTW_PHYS) < 0)
        return err_errno(e, ERR_FAILED, "%s", f->shm_dir);
    return 0;
}

int farm_end(struct farm *f, double limit_s, unsigned *ended, struct err *e)
{
    char *path;

    *ended = 0;
    if (end_kind(f, false, limit_s, ended, e) < 0 || end_kind(f, true, limit_s, ended, e) < 0 || remove_shm(f, e) < 0)
        return -1;
    forget_all(f);
    path = farm_path(f, "started");
    /* On a read-only file system the list stays; it names processes that are gone. */
    if (unlink(path) < 0 && errno != ENOENT && errno != EROFS) {
        err_errno(e, ERR_FAILED, "%s", path);
        free(path);
        return -1;
    }
    free(path);
    path = farm_path(f, "shm-dir");
    unlink(path);
    free(path);
    return 0;
}
