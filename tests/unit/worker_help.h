/* worker_help.h - the real sluice-worker with the fake reconstruction process, and sluiced played by the test */
#ifndef WORKER_HELP_H
#define WORKER_HELP_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xxhash.h>

#include "fence.h"
#include "file.h"
#include "frame.h"
#include "loop_help.h"
#include "mem.h"
#include "peer.h"

enum { EPOCH = 7, INBOX = 4096 };

struct note { unsigned type; uint32_t id; ProtobufCMessage *m; };

struct farm {
    char     dir[64], address[120];
    struct ev_loop *loop;
    struct listener *listener;
    struct chan *chan;                           /* of the worker, registered or not */
    bool     silent;                             /* do not answer the registration */
    pid_t    pid;                                /* of the worker */
    unsigned files;                              /* its limit of descriptors; 0: as it is */
    struct note inbox[INBOX]; unsigned n;
    Sluice__Report *report;                      /* the last one */
    unsigned reports, registrations;
    bool     happened;
    Sluice__Held **forget; size_t n_forget;      /* for the next registration */
    bool     parks; Sluice__Parking parking;     /* it says this, too */
};

static inline char *farm_path(const struct farm *f, const char *name)
{
    return mem_printf("%s/%s", f->dir, name);
}

static inline ProtobufCMessage *copy_message(unsigned type, const ProtobufCMessage *m)
{
    size_t size = protobuf_c_message_get_packed_size(m);
    uint8_t *packed = mem_zalloc(size + 1);
    struct err e;

    protobuf_c_message_pack(m, packed);
    ProtobufCMessage *copy = frame_unpack(frame_type(type), packed, size, &e);
    free(packed);
    if (copy == NULL)
        abort();
    return copy;
}

static inline void farm_message(void *arg, struct chan *c, unsigned type, uint32_t id, const ProtobufCMessage *m, int *fds, unsigned n_fds)
{
    struct farm *f = arg;

    (void)fds, (void)n_fds;
    f->happened = true;
    if (type == SLUICE__TYPE__REPORT) {
        if (f->report != NULL)
            sluice__report__free_unpacked(f->report, NULL);
        f->report = (Sluice__Report *)copy_message(type, m);
        f->reports++;
        return;
    }
    if (f->n == INBOX)
        abort();
    f->inbox[f->n++] = (struct note){ type, id, copy_message(type, m) };
    if (type == SLUICE__TYPE__REGISTER && !f->silent) {
        Sluice__Registered r = SLUICE__REGISTERED__INIT;
        r.has_epoch = r.has_added = 1;
        r.epoch = EPOCH;
        r.added = 1;
        r.forget = f->forget;
        r.n_forget = f->n_forget;
        r.has_parking = f->parks;
        r.parking = f->parking;
        f->registrations++;
        chan_send(c, id, &r.base);
    }
}

static inline void farm_closed(void *arg, struct chan *c, const struct err *why)
{
    struct farm *f = arg;

    (void)why;
    if (f->chan == c)
        f->chan = NULL;
    f->happened = true;
    chan_destroy(c);
}

static inline void farm_accepted(void *arg, struct chan *c, const struct peer_id *id, const Sluice__Hello *hello)
{
    static const struct chan_events events = { .message = farm_message, .closed = farm_closed };
    struct farm *f = arg;

    (void)hello;
    if (f->chan != NULL)
        chan_destroy(f->chan);
    f->chan = c;
    chan_set_owner(c, &events, f);
    peer_ready(c, id, "worker", 1);
}

static inline void farm_listen(struct farm *f)
{
    struct listener_conf conf = { .loop = f->loop, .address = f->address, .epoch = EPOCH, .accepted = farm_accepted, .arg = f };
    struct err e;

    f->listener = listener_create(&conf, &e);
    if (f->listener == NULL) {
        fprintf(stderr, "listen: %s\n", e.text);
        abort();
    }
}

static inline void farm_unlisten(struct farm *f)
{
    listener_destroy(f->listener);
    f->listener = NULL;
    chan_destroy(f->chan);
    f->chan = NULL;
}

static inline const char *build_dir(void)
{
    const char *dir = getenv("SLUICE_BUILDDIR");
    return dir ? dir : ".";
}

/* Starts the worker. conf: more lines of the configuration's section worker; NULL: none. class_name NULL: fast. */
static inline void farm_worker(struct farm *f, const char *conf, const char *shm_dir, const char *class_name)
{
    char *text = mem_printf("state_dir = \"%s/state\"\nclass fast { devices = 1 shm = \"4M\" }\nclass two { devices = 2 shm = \"4M\" }\n"
                            "class held { devices = 1 shm = \"4M\" nominal_ms = 120 }\nclass gpu { devices = 2 shm = \"4M\" gpu_arch = gfx906 }\nclass gpu4 { devices = 4 shm = \"4M\" gpu_arch = gfx906 }\nclass big { devices = 1 shm = \"128M\" }\nworker {\n%s\n}\n", f->dir, conf ? conf : "");
    char *path = farm_path(f, "conf"), *run = farm_path(f, "run"), *log = farm_path(f, "log");
    char *program = mem_printf("%s/sluice-worker", build_dir()), *reco = mem_printf("%s/tests/fake/reco", build_dir());
    struct err e;

    if (file_replace(path, text, strlen(text), 0644, &e) < 0)
        abort();
    f->pid = fork();
    if (f->pid == 0) {
        if (f->files > 0)
            setrlimit(RLIMIT_NOFILE, &(struct rlimit){ f->files, f->files });
        execl(program, program, "--config", path, "--server", f->address, "--node", "n1", "--shm-dir", shm_dir, "--run-dir", run, "--log", log,
              "--log-level", "debug", "--reco", reco, "--class", class_name ? class_name : "fast", NULL);
        _exit(127);
    }
    free(text);
    free(path);
    free(run);
    free(log);
    free(program);
    free(reco);
}

/* The oldest message of this type, out of the box; NULL when none came within limit_s. Free with note_free. */
static inline struct note farm_take(struct farm *f, unsigned type, double limit_s)
{
    int64_t end = clock_mono_ns() + (int64_t)(limit_s * 1e9);

    for (;;) {
        for (unsigned i = 0; i < f->n; i++) {
            if (f->inbox[i].type == type) {
                struct note note = f->inbox[i];
                f->n--;
                memmove(&f->inbox[i], &f->inbox[i + 1], (f->n - i) * sizeof note);
                return note;
            }
        }
        double left = (double)(end - clock_mono_ns()) / 1e9;
        f->happened = false;
        if (left <= 0 || (!run_until(f->loop, &f->happened, left) && clock_mono_ns() >= end))
            return (struct note){ 0 };
    }
}

static inline void note_free(struct note *n)
{
    if (n->m != NULL)
        protobuf_c_message_free_unpacked(n->m, NULL);
    n->m = NULL;
}

/* Until the last report says this; false after limit_s. */
static inline bool farm_report(struct farm *f, bool (*is)(const Sluice__Report *r), double limit_s)
{
    int64_t end = clock_mono_ns() + (int64_t)(limit_s * 1e9);

    while (f->report == NULL || !is(f->report)) {
        double left = (double)(end - clock_mono_ns()) / 1e9;
        f->happened = false;
        if (left <= 0 || !run_until(f->loop, &f->happened, left))
            return f->report != NULL && is(f->report);
    }
    return true;
}

static inline void farm_make(struct farm *f)
{
    memset(f, 0, sizeof *f);
    snprintf(f->dir, sizeof f->dir, "/tmp/worker_test.XXXXXX");
    if (mkdtemp(f->dir) == NULL)
        abort();
    snprintf(f->address, sizeof f->address, "unix:%s/sluiced.sock", f->dir);
    static const char *const sub[] = { "shm", "out" };
    for (int i = 0; i < 2; i++) {
        char *path = farm_path(f, sub[i]);
        if (mkdir(path, 0777) < 0)
            abort();
        free(path);
    }
    f->loop = ev_loop_new(EVFLAG_AUTO);
    farm_listen(f);
}

/* Waits for the worker's end; its wait status, -1 after limit_s (then it is killed). */
static inline int farm_wait(struct farm *f, double limit_s)
{
    int64_t end = clock_mono_ns() + (int64_t)(limit_s * 1e9);
    int status;

    for (;;) {
        pid_t got = waitpid(f->pid, &status, WNOHANG);
        if (got == f->pid) {
            f->pid = 0;
            return status;
        }
        if (clock_mono_ns() > end)
            break;
        run_for(f->loop, 0.01);
    }
    kill(f->pid, SIGKILL);
    waitpid(f->pid, &status, 0);
    f->pid = 0;
    return -1;
}

static inline void farm_destroy(struct farm *f)
{
    if (f->pid > 0) {
        kill(f->pid, SIGTERM);
        farm_wait(f, 5);
    }
    farm_unlisten(f);
    for (unsigned i = 0; i < f->n; i++)
        note_free(&f->inbox[i]);
    if (f->report != NULL)
        sluice__report__free_unpacked(f->report, NULL);
    ev_loop_destroy(f->loop);
    char *cmd = mem_printf("rm -rf '%s'", f->dir);
    if (system(cmd) != 0)
        fprintf(stderr, "%s stays\n", f->dir);
    free(cmd);
}

/* ---- orders ------------------------------------------------------------------------------------------------ */

static inline void farm_open(struct farm *f, uint64_t run, uint64_t job, const char *workflow, const char *output, double process_timeout)
{
    Sluice__RunOpen m = SLUICE__RUN_OPEN__INIT;

    m.has_run = run != 0;
    m.run = run;
    m.has_job = job != 0;
    m.job = job;
    m.workflow = (char *)workflow;
    m.output = (char *)output;
    m.has_process_timeout = process_timeout > 0;
    m.process_timeout = process_timeout;
    chan_send(f->chan, 0, &m.base);
}

static inline void farm_assign_file(struct farm *f, uint64_t job, uint64_t tf, unsigned attempt, const char *path, uint64_t offset, uint64_t size,
                                    const char *stem)
{
    Sluice__Assign m = SLUICE__ASSIGN__INIT;
    struct tf_id id;

    tf_id_fill(&id, (struct tf_name){ 0, job, tf }, (struct fence){ EPOCH, attempt });
    m.tf = &id.tf;
    m.fence = &id.fence;
    m.has_bytes = m.has_offset = m.has_size = 1;
    m.bytes = (size + 63) / 64 * 64;
    m.path = (char *)path;
    m.offset = offset;
    m.size = size;
    m.stem = (char *)stem;
    chan_send(f->chan, 0, &m.base);
}

static inline void farm_verdict(struct farm *f, uint64_t run, uint64_t job, uint64_t tf, unsigned attempt, bool accepted, const char *output,
                                const char *stem)
{
    Sluice__Verdict m = SLUICE__VERDICT__INIT;
    struct tf_id id;

    tf_id_fill(&id, (struct tf_name){ run, job, tf }, (struct fence){ EPOCH, attempt });
    m.tf = &id.tf;
    m.fence = &id.fence;
    m.has_accepted = 1;
    m.accepted = accepted;
    m.output = (char *)output;
    m.stem = (char *)stem;
    chan_send(f->chan, 0, &m.base);
}

static inline void farm_cancel(struct farm *f, uint64_t job, uint64_t tf, unsigned attempt)
{
    Sluice__Cancel m = SLUICE__CANCEL__INIT;
    struct tf_id id;

    tf_id_fill(&id, (struct tf_name){ 0, job, tf }, (struct fence){ EPOCH, attempt });
    m.tf = &id.tf;
    m.fence = &id.fence;
    m.reason = (char *)"on request";
    chan_send(f->chan, 0, &m.base);
}

/* ---- processes ------------------------------------------------------------------------------------------------- */

static inline const char *hex64(uint64_t v)
{
    static char text[17];
    snprintf(text, sizeof text, "%016" PRIx64, v);
    return text;
}

/* How many processes bear the mark of a farm whose run folder is f's: the worker's children and theirs. */
static inline unsigned farm_children(const struct farm *f)
{
    DIR *proc = opendir("/proc");
    struct dirent *d;
    char *run = farm_path(f, "run");
    char *want = mem_printf("SLUICE_CHILD_OF=%.10s-n1/", hex64(XXH3_64bits(run, strlen(run))));
    unsigned n = 0;

    while ((d = readdir(proc)) != NULL) {
        char path[300], text[65536];
        snprintf(path, sizeof path, "/proc/%.200s/environ", d->d_name);
        FILE *file = d->d_name[0] >= '1' && d->d_name[0] <= '9' ? fopen(path, "re") : NULL;
        if (file == NULL)
            continue;
        size_t got = fread(text, 1, sizeof text, file);
        fclose(file);
        n += memmem(text, got, want, strlen(want)) != NULL;
    }
    closedir(proc);
    free(run);
    free(want);
    return n;
}

static inline bool process_lives(pid_t pid)
{
    struct file_owner o = { .pid = pid, .start = file_process_start(pid) };
    snprintf(o.boot_id, sizeof o.boot_id, "%s", file_boot_id());
    return o.start != 0 && file_owner_alive(&o) == 1;
}

/* ---- files -------------------------------------------------------------------------------------------------------- */

static inline void make_file(const char *path, size_t size, uint32_t seed)
{
    uint32_t *data = mem_zalloc(size + 4);
    struct err e;

    for (size_t i = 0; i < size / 4 + 1; i++) {
        seed = seed * 1664525u + 1013904223u;
        data[i] = seed;
    }
    if (file_replace(path, data, size, 0644, &e) < 0)
        abort();
    free(data);
}

/* Whether bytes [offset, offset + size) of a are exactly what is in b. */
static inline bool same_range(const char *a, uint64_t offset, size_t size, const char *b)
{
    size_t na, nb;
    struct err e;
    char *x = file_read(a, 1 << 26, &na, &e), *y = file_read(b, 1 << 26, &nb, &e);
    bool same = x != NULL && y != NULL && nb == size && offset + size <= na && memcmp(x + offset, y, size) == 0;

    free(x);
    free(y);
    return same;
}

/* Names in a folder, sorted, joined by blanks. Caller frees. */
static inline char *list_folder(const char *path)
{
    struct dirent **d;
    int n = scandir(path, &d, NULL, alphasort);
    char *text = mem_strdup("");

    for (int i = 0; i < n; i++) {
        if (d[i]->d_name[0] != '.') {
            char *more = mem_printf("%s%s%s", text, text[0] ? " " : "", d[i]->d_name);
            free(text);
            text = more;
        }
        free(d[i]);
    }
    if (n >= 0)
        free(d);
    return text;
}

#endif
