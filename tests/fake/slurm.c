/* slurm.c - fake-slurm: a helper that says what a test wants Slurm to say, and the command by which the test says it
 *
 * From: sluiced, in place of sluice-slurm (arguments poll, act); tests (every other argument).  To: the folder FAKE_SLURM, which holds the made-up cluster.
 *   world.json   nodes, reservations, jobs, leases, the commands that came, when this slurmctld was started
 *   how.poll, how.act, how.lease   how the next questions are answered: "ok", "silent", "garbage", "other" (an answer about another node), "late" (done, and never answered),
 *                       "exit TEXT" or "error WORD TEXT", with a number before it only so many of them; how.lease: those that ask for a lease
 * The cluster behaves as Slurm was seen to behave (doc/slurm.md): one place for a reason, a reason kept by a drain without one, an undrain that erases it.
 */
#include "config.h"

#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "file.h"
#include "hostlist.h"
#include "mem.h"
#include "slurm_serve.h"
#include "str.h"

enum { FAR_S = 365 * 86400 };

/* ---- the world ---- */

static const char *folder(void)
{
    const char *dir = getenv("FAKE_SLURM");

    if (dir == NULL) {
        fprintf(stderr, "fake-slurm: FAKE_SLURM names no folder\n");
        exit(2);
    }
    return dir;
}

static char *path_of(const char *name)
{
    return mem_printf("%s/%s", folder(), name);
}

static int lock(void)
{
    char *path = path_of("lock");
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);

    free(path);
    if (fd < 0 || flock(fd, LOCK_EX) < 0) {
        perror("fake-slurm: lock");
        exit(1);
    }
    return fd;
}

static json_t *world_read(void)
{
    char *path = path_of("world.json");
    json_t *w = json_load_file(path, 0, NULL);

    free(path);
    return w != NULL ? w : json_pack("{s:i,s:{},s:{},s:{},s:{},s:[]}", "boot", 1, "nodes", "reservations", "jobs", "leases", "acts");
}

static void world_write(json_t *w)
{
    char *path = path_of("world.json"), *text;
    struct err e;

    json_object_set_new(w, "writes", json_integer(json_integer_value(json_object_get(w, "writes")) + 1));
    text = json_dumps(w, JSON_INDENT(1) | JSON_SORT_KEYS);
    if (file_replace(path, text, strlen(text), 0666, &e) < 0) {
        fprintf(stderr, "fake-slurm: %s\n", e.text);
        exit(1);
    }
    free(text);
    free(path);
}

static const char *text(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));

    return s == NULL ? "" : s;
}

static bool has(const json_t *node, const char *word)
{
    const char *p = text(node, "state");
    size_t n = strlen(word);

    for (; *p != '\0'; p += strcspn(p, "+"), p += *p == '+') {
        if (strncmp(p, word, n) == 0 && (p[n] == '+' || p[n] == '\0'))
            return true;
    }
    return false;
}

static void word_off(json_t *node, const char *word)
{
    char *copy = mem_strdup(text(node, "state")), *rest = copy, *one;
    struct str s = { 0 };

    while ((one = strsep(&rest, "+")) != NULL) {
        if (strcmp(one, word) != 0)
            str_addf(&s, "%s%s", s.len > 0 ? "+" : "", one);
    }
    json_object_set_new(node, "state", json_string(str_text(&s)));
    str_free(&s);
    free(copy);
}

static void word_on(json_t *node, const char *word)
{
    if (!has(node, word))
        json_object_set_new(node, "state", json_sprintf("%s+%s", text(node, "state"), word));
}

/* ---- what is answered ---- */

static void node_fill(Sluice__SlurmNode *n, const char *name, const json_t *o)
{
    sluice__slurm_node__init(n);
    n->name = mem_strdup(name);
    n->state = mem_strdup(text(o, "state"));
    n->has_unknown = n->has_down = n->has_drain = n->has_fail = n->has_invalid = n->has_no_respond = n->has_busy = true;
    n->unknown = has(o, "unknown");
    n->down = has(o, "down");
    n->drain = has(o, "drain");
    n->fail = has(o, "fail");
    n->invalid = has(o, "invalid");
    n->no_respond = has(o, "no_respond");
    n->busy = has(o, "mixed") || has(o, "allocated") || has(o, "completing");
    n->features = text(o, "features")[0] == '\0' ? NULL : mem_strdup(text(o, "features"));
    if (text(o, "reason")[0] == '\0')
        return;
    n->reason = mem_strdup(text(o, "reason"));
    n->reason_user = mem_strdup(text(o, "user"));
    n->has_reason_uid = n->has_reason_time = true;
    n->reason_uid = 1000;
    n->reason_time = 1700000000 * INT64_C(1000000000);
}

static Sluice__SlurmReservation *reservation_make(const char *name, const json_t *o)
{
    Sluice__SlurmReservation *r = mem_zalloc(sizeof(*r));
    json_t *nodes = json_object_get(o, "nodes"), *one;
    size_t i;

    sluice__slurm_reservation__init(r);
    r->name = mem_strdup(name);
    r->users = mem_strdup(text(o, "users"));
    r->has_maint = r->has_end = true;
    r->maint = json_is_true(json_object_get(o, "maint"));
    r->end = json_integer_value(json_object_get(o, "end"));
    r->has_ours = true;
    r->ours = json_array_size(nodes) == 1 && strcmp(r->users, "sluice") == 0 && !r->maint;
    r->nodes = mem_array(json_array_size(nodes) + 1, sizeof(*r->nodes));
    json_array_foreach(nodes, i, one)
        r->nodes[r->n_nodes++] = mem_strdup(json_string_value(one));
    return r;
}

static Sluice__SlurmLease *lease_make(const char *node, const json_t *o)
{
    Sluice__SlurmLease *l = mem_zalloc(sizeof(*l));

    sluice__slurm_lease__init(l);
    l->node = mem_strdup(node);
    l->has_job = l->has_running = l->has_end = true;
    l->job = (uint32_t)json_integer_value(json_object_get(o, "job"));
    l->running = strcmp(text(o, "state"), "running") == 0;
    l->end = l->running ? json_integer_value(json_object_get(o, "end")) : 0;
    l->why = l->running ? NULL : mem_strdup("Resources");
    return l;
}

/* Takes the next line of the file how.WHAT; the caller frees it. */
static char *how(const char *what)
{
    char *name = mem_printf("how.%s", what), *path = path_of(name), *line = file_read(path, 4096, &(size_t){ 0 }, NULL), *rest, *word;
    long left = line == NULL ? 0 : strtol(line, &rest, 10);
    struct err e;

    free(name);
    if (line == NULL) {
        free(path);
        return mem_strdup("ok");
    }
    line[strcspn(line, "\n")] = '\0';
    if (left == 0) {
        free(path);
        return line;
    }
    word = mem_strdup(rest + strspn(rest, " "));
    free(line);
    line = left > 1 ? mem_printf("%ld %s\n", left - 1, word) : mem_strdup("ok\n");
    if (file_replace(path, line, strlen(line), 0666, &e) < 0)
        exit(1);
    free(line);
    free(path);
    return word;
}

/* 0: answer as usual; 1: about another node; 2: do it, and do not answer. Does not come back for what is worse. */
static int behave(const char *what, struct err *e, const char **code)
{
    static const char garbage[] = "\x53\x4c\x01\x00\x00\x00\x5b\x00\xff\xff\xff\x7f\x01\x00\x00\x00 this is no frame";
    static char word[64];
    int held = lock(), rc = 0, at = 0;
    char *line = how(what);

    close(held);

    if (strncmp(line, "exit", 4) == 0) {
        fprintf(stderr, "fake-slurm: error: first\nfake-slurm: error: line 3\n\nfake-slurm: fatal: %s\n", line + 4 + (line[4] == ' '));
        exit(1);
    }
    if (strcmp(line, "silent") == 0)
        for (;;)
            pause();
    if (strcmp(line, "garbage") == 0) {
        if (write(0, garbage, sizeof(garbage)) < 0)
            exit(1);
        for (;;)
            pause();
    }
    if (sscanf(line, "error %63s %n", word, &at) >= 1 && at > 0) {
        *code = word;
        rc = err_set(e, ERR_UNREACHABLE, "%s", line + at);
    } else if (strcmp(line, "other") == 0) {
        rc = 1;
    } else if (strcmp(line, "late") == 0) {
        rc = 2;
    }
    free(line);
    return rc;
}

/* Something was, since this process was asked last. */
static bool has_changed(const json_t *w)
{
    static json_int_t seen = -1;
    json_int_t before = seen;

    seen = json_integer_value(json_object_get(w, "writes"));
    return seen != before;
}

static int poll_answer(const Sluice__SlurmPoll *q, Sluice__SlurmState *out, struct err *e, const char **code)
{
    struct hostlist *names = hostlist_parse(q->names == NULL ? "" : q->names, NULL, NULL, e);
    int rc = names == NULL ? -1 : behave("poll", e, code), held = lock();
    json_t *w = world_read(), *nodes = json_object_get(w, "nodes"), *all = json_object_get(w, "reservations"), *one;
    const char *key;

    if (rc == 0) {
        out->has_boot = out->has_nodes_known = out->has_reservations_known = true;
        out->boot = json_integer_value(json_object_get(w, "boot"));
        out->version = mem_strdup("fake");
        out->reservations_known = true;
        out->nodes_known = has_changed(w) || q->whole;
        out->nodes = mem_array(json_object_size(nodes) + 1, sizeof(*out->nodes));
        json_object_foreach(nodes, key, one) {
            if (!hostlist_has(names, key) || !out->nodes_known)
                continue;
            out->nodes[out->n_nodes] = mem_zalloc(sizeof(**out->nodes));
            node_fill(out->nodes[out->n_nodes++], key, one);
        }
        out->reservations = mem_array(json_object_size(all) + 1, sizeof(*out->reservations));
        json_object_foreach(all, key, one)
            out->reservations[out->n_reservations++] = reservation_make(key, one);
        out->has_leases_known = out->leases_known = q->leases;
        all = json_object_get(w, "leases");
        out->leases = mem_array(json_object_size(all) + 1, sizeof(*out->leases));
        json_object_foreach(all, key, one)
            out->leases[out->n_leases++] = lease_make(key, one);
    }
    json_decref(w);
    hostlist_destroy(names);
    close(held);
    return rc;
}

static bool is_told(const char *what)
{
    char *name = mem_printf("how.%s", what), *path = path_of(name);
    bool is = access(path, F_OK) == 0;

    free(name);
    free(path);
    return is;
}

/* ---- what is done ---- */

static const char *drain(json_t *w, json_t *node, const Sluice__SlurmDo *q, Sluice__SlurmDone *out)
{
    bool half = has(node, "drain") && text(node, "reason")[0] == '\0';
    size_t n = strlen(q->prefix);
    bool ours = strncmp(text(node, "reason"), q->prefix, n) == 0 && strncmp(text(node, "reason") + n, ": ", 2) == 0;

    (void)w;
    (void)out;
    if ((has(node, "drain") && !half && !ours) || has(node, "down") || has(node, "fail") || has(node, "unknown"))
        return "";
    word_on(node, "drain");
    if (text(node, "reason")[0] == '\0' || ours) {
        json_object_set_new(node, "reason", json_string(q->reason));
        json_object_set_new(node, "user", json_string("sluice"));
    }
    return "drained";
}

static const char *undrain(json_t *w, json_t *node, const Sluice__SlurmDo *q, Sluice__SlurmDone *out)
{
    size_t n = strlen(q->prefix);

    (void)w;
    (void)out;
    if (!has(node, "drain") || has(node, "down") || has(node, "fail") || (text(node, "reason")[0] != '\0' && strncmp(text(node, "reason"), q->prefix, n) != 0))
        return "";
    word_off(node, "drain");
    json_object_set_new(node, "reason", json_string(""));
    return "drain taken back";
}

static const char *reserve(json_t *w, json_t *node, const Sluice__SlurmDo *q, Sluice__SlurmDone *out)
{
    json_t *all = json_object_get(w, "reservations");

    (void)node;
    if (json_object_get(all, q->reservation) != NULL && strcmp(text(json_object_get(all, q->reservation), "users"), "sluice") != 0)
        return NULL;
    json_object_set_new(all, q->reservation,
                        json_pack("{s:[s],s:s,s:b,s:I}", "nodes", q->node, "users", "sluice", "maint", 0, "end", (json_int_t)(time(NULL) + FAR_S) * 1000000000));
    out->reservation = reservation_make(q->reservation, json_object_get(all, q->reservation));
    return "reserved";
}

static const char *release(json_t *w, json_t *node, const Sluice__SlurmDo *q, Sluice__SlurmDone *out)
{
    (void)node;
    (void)out;
    json_object_del(json_object_get(w, "reservations"), q->reservation);
    return "released";
}

/* The first time jobs are requeued or ended, and the node is completing; the next time it is idle, and they may start elsewhere. */
static const char *clear_out(json_t *w, json_t *node, const Sluice__SlurmDo *q, Sluice__SlurmDone *out)
{
    json_t *jobs = json_object_get(w, "jobs"), *job;
    const char *id;
    void *next;

    out->jobs = mem_array(json_object_size(jobs) + 1, sizeof(*out->jobs));
    word_off(node, "completing");
    for (size_t i = 0; i < q->n_jobs; i++)
        json_object_set_new(json_object_get(jobs, q->jobs[i]), "begin", json_string("now"));
    json_object_foreach_safe(jobs, next, id, job) {
        if (strcmp(text(job, "node"), q->node) != 0 || strcmp(text(job, "state"), "running") != 0)
            continue;
        json_object_set_new(node, "state", json_string(has(node, "drain") ? "idle+drain+completing" : "idle+completing"));
        if (!json_is_true(json_object_get(job, "requeue"))) {
            json_object_del(jobs, id);
            continue;
        }
        json_object_set_new(job, "state", json_string("pending"));
        json_object_set_new(job, "begin", json_string("later"));
        out->jobs[out->n_jobs++] = mem_strdup(id);
    }
    return "jobs requeued or ended";
}

/* It runs at once where the node is idle. */
static const char *lease(json_t *w, json_t *node, const Sluice__SlurmDo *q, Sluice__SlurmDone *out)
{
    json_t *all = json_object_get(w, "leases");
    bool runs = strcmp(text(node, "state"), "idle") == 0;

    if (json_object_get(all, q->node) == NULL) {
        json_object_set_new(all, q->node, json_pack("{s:i,s:s,s:I,s:s,s:s,s:s}", "job", 77, "state", runs ? "running" : "pending", "end",
                                                    (json_int_t)(time(NULL) + q->minutes * 60) * 1000000000, "comment", q->comment, "constraint",
                                                    q->constraint == NULL ? "" : q->constraint, "account", q->account == NULL ? "" : q->account));
        if (runs)
            json_object_set_new(node, "state", json_string("allocated"));
    }
    out->lease = lease_make(q->node, json_object_get(all, q->node));
    return "lease asked for";
}

static const char *unlease(json_t *w, json_t *node, const Sluice__SlurmDo *q, Sluice__SlurmDone *out)
{
    (void)out;
    if (json_object_del(json_object_get(w, "leases"), q->node) == 0 && strcmp(text(node, "state"), "allocated") == 0)
        json_object_set_new(node, "state", json_string("idle"));
    return "lease given back";
}

static const char *look(json_t *w, json_t *node, const Sluice__SlurmDo *q, Sluice__SlurmDone *out)
{
    (void)w;
    (void)node;
    (void)q;
    (void)out;
    return "";
}

static const struct { const char *name; const char *(*fn)(json_t *w, json_t *node, const Sluice__SlurmDo *q, Sluice__SlurmDone *out); } acts[] = {
    [SLUICE__SLURM_ACT__ACT_LOOK] = { "look", look },          [SLUICE__SLURM_ACT__ACT_DRAIN] = { "drain", drain },
    [SLUICE__SLURM_ACT__ACT_UNDRAIN] = { "undrain", undrain }, [SLUICE__SLURM_ACT__ACT_RESERVE] = { "reserve", reserve },
    [SLUICE__SLURM_ACT__ACT_RELEASE] = { "release", release }, [SLUICE__SLURM_ACT__ACT_CLEAR_OUT] = { "clear-out", clear_out },
    [SLUICE__SLURM_ACT__ACT_LEASE] = { "lease", lease },   [SLUICE__SLURM_ACT__ACT_UNLEASE] = { "unlease", unlease },
};

static int act_answer(const Sluice__SlurmDo *q, Sluice__SlurmDone *out, struct err *e, const char **code)
{
    int rc = behave(q->act == SLUICE__SLURM_ACT__ACT_LEASE && is_told("lease") ? "lease" : "act", e, code), held = lock();
    json_t *w = world_read(), *node = json_object_get(json_object_get(w, "nodes"), q->node);

    if (rc >= 0 && node == NULL) {
        *code = "UnknownNode";
        rc = err_set(e, ERR_NOT_FOUND, "node %s: Invalid node name specified", q->node);
    }
    if (rc >= 0) {
        json_array_append_new(json_object_get(w, "acts"), json_sprintf("%s %s", acts[q->act].name, q->node));
        out->text = mem_strdup(acts[q->act].fn(w, node, q, out));
        if (out->text == NULL) {
            *code = "SlurmRefused";
            rc = err_set(e, ERR_STATE, "reservation %s is not ours", q->reservation);
        }
        out->node = mem_zalloc(sizeof(*out->node));
        node_fill(out->node, rc == 1 ? "nobody" : q->node, node);
        world_write(w);
    }
    json_decref(w);
    close(held);
    while (rc == 2)
        pause();
    return rc < 0 ? -1 : 0;
}

/* ---- the test's word ---- */

static void say_node(json_t *w, int argc, char **argv)
{
    json_t *node = json_pack("{s:s,s:s,s:s,s:s}", "state", argc > 1 ? argv[1] : "idle", "reason", argc > 2 ? argv[2] : "", "user", argc > 3 ? argv[3] : "root", "features",
                             argc > 4 ? argv[4] : "");

    if (argc > 1 && strcmp(argv[1], "-") == 0) {
        json_object_del(json_object_get(w, "nodes"), argv[0]);
        json_decref(node);
    } else {
        json_object_set_new(json_object_get(w, "nodes"), argv[0], node);
    }
}

static void say_reservation(json_t *w, int argc, char **argv)
{
    json_t *all = json_object_get(w, "reservations");

    if (argc < 2)
        json_object_del(all, argv[0]);
    else
        json_object_set_new(all, argv[0], json_pack("{s:[s],s:s,s:b,s:I}", "nodes", argv[1], "users", argc > 2 ? argv[2] : "root", "maint", argc > 3, "end",
                                                    (json_int_t)(time(NULL) + FAR_S) * 1000000000));
}

static void say_job(json_t *w, int argc, char **argv)
{
    json_t *node = json_object_get(json_object_get(w, "nodes"), argc > 1 ? argv[1] : "");

    json_object_set_new(json_object_get(w, "jobs"), argv[0],
                        json_pack("{s:s,s:s,s:b}", "node", argc > 1 ? argv[1] : "", "state", "running", "requeue", argc < 3));
    if (node != NULL)
        json_object_set_new(node, "state", json_string("mixed"));
}

/* The lease of a node: how long it has, or gone. */
static void say_lease(json_t *w, int argc, char **argv)
{
    json_t *all = json_object_get(w, "leases"), *node = json_object_get(json_object_get(w, "nodes"), argv[0]);

    json_object_del(all, argv[0]);
    if (argc > 1)
        json_object_set_new(all, argv[0], json_pack("{s:i,s:s,s:I}", "job", 78, "state", "running", "end", (json_int_t)(time(NULL) + atoi(argv[1])) * 1000000000));
    json_object_set_new(node, "state", json_string(argc > 1 ? "allocated" : "idle"));
}

static void say_boot(json_t *w, int argc, char **argv)
{
    (void)argc;
    json_object_set_new(w, "boot", json_integer(atoi(argv[0])));
}

static void say_how(json_t *w, int argc, char **argv)
{
    char *name = mem_printf("how.%s", argv[0]), *path = path_of(name), *line = mem_printf("%s\n", argc > 1 ? argv[1] : "ok");
    struct err e;

    (void)w;
    if (file_replace(path, line, strlen(line), 0666, &e) < 0)
        exit(1);
    free(line);
    free(path);
    free(name);
}

static const struct { const char *word; void (*fn)(json_t *w, int argc, char **argv); } words[] = {
    { "node", say_node },        /* NAME STATE [REASON [USER [FEATURES]]], STATE "-": gone */
    { "reservation", say_reservation },      /* NAME [NODE [USERS [maint]]] */
    { "job", say_job },          /* ID NODE [no-requeue] */
    { "lease", say_lease },      /* NODE [SECONDS] */
    { "boot", say_boot },        /* NUMBER */
    { "how", say_how },          /* poll|act|lease [LINE] */
};

static int say(int argc, char **argv)
{
    int held = lock();
    json_t *w = world_read();
    int rc = 2;

    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        if (argc < 2 || strcmp(words[i].word, argv[0]) != 0)
            continue;
        words[i].fn(w, argc - 1, argv + 1);
        world_write(w);
        rc = 0;
    }
    json_decref(w);
    close(held);
    if (rc != 0)
        fprintf(stderr, "fake-slurm: node, reservation, job, boot or how, with what they want\n");
    return rc;
}

int main(int argc, char **argv)
{
    static const struct slurm_backend backend = { poll_answer, act_answer };
    struct err e;

    if (argc != 2 || (strcmp(argv[1], "poll") != 0 && strcmp(argv[1], "act") != 0))
        return say(argc - 1, argv + 1);
    if (slurm_serve(0, &backend, &e) == 0)
        return 0;
    fprintf(stderr, "fake-slurm: %s\n", e.text);
    return 1;
}
