/* reco.c - a reconstruction process that does what its workflow's name says: the ways in which a real one may misbehave
 *
 *   copy          the TF itself is the result, as output "digits"
 *   two           the same, and as "clusters" a second time
 *   slow:MS       copy, after MS milliseconds, with a sign of life each 50 ms; a Cancel ends it
 *   refuse        is refused at set-up
 *   bad           RecoFailed(BadInput)
 *   crash         SIGSEGV; writes "about to crash" first
 *   crash-once:F  crash when file F is not there (it is made), else copy
 *   exit:N        exits with N
 *   hang          answers nothing more
 *   deaf          hang, and TERM is ignored
 *   stall:F       opens file F, of a file system that may never answer; TERM is ignored
 *   brood:F       hang, after starting a child in a session of its own that ignores TERM; its pid goes to file F
 *   double:F      the same, forked twice; the grandchild holds memory of the device
 *   wiped:F       the same, and the grandchild has no environment by which it could be found
 *   unsealed      a result that could still be changed
 *   short         a result of another size than announced
 *   liar          a result whose digest is wrong
 *   other         answers for another TF
 *   garbage       bytes that are no message
 *   as:F          what file F says, copy when it is not there
 *   chatty        a million lines to stderr, then copy
 *
 * With FAKE_GPUS=DIR it is a machine with GPUs besides, `devices` and `usage` answer for it:
 *   DIR/devices        the answer to devices, as it stands
 *   DIR/query          how both answer: hang, deaf (TERM is ignored), die, rubbish, much; else as they should
 *   DIR/held.PID       "SERIAL BYTES": memory that process PID holds while it lives
 *   DIR/leak           "SERIAL BYTES": memory that nobody gives back
 * 1000000 bytes of each are in use by nobody; a process that attaches holds 500000000.
 */
#include "config.h"

#include "clock.h"
#include "file.h"
#include "mem.h"
#include "place.h"
#include "shm_layout.h"
#include "wire.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>

static struct wire wire = { 3 };
static char *workflow[8];
static const uint8_t *data;
static struct err e;
static const char *gpus, *serial;               /* FAKE_GPUS; of the device */

static void die(const char *what)
{
    fprintf(stderr, "fake reco: %s: %s\n", what, e.text);
    exit(9);
}

static void send_message(uint32_t id, const ProtobufCMessage *m, const int *fds, unsigned n)
{
    if (wire_send(&wire, id, m, fds, n, &e) < 0)
        die("send");
}

static void say_failed(const Sluice__RecoRun *run, const char *word)
{
    Sluice__RecoFailed m = SLUICE__RECO_FAILED__INIT;
    m.tf = run->tf;
    m.fence = run->fence;
    m.word = (char *)word;
    m.text = (char *)"as asked";
    send_message(0, &m.base, NULL, 0);
}

static int make_output(const Sluice__RecoRun *run, bool seal, uint64_t *size, uint64_t *digest)
{
    int fd = memfd_create("digits", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    XXH3_state_t *h = XXH3_createState();

    XXH3_64bits_reset(h);
    *size = 0;
    for (size_t i = 0; i < run->n_segments; i++) {
        const uint8_t *p = data + run->segments[i]->offset;
        size_t n = (size_t)run->segments[i]->size;
        XXH3_64bits_update(h, p, n);
        if (write(fd, p, n) != (ssize_t)n)
            die("memfd");
        *size += n;
    }
    *digest = XXH3_64bits_digest(h);
    XXH3_freeState(h);
    if (seal)
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE);
    return fd;
}

/* FAKE_PINNED="WANTED ACTUAL CHUNKS STAGING TEXT": what it says of the buffer. NULL: nothing. */
static Sluice__Pinned *pinned_of(Sluice__Pinned *p)
{
    static char text[200];
    unsigned long long n[4];

    sluice__pinned__init(p);
    if (getenv("FAKE_PINNED") == NULL || sscanf(getenv("FAKE_PINNED"), "%llu %llu %llu %llu %199[^\n]", &n[0], &n[1], &n[2], &n[3], text) < 4)
        return NULL;
    p->has_wanted = p->has_actual = p->has_chunks = p->has_staging = 1;
    p->wanted = n[0];
    p->actual = n[1];
    p->chunks = n[2];
    p->staging = n[3];
    p->text = text[0] ? text : NULL;
    return p;
}

static void say_done(const Sluice__RecoRun *run, const char *how)
{
    static const char *const name[] = { "digits", "clusters" };
    Sluice__RecoDone m = SLUICE__RECO_DONE__INIT;
    Sluice__Output out[2], *outs[2] = { &out[0], &out[1] };
    Sluice__StageRan stage = SLUICE__STAGE_RAN__INIT, *stages[] = { &stage };
    char text[17];
    Sluice__Pinned pinned;
    int fd[2];
    uint64_t size, digest;

    m.n_outputs = strcmp(how, "two") == 0 ? 2 : 1;
    for (size_t i = 0; i < m.n_outputs; i++) {
        fd[i] = make_output(run, strcmp(how, "unsealed") != 0, &size, &digest);
        snprintf(text, sizeof text, "%016" PRIx64, strcmp(how, "liar") == 0 ? digest ^ 1 : digest);
        sluice__output__init(&out[i]);
        out[i].stage = (char *)name[i];
        out[i].has_size = out[i].has_count = 1;
        out[i].size = strcmp(how, "short") == 0 ? size + 1 : size;
        out[i].count = size / 8;
        out[i].digest = text;
    }
    Sluice__Tf other = *run->tf;
    other.id += 1;
    m.tf = strcmp(how, "other") == 0 ? &other : run->tf;
    m.fence = run->fence;
    m.digest = text;
    m.outputs = outs;
    stage.stage = (char *)"decode";
    stage.backend = (char *)"cpu";
    m.n_stages = 1;
    m.stages = stages;
    m.has_seconds = 1;
    m.seconds = 0.001;
    m.pinned = pinned_of(&pinned);
    send_message(0, &m.base, fd, (unsigned)m.n_outputs);
    for (size_t i = 0; i < m.n_outputs; i++)
        close(fd[i]);
}

static void __attribute__((noreturn)) hang(void)
{
    for (;;)
        pause();
}

static void crash(void)
{
    fprintf(stderr, "about to crash\n");
    signal(SIGSEGV, SIG_DFL);
    raise(SIGSEGV);
}

/* A child that nobody gets rid of by accident. */
static void brood(const char *file)
{
    pid_t pid = fork();
    if (pid == 0) {
        setsid();
        signal(SIGTERM, SIG_IGN);
        hang();
    }
    FILE *f = fopen(file, "w");
    fprintf(f, "%d\n", (int)pid);
    fclose(f);
}

/* ---- a machine with GPUs ------------------------------------------------------------------ */

static void hold_memory(void)
{
    char path[300];

    if (gpus == NULL)
        return;
    snprintf(path, sizeof path, "%s/held.%d", gpus, (int)getpid());
    FILE *f = fopen(path, "w");
    fprintf(f, "%s %d\n", serial, 500000000);
    fclose(f);
}

/* A grandchild that left its parents, its session and, when wiped, its environment. */
static void brood_twice(const char *file, bool wiped)
{
    extern char **environ;

    if (fork() == 0) {
        setsid();
        if (fork() != 0)
            _exit(0);
        signal(SIGTERM, SIG_IGN);
        hold_memory();
        FILE *f = fopen(file, "w");
        fprintf(f, "%d\n", (int)getpid());
        fclose(f);
        if (wiped) {
            static char *none[] = { NULL };
            environ = none;
            execle("/bin/sleep", "sleep", "1000", (char *)NULL, none);
        }
        hang();
    }
    while (access(file, F_OK) != 0)
        usleep(1000);
}

static void print_usage(const char *id)
{
    DIR *dir = opendir(gpus);
    struct dirent *d;
    unsigned long long used = 1000000;
    char pids[2000] = "";

    while ((d = readdir(dir)) != NULL) {
        char path[600], of[100];
        unsigned long long bytes;
        int pid = strncmp(d->d_name, "held.", 5) == 0 ? atoi(d->d_name + 5) : 0;
        if ((pid == 0 && strcmp(d->d_name, "leak") != 0) || (pid != 0 && kill(pid, 0) < 0))
            continue;
        snprintf(path, sizeof path, "%s/%s", gpus, d->d_name);
        FILE *f = fopen(path, "r");
        if (f != NULL && fscanf(f, "%99s %llu", of, &bytes) == 2 && strcmp(of, id) == 0) {
            used += bytes;
            if (pid != 0)
                snprintf(pids + strlen(pids), sizeof pids - strlen(pids), "%s%d", pids[0] ? ", " : "", pid);
        }
        if (f != NULL)
            fclose(f);
    }
    closedir(dir);
    printf("{\"id\": \"%s\", \"used\": %llu, \"pids\": [%s]}", id, used, pids);
}

/* Every id that the devices' file names. */
static void usage(const char *devices)
{
    const char *sep = "";

    printf("{\"usage\": [");
    for (const char *p = devices; (p = strstr(p, "\"id\": \"")) != NULL; sep = ", ") {
        char id[100] = "";
        p += strlen("\"id\": \"");
        sscanf(p, "%99[^\"]", id);
        printf("%s", sep);
        print_usage(id);
    }
    printf("]}\n");
}

static int query(const char *what)
{
    char path[300], *how, *devices;
    size_t n;

    snprintf(path, sizeof path, "%s/query", gpus);
    how = file_read(path, 100, &n, &e);
    if (how != NULL && strncmp(how, "deaf", 4) == 0)
        signal(SIGTERM, SIG_IGN);
    if (how != NULL && (strncmp(how, "hang", 4) == 0 || strncmp(how, "deaf", 4) == 0))
        hang();
    if (how != NULL && strncmp(how, "die", 3) == 0)
        crash();
    for (int i = 0; how != NULL && strncmp(how, "much", 4) == 0 && i < 100000; i++)
        printf("[[[[[[[[[[\n");
    if (how != NULL && strncmp(how, "rubbish", 7) == 0) {
        printf("Segmentation violation in driver, all is \xff well\n");
        free(how);
        return 0;
    }
    free(how);
    snprintf(path, sizeof path, "%s/devices", gpus);
    devices = file_read(path, 1 << 20, &n, &e);
    if (devices == NULL)
        die("devices");
    if (strcmp(what, "devices") == 0)
        printf("%s\n", devices);
    else
        usage(devices);
    free(devices);
    return 0;
}

static void slow(const Sluice__RecoRun *run, int64_t ms)
{
    int64_t until = clock_mono_ns() + ms * 1000000;
    Sluice__RecoStage stage = SLUICE__RECO_STAGE__INIT;

    stage.stage = (char *)"decode";
    while (clock_mono_ns() < until) {
        int64_t step = clock_mono_ns() + 50000000;
        send_message(0, &stage.base, NULL, 0);
        if (wire_poll(&wire, step < until ? step : until)) {
            say_failed(run, "Cancelled");
            return;
        }
    }
    say_done(run, "copy");
}

/* What a workflow asks for now. */
static const char *resolve(const char *how)
{
    static char text[256];
    FILE *f = strncmp(how, "as:", 3) == 0 ? fopen(how + 3, "r") : NULL;

    if (strncmp(how, "as:", 3) != 0)
        return how;
    if (f == NULL || fgets(text, sizeof text, f) == NULL)
        snprintf(text, sizeof text, "copy");
    if (f != NULL)
        fclose(f);
    text[strcspn(text, "\n")] = '\0';
    return text;
}

static void run_tf(const Sluice__RecoRun *run)
{
    const char *how = resolve(workflow[run->workflow_id]), *arg = strchr(how, ':') ? strchr(how, ':') + 1 : "";
    Sluice__RecoStage stage = SLUICE__RECO_STAGE__INIT;

    stage.stage = (char *)"decode";
    send_message(0, &stage.base, NULL, 0);
    if (strncmp(how, "slow:", 5) == 0) {
        slow(run, atoi(arg));
    } else if (strncmp(how, "exit:", 5) == 0) {
        exit(atoi(arg));
    } else if (strncmp(how, "crash-once:", 11) == 0) {
        int fd = open(arg, O_CREAT | O_EXCL | O_WRONLY, 0600);
        if (fd >= 0)
            crash();
        say_done(run, "copy");
    } else if (strcmp(how, "crash") == 0) {
        crash();
    } else if (strcmp(how, "bad") == 0) {
        say_failed(run, "BadInput");
    } else if (strcmp(how, "hang") == 0) {
        hang();
    } else if (strcmp(how, "deaf") == 0) {
        signal(SIGTERM, SIG_IGN);
        hang();
    } else if (strncmp(how, "stall:", 6) == 0) {
        signal(SIGTERM, SIG_IGN);
        if (open(arg, O_RDONLY | O_CLOEXEC) < 0)
            exit(9);
        hang();
    } else if (strncmp(how, "brood:", 6) == 0) {
        brood(arg);
        hang();
    } else if (strncmp(how, "double:", 7) == 0 || strncmp(how, "wiped:", 6) == 0) {
        brood_twice(arg, how[0] == 'w');
        hang();
    } else if (strcmp(how, "garbage") == 0) {
        if (write(wire.fd, "this is no message of ours", 26) != 26)
            exit(9);
        hang();
    } else {
        if (strcmp(how, "chatty") == 0) {
            for (int i = 0; i < 1000000; i++)
                fprintf(stderr, "line %d of many\n", i);
        }
        say_done(run, how);
    }
}

static void set_up(uint32_t id, const Sluice__RecoWorkflow *m)
{
    Sluice__Ok ok = SLUICE__OK__INIT;
    Sluice__Error no = SLUICE__ERROR__INIT;

    if (strcmp(m->workflow, "refuse") == 0) {
        no.text = (char *)"stage decode: backend moon is not known";
        no.word = (char *)"BackendUnavailable";
        send_message(id, &no.base, NULL, 0);
        return;
    }
    free(workflow[m->id]);
    const char *does = getenv("FAKE_RECO_DOES");             /* for those who can ask for real workflows only */
    workflow[m->id] = mem_strdup(does ? does : m->workflow);
    send_message(id, &ok.base, NULL, 0);
}

static void map_buffer(const struct wire_message *in)
{
    void *map = mmap(NULL, SHM_HEAD + ((const Sluice__RecoOpen *)in->m)->buffer_size, PROT_READ, MAP_SHARED, in->fds[0], 0);

    if (map == MAP_FAILED)
        die("map");
    data = (const uint8_t *)map + SHM_HEAD;
}

static void say_ready(void)
{
    Sluice__RecoReady ready = SLUICE__RECO_READY__INIT;
    Sluice__Device device = SLUICE__DEVICE__INIT;

    ready.software = (char *)"fake reco";
    device.has_numa_actual = 1;
    device.numa_actual = place_own_domain();
    ready.device = &device;
    send_message(0, &ready.base, NULL, 0);
}

int main(int argc, char **argv)
{
    struct wire_message in;

    gpus = getenv("FAKE_GPUS");
    if (argc > 1 && gpus != NULL && strcmp(argv[1], "attach") != 0)
        return query(argv[1]);
    if (getenv("FAKE_RECO_UNUSABLE") != NULL)
        return 3;
    if (wire_read(&wire, &in, &e) <= 0 || in.type != SLUICE__TYPE__RECO_OPEN || in.n_fds != 1)
        die("open");
    map_buffer(&in);
    serial = mem_strdup(((const Sluice__RecoOpen *)in.m)->device->serial);
    hold_memory();
    wire_free(&in);
    say_ready();
    int rc;
    while ((rc = wire_read(&wire, &in, &e)) > 0) {
        if (in.type == SLUICE__TYPE__RECO_OPEN) {
            map_buffer(&in);
            say_ready();
        } else if (in.type == SLUICE__TYPE__RECO_WORKFLOW)
            set_up(in.id, (const Sluice__RecoWorkflow *)in.m);
        else if (in.type == SLUICE__TYPE__RECO_RUN)
            run_tf((const Sluice__RecoRun *)in.m);
        wire_free(&in);
    }
    for (int i = 0; i < 8; i++)
        free(workflow[i]);
    free((char *)serial);
    return rc < 0 ? 9 : 0;
}
