/* main.c - sluice-worker: the daemon of a node
 *
 * Start: options, configuration, log, lock, ends of old processes; then the loop with everything in it, the buffer, the devices; last the connection to
 * sluiced. The end is the same backwards, within 2 s whatever hangs: what cannot be waited for is left to the kernel, which takes the
 * children along.
 */
#include "config.h"
#include "worker.h"

#include "check.h"
#include "clock.h"
#include "deliver.h"
#include "device.h"
#include "file.h"
#include "intake.h"
#include "link.h"
#include "log.h"
#include "marked.h"
#include "mem.h"
#include "notify.h"
#include "report.h"
#include "resize.h"
#include "str.h"
#include "watch.h"

#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#define TICK_S      0.1
#define STALL_S     0.5                          /* a tick that is later than this was a standstill of ours */
#define STOP_S      1.4                          /* for processes to end */
#define THREADS_S   1.7                          /* and then threads, all from the beginning; the rest of the 2 s is for the last steps */
#define FIRST_S     2.0                          /* the connection waits so long for a buffer that is made quickly */
#define OLD_S       3.0                          /* for processes of an earlier worker to end */

struct program {
    struct worker w;
    /* options */
    const char *config, *class_name, *log_file, *run_dir_given;
    enum log_level log_level;
    int      ready_fd;
    /* running */
    struct conf *conf;
    char    *run_dir, *shm_dir, *crash_dir, *reco, *processes;
    int      lock;
    int      status;
    struct ev_timer tick, first, buffer_again, old_again, stop_limit, watchdog;
    bool     opened;                             /* the buffer has been there */
    struct ev_signal term, interrupt, hup;
    int64_t  ticked, stop_at;                    /* monotonic; stop_at 0: it does not stop */
    struct pool_task list_task; char *list, *list_next; bool list_writing;
};

/* ---- options --------------------------------------------------------------------------------------- */

enum { OPT_CONFIG = 256, OPT_SERVER, OPT_NODE, OPT_CLASS, OPT_SHM_DIR, OPT_SHM, OPT_RUN_DIR, OPT_RECO, OPT_LOSS, OPT_LOG, OPT_LEVEL,
       OPT_READY };

static const struct argp_option options[] = {
    { "config",       OPT_CONFIG,  "FILE",    0, "Configuration file", 0 },
    { "server",       OPT_SERVER,  "ADDRESS", 0, "Where sluiced listens: unix:PATH or HOST:PORT", 0 },
    { "node",         OPT_NODE,    "NAME",    0, "The node's name in the farm", 0 },
    { "class",        OPT_CLASS,   "NAME",    0, "Its class, as in the configuration", 0 },
    { "shm-dir",      OPT_SHM_DIR, "DIR",     0, "Folder of the buffer (default /dev/shm)", 0 },
    { "shm",          OPT_SHM,     "SIZE",    0, "Size of the buffer (default: that of the class)", 0 },
    { "run-dir",      OPT_RUN_DIR, "DIR",     0, "Folder of lock, status file and records (default /run/sluice/NAME)", 0 },
    { "reco",         OPT_RECO,    "PROGRAM", 0, "Reconstruction program (default sluice-reco)", 0 },
    { "fail-on-loss", OPT_LOSS,    NULL,      0, "End when sluiced is lost", 0 },
    { "log",          OPT_LOG,     "FILE",    0, "Log file (default: standard error)", 0 },
    { "log-level",    OPT_LEVEL,   "WORD",    0, "err, warning, info or debug", 0 },
    { "ready-fd",     OPT_READY,   "N",       0, "Write \"ready\" there once registered", 0 },
    { 0 },
};

/* Of an option that is given twice the last holds. */
static void own(char **text, const char *arg)
{
    free(*text);
    *text = mem_strdup(arg);
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct program *p = state->input;
    struct worker *w = &p->w;
    struct err e;
    int64_t n;

    switch (key) {
    case OPT_CONFIG:  p->config = arg; break;
    case OPT_SERVER:  w->server = arg; break;
    case OPT_NODE:    w->node = arg; break;
    case OPT_CLASS:   p->class_name = arg; break;
    case OPT_SHM_DIR: own(&p->shm_dir, arg); break;
    case OPT_RUN_DIR: p->run_dir_given = arg; break;
    case OPT_RECO:    own(&p->reco, arg); break;
    case OPT_LOSS:    w->fail_on_loss = true; break;
    case OPT_LOG:     p->log_file = arg; break;
    case OPT_SHM:
        if (str_parse_size(arg, &w->shm_size, &e) < 0)
            argp_error(state, "--shm: %s", e.text);
        break;
    case OPT_LEVEL:
        if (log_level_parse(arg, &p->log_level) < 0)
            argp_error(state, "--log-level %s: err, warning, info or debug wanted", arg);
        break;
    case OPT_READY:
        if (str_parse_i64("--ready-fd", arg, 0, 65535, &n, &e) < 0)
            argp_error(state, "%s", e.text);
        p->ready_fd = (int)n;
        fcntl(p->ready_fd, F_SETFD, FD_CLOEXEC);
        break;
    case ARGP_KEY_ARG:
        argp_error(state, "\"%s\": no argument wanted", arg);
        break;
    case ARGP_KEY_END:
        if (w->server == NULL || w->node == NULL)
            argp_error(state, "--server and --node are wanted");
        if (!str_is_name(w->node))
            argp_error(state, "--node \"%s\": 1 to 63 letters, digits, '.', '_' and '-' wanted", w->node);
        break;
    default:
        return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

/* ---- what is needed before the loop ------------------------------------------------------------------ */

static int find_class(struct program *p, struct err *e)
{
    const struct conf_node *node = conf_node_find(p->conf, p->w.node);
    const char *name = p->class_name ? p->class_name : node ? node->class_name : NULL;

    if (name == NULL)
        return err_set(e, ERR_USAGE, "node %s: the configuration gives it no class, and there is no --class", p->w.node);
    p->w.class = conf_class_find(p->conf, name);
    if (p->w.class == NULL)
        return err_set(e, ERR_USAGE, "node %s: class %s is not in the configuration", p->w.node, name);
    if (p->w.shm_size == 0)
        p->w.shm_size = p->w.class->shm;
    if (p->w.shm_size < BUFFER_LEAST)
        return err_set(e, ERR_USAGE, "node %s: a buffer of at least 64K wanted, class %s or --shm gives %" PRIu64, p->w.node, name,
                       p->w.shm_size);
    return 0;
}

/* Beside this program, as in a build tree; else where it is installed. */
static char *find_reco(void)
{
    char self[4096];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);

    if (n > 0) {
        self[n] = '\0';
        char *slash = strrchr(self, '/');
        char *beside = mem_printf("%.*s/sluice-reco", (int)(slash - self), self);
        if (access(beside, X_OK) == 0)
            return beside;
        free(beside);
    }
    return mem_strdup(LIBEXECDIR "/sluice-reco");
}

static int find_folders(struct program *p, struct err *e)
{
    char *run = p->run_dir_given ? mem_strdup(p->run_dir_given) : mem_printf("/run/sluice/%s", p->w.node);

    if (file_mkdirs(run, 0755, e) < 0) {
        free(run);
        return -1;
    }
    p->run_dir = realpath(run, NULL);
    if (p->run_dir == NULL) {
        err_errno(e, ERR_FAILED, "%s", run);
        free(run);
        return -1;
    }
    free(run);
    snprintf(p->w.farm, sizeof p->w.farm, "%016" PRIx64, (uint64_t)XXH3_64bits(p->run_dir, strlen(p->run_dir)));
    p->w.farm[10] = '\0';
    if (p->shm_dir == NULL)
        p->shm_dir = mem_strdup(p->conf->worker.shm_dir);
    if (p->reco == NULL)
        p->reco = find_reco();
    p->crash_dir = p->conf->worker.crash_dir ? mem_strdup(p->conf->worker.crash_dir) : mem_printf("%s/crash", p->conf->state_dir);
    p->processes = mem_printf("%s/processes", p->run_dir);
    p->w.run_dir = p->run_dir;
    p->w.shm_dir = p->shm_dir;
    p->w.crash_dir = p->crash_dir;
    p->w.reco = p->reco;
    return 0;
}

/* Takes the lock of a run folder. A worker that was killed between the fork and the exec of a child leaves it to the child for a moment: while the one that is
 * named in the file is gone, it is worth waiting for. -1: held; text has the holder's number. */
static int wait_for_lock(int fd, char text[64])
{
    const int64_t until = clock_mono_ns() + 2 * CLOCK_SECOND;

    while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        ssize_t n = pread(fd, text, 63, 0);

        text[n > 0 ? n : 0] = '\0';
        text[strcspn(text, "\n")] = '\0';
        struct file_owner holder = { .pid = atoi(text), .start = file_process_start(atoi(text)) };
        snprintf(holder.boot_id, sizeof holder.boot_id, "%s", file_boot_id());
        if (holder.pid <= 0 || file_owner_alive(&holder) || clock_mono_ns() > until)
            return -1;
        nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);      /* a lock that is waited for in the kernel cannot be given up */
    }
    return 0;
}

/* One worker a run folder. The lock is the kernel's: it goes with the process. */
static int take_lock(struct program *p, struct err *e)
{
    char *path = mem_printf("%s/lock", p->run_dir), text[64] = "";
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    int rc = 0;

    if (fd < 0) {
        rc = err_errno(e, ERR_FAILED, "%s cannot be opened", path);
    } else if (wait_for_lock(fd, text) < 0) {
        rc = err_set(e, ERR_STATE, "node %s: a worker is already running, pid %s (%s); one worker per farm and node name", p->w.node,
                     text[0] ? text : "unknown", path);
        close(fd);
    } else {
        int n = snprintf(text, sizeof text, "%d\n", (int)getpid());
        if (ftruncate(fd, 0) < 0 || pwrite(fd, text, (size_t)n, 0) != n)
            rc = err_errno(e, ERR_FAILED, "%s cannot be written", path);
        p->lock = fd;
    }
    free(path);
    return rc;
}

static int end_old(struct program *p, double limit_s, struct err *e)
{
    char *mark = mem_printf("%s-%s", p->w.farm, p->w.node);
    unsigned n;
    int rc = marked_end_old(mark, p->processes, limit_s, &n, e);

    if (n > 0)
        log_warning("devices: %u processes of an earlier worker of this node were ended", n);
    free(mark);
    return rc;
}

/* ---- the list of child processes, written by a thread ---------------------------------------------------- */

static void list_run(struct pool_task *t)
{
    struct program *p = CONTAINER_OF(t, struct program, list_task);
    struct err e;

    if (file_replace(p->processes, p->list, strlen(p->list), 0644, &e) < 0)
        log_warning("%s", e.text);
}

static void list_submit(struct program *p);

static void list_done(struct pool_task *t)
{
    struct program *p = CONTAINER_OF(t, struct program, list_task);

    p->list_writing = false;
    if (!t->dropped)
        list_submit(p);
}

static void list_submit(struct program *p)
{
    if (p->list_writing || p->list_next == NULL)
        return;
    free(p->list);
    p->list = p->list_next;
    p->list_next = NULL;
    p->list_writing = true;
    p->list_task.run = list_run;
    p->list_task.done = list_done;
    pool_submit(p->w.slow, &p->list_task);
}

static void list_changed(void *arg, const char *text)
{
    struct program *p = arg;

    free(p->list_next);
    p->list_next = mem_strdup(text);
    list_submit(p);
}

/* ---- saying that it runs ------------------------------------------------------------------------------------ */

static void tell_manager(const char *text)
{
    struct err e;

    if (notify_send(text, &e) < 0)
        log_warning("the service manager was not told %s: %s", text, e.text);
}

/* The watchdog: a loop that stands still is not alive. */
static void alive(struct ev_loop *loop, struct ev_timer *t, int revents)
{
    (void)loop, (void)t, (void)revents;
    tell_manager("WATCHDOG=1");
}

static void say_ready(struct program *p, const char *line)
{
    if (p->ready_fd >= 0) {
        dprintf(p->ready_fd, "%s\n", line);
        close(p->ready_fd);
        p->ready_fd = -1;
    }
}

static void registered(void *arg)
{
    say_ready(arg, "ready");
    tell_manager("READY=1");
}

static void connect_now(struct program *p)
{
    struct err e;

    ev_timer_stop(p->w.loop, &p->first);
    if (p->w.link != NULL || p->w.stopping)
        return;
    p->w.link = link_create(&p->w, registered, p, &e);
    if (p->w.link == NULL) {
        log_err("%s", e.text);
        say_ready(p, e.text);
        worker_stop(&p->w, e.code);
    }
}

static void first_over(struct ev_loop *loop, struct ev_timer *t, int revents)
{
    (void)loop, (void)revents;
    connect_now(t->data);
}

/* ---- buffer and devices --------------------------------------------------------------------------------------- */

/* Devices start when the buffer is there and nothing of an earlier worker lives. */
static void start_devices(struct program *p)
{
    struct err e;

    if (!buffer_is_open(p->w.buffer) || p->w.stopping)
        return;
    if (end_old(p, 0, &e) < 0) {
        report_trouble(p->w.report, "OldProcess", e.text);
        p->old_again.repeat = 2;
        ev_timer_again(p->w.loop, &p->old_again);
        return;
    }
    report_trouble(p->w.report, NULL, NULL);
    devices_start(p->w.devices);
}

static void old_again(struct ev_loop *loop, struct ev_timer *t, int revents)
{
    (void)revents;
    ev_timer_stop(loop, t);
    start_devices(t->data);
}

static void buffer_opened(void *arg, const struct err *why)
{
    struct program *p = arg;

    resize_over(p->w.resize, why);
    if (buffer_is_open(p->w.buffer) && p->opened)
        return;                                  /* it has another size, or the one that it had */
    p->opened = buffer_is_open(p->w.buffer);
    if (why != NULL) {
        report_trouble(p->w.report, "Shm", why->text);
        double s = p->buffer_again.repeat * 2;
        p->buffer_again.repeat = s < 2 ? 2 : s > 60 ? 60 : s;
        ev_timer_again(p->w.loop, &p->buffer_again);
    } else {
        ev_timer_stop(p->w.loop, &p->buffer_again);
        start_devices(p);
    }
    connect_now(p);
}

/* Its pages belong where the devices are, and so do our own threads, which fill it. */
static int open_buffer(struct program *p, struct err *e)
{
    uint64_t domains = devices_domains(p->w.devices);

    place_self(p->w.topology, domains);
    buffer_place(p->w.buffer, domains);
    return buffer_open(p->w.buffer, e);
}

/* Or not known, after the first try: the buffer does not wait for a driver any longer. */
static void devices_known(void *arg)
{
    struct program *p = arg;
    struct err e;

    if (!p->w.stopping && open_buffer(p, &e) < 0)
        log_warning("%s", e.text);
}

static void buffer_again(struct ev_loop *loop, struct ev_timer *t, int revents)
{
    struct program *p = t->data;
    struct err e;

    (void)revents;
    ev_timer_stop(loop, t);
    if (!p->w.stopping && open_buffer(p, &e) < 0)
        log_warning("%s", e.text);
}

/* ---- time -------------------------------------------------------------------------------------------------------- */

static void tick(struct ev_loop *loop, struct ev_timer *t, int revents)
{
    struct program *p = t->data;
    int64_t now = clock_mono_ns(), passed = now - p->ticked;

    (void)loop, (void)revents;
    p->ticked = now;
    if (passed > (int64_t)(STALL_S * 1e9)) {
        p->w.stalled_ns += passed - (int64_t)(TICK_S * 1e9);
        log_warning("worker: stood still for %.1f s; deadlines are moved by as much", (double)passed / 1e9);
    }
    if (p->w.stopping) {
        if (devices_stopped(p->w.devices) && checks_stopped(p->w.checks))
            ev_break(p->w.loop, EVBREAK_ALL);
        return;
    }
    intake_tick(p->w.intake);
    devices_tick(p->w.devices);
    resize_tick(p->w.resize);
    deliver_tick(p->w.deliver);
}

static void stop_over(struct ev_loop *loop, struct ev_timer *t, int revents)
{
    (void)t, (void)revents;
    log_warning("worker: a process did not end in time; the kernel ends it with us");
    ev_break(loop, EVBREAK_ALL);
}

static void stop(struct worker *w, int status)
{
    struct program *p = CONTAINER_OF(w, struct program, w);
    const struct itimerval last = { .it_value = { .tv_sec = 1, .tv_usec = 950000 } };

    if (w->stopping)
        return;
    setitimer(ITIMER_REAL, &last, NULL);         /* whatever hangs from here on: SIGALRM ends us */
    w->stopping = true;
    p->stop_at = clock_mono_ns();
    p->status = status;
    tell_manager("STOPPING=1");
    log_info("worker: stops, %u TFs are here", HASH_COUNT(w->held.table));
    devices_stop(w->devices);
    checks_stop(w->checks);
    ev_timer_start(w->loop, &p->stop_limit);
}

static void on_signal(struct ev_loop *loop, struct ev_signal *s, int revents)
{
    struct program *p = s->data;

    (void)loop, (void)revents;
    worker_stop(&p->w, 0);
}

static void on_hup(struct ev_loop *loop, struct ev_signal *s, int revents)
{
    struct err e;

    (void)loop, (void)s, (void)revents;
    if (log_reopen(&e) < 0)
        log_warning("%s", e.text);
}

/* ---- up and down ---------------------------------------------------------------------------------------------------- */

static void start_watchers(struct program *p)
{
    struct ev_loop *loop = p->w.loop;

    ev_signal_init(&p->term, on_signal, SIGTERM);
    ev_signal_init(&p->interrupt, on_signal, SIGINT);
    ev_signal_init(&p->hup, on_hup, SIGHUP);
    ev_timer_init(&p->tick, tick, TICK_S, TICK_S);
    ev_timer_init(&p->first, first_over, FIRST_S, 0);
    ev_timer_init(&p->stop_limit, stop_over, STOP_S, 0);
    ev_init(&p->buffer_again, buffer_again);
    ev_init(&p->old_again, old_again);
    p->term.data = p->interrupt.data = p->hup.data = p;
    p->tick.data = p->first.data = p->stop_limit.data = p->buffer_again.data = p->old_again.data = p;
    ev_signal_start(loop, &p->term);
    ev_signal_start(loop, &p->interrupt);
    ev_signal_start(loop, &p->hup);
    ev_timer_start(loop, &p->tick);
    ev_timer_start(loop, &p->first);
    ev_timer_init(&p->watchdog, alive, notify_watchdog_s(), notify_watchdog_s());
    if (p->watchdog.repeat > 0)
        ev_timer_start(loop, &p->watchdog);
    p->ticked = clock_mono_ns();
}

static int set_up(struct program *p, struct err *e)
{
    struct worker *w = &p->w;
    char mark[96];

    w->stop = stop;
    w->loop = ev_loop_new(EVFLAG_AUTO);
    if (w->loop == NULL)
        return err_set(e, ERR_FAILED, "no event loop");
    if ((w->names = names_create(w->loop, e)) == NULL)
        return -1;
    w->priority = priority_take();
    int nice = priority_behind(&w->priority, w->priority.base);
    if ((w->io = pool_create(w->loop, "io", 3, nice, e)) == NULL || (w->out = pool_create(w->loop, "deliver", 2, nice, e)) == NULL ||
        (w->slow = pool_create(w->loop, "slow", 1, nice, e)) == NULL)
        return -1;
    snprintf(mark, sizeof mark, "%s-%s", w->farm, w->node);
    w->watch = watch_create(w->loop, mark, list_changed, p, e);
    const struct buffer_conf conf = {
        .loop = w->loop, .shm_dir = p->shm_dir, .run_dir = p->run_dir, .farm = w->farm, .node = w->node, .size = w->shm_size,
        .huge_pages = p->conf->worker.huge_pages, .lock = p->conf->worker.lock_memory, .nice = nice, .room_root = "", .opened = buffer_opened, .arg = p,
    };
    if (w->watch == NULL || (w->buffer = buffer_create(&conf, e)) == NULL)
        return -1;
    w->resize = resize_create(w);
    w->fences = fences_create(200000);
    w->topology = topology_load(e);
    if (w->topology == NULL)
        return -1;
    w->gpus = gpus_create(w);
    w->checks = checks_create(w);
    w->devices = devices_create(w);
    w->deliver = deliver_create(w);
    w->intake = intake_create(w);
    w->report = report_create(w);
    start_watchers(p);
    checks_start(w->checks);
    if (!gpus_are_real(w))
        return open_buffer(p, e);
    gpus_search(w->gpus, devices_known, p);
    return 0;
}

/* What the threads have to come to an end: a busy disk makes them late, and only one that hangs is to be left behind. */
static double threads_limit(const struct program *p)
{
    double passed = p->stop_at != 0 ? (double)(clock_mono_ns() - p->stop_at) / 1e9 : STOP_S;

    return passed < THREADS_S - 0.05 ? THREADS_S - passed : 0.05;
}

/* Threads first: what they had comes back to modules that are all still there. */
static void tear_down(struct program *p)
{
    struct worker *w = &p->w;
    struct pool *const pools[] = { w->io, w->out, w->slow };
    bool clean = true;

    w->stopping = true;
    if (w->loop == NULL)
        return;
    for (size_t i = 0; i < ARRAY_LEN(pools); i++)
        clean &= pool_destroy(pools[i], threads_limit(p)) == 0;
    watch_destroy(w->watch);
    int64_t since;
    const char *lost = p->status == ERR_UNREACHABLE && w->link != NULL ? link_trouble(w->link, &since) : NULL;
    if (clean)
        report_last(w->report, "stopped", lost ? lost : "");
    link_destroy(w->link);
    w->link = NULL;
    if (!clean) {                                /* a thread may still look at what is ours */
        log_warning("worker: a thread hangs in the kernel and is left");
        log_close();
        _exit(p->status ? p->status : ERR_FAILED);
    }
    intake_destroy(w->intake);
    held_free_all(&w->held);
    devices_destroy(w->devices);
    checks_destroy(w->checks);
    gpus_destroy(w->gpus);
    topology_free(w->topology);
    deliver_destroy(w->deliver);
    report_destroy(w->report);
    w->report = NULL;
    works_free(&w->works);
    fences_destroy(w->fences);
    buffer_destroy(w->buffer, true);
    resize_destroy(w->resize);
    names_destroy(w->names);
    unlink(p->processes);
    ev_loop_destroy(w->loop);
}

static void free_program(struct program *p)
{
    free(p->run_dir);
    free(p->shm_dir);
    free(p->crash_dir);
    free(p->reco);
    free(p->processes);
    free(p->list);
    free(p->list_next);
    conf_destroy(p->conf);
}

static int start(struct program *p, struct err *e)
{
    if (log_open("sluice-worker", p->log_file, p->log_level, e) < 0)
        return -1;
    p->conf = conf_read(p->config, e);
    if (p->conf == NULL)
        return -1;
    p->w.conf = p->conf;
    p->w.method = str_equal(p->conf->auth, "none") ? NULL : p->conf->auth;
    p->w.fail_on_loss |= p->conf->worker.fail_on_loss;
    if (find_class(p, e) < 0 || find_folders(p, e) < 0 || take_lock(p, e) < 0)
        return -1;
    char *kept = mem_printf("%s/log", p->run_dir);
    struct err old;
    if (log_keep(kept, &old) < 0)
        log_warning("%s", old.text);
    free(kept);
    if (end_old(p, OLD_S, &old) < 0)
        log_err("devices: %s", old.text);        /* they stay shut until it is gone */
    return set_up(p, e);
}

int main(int argc, char **argv)
{
    static const struct argp argp = { options, parse, NULL, "The daemon of a node of a Sluice farm: see sluice-worker(8).", NULL, NULL, NULL };
    static struct program p = { .ready_fd = -1, .log_level = LOG_LEVEL_INFO, .lock = -1 };
    struct err e = { 0 };

    file_watch_stdout();
    argp_program_version = "sluice-worker " PACKAGE_VERSION;
    argp_err_exit_status = ERR_USAGE;
    if (argp_parse(&argp, argc, argv, 0, NULL, &p) != 0)
        return ERR_USAGE;
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);                    /* a file size limit is an errno like any other */
    if (start(&p, &e) < 0) {
        say_ready(&p, e.text);
        log_last_word(e.text);
        p.status = e.code ? (int)e.code : ERR_FAILED;
    } else {
        ev_run(p.w.loop, 0);
    }
    tear_down(&p);
    int status = p.status;
    free_program(&p);
    log_close();
    return status;
}
