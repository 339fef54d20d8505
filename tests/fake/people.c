/* people.c - fake-people: clients that ask for all nodes and all jobs again and again
 *
 * From: sluiced (Nodes, Jobs, Error).  To: sluiced (GetNodes, GetJobs); one line of JSON to stdout at the end. Each asks `period` after its last question, answered or
 * not; with --heed one that was told to try again in so many ms does so.
 */
#include "config.h"

#include "clock.h"
#include "fake.h"
#include "file.h"
#include "mem.h"
#include "peer.h"
#include "str.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct {
    const char *server;
    unsigned count;
    double period, seconds;
    bool heed;
    int ready_fd;
} opt = { .count = 200, .period = 0.1, .ready_fd = -1 };

struct person { struct connector *link; ev_timer next; uint32_t id; bool waits, ready; int64_t asked; };

static struct ev_loop *loop;
static struct person *people;
static struct {
    uint64_t asked, answered, put_off, errors, lost;
    unsigned ready, retry_least, retry_most;
    double answer_most;                      /* ms */
    char last[300];
} all;

static void ask(struct person *p)
{
    Sluice__GetNodes nodes = SLUICE__GET_NODES__INIT;
    Sluice__GetJobs jobs = SLUICE__GET_JOBS__INIT;

    if (p->waits || connector_chan(p->link) == NULL)
        return;
    p->id++;
    p->waits = chan_send(connector_chan(p->link), p->id, p->id % 2 == 0 ? &nodes.base : &jobs.base) == 0;
    p->asked = clock_mono_ns();
    all.asked += p->waits;
}

static void again(struct person *p, double s)
{
    ev_timer_stop(loop, &p->next);
    ev_timer_set(&p->next, s, 0);
    ev_timer_start(loop, &p->next);
}

static void on_next(struct ev_loop *l, ev_timer *t, int events)
{
    struct person *p = t->data;

    (void)l, (void)events;
    ask(p);
    again(p, opt.period);
}

static void on_ready(void *arg, struct chan *c, const Sluice__Welcome *w, const Sluice__Ready *r)
{
    struct person *p = arg;

    (void)c, (void)w, (void)r;
    if (!p->ready && ++all.ready == opt.count && opt.ready_fd >= 0) {
        if (write(opt.ready_fd, "ready\n", 6) == 6)
            close(opt.ready_fd);
    }
    p->ready = true;
    again(p, opt.period * (double)(p - people) / opt.count);
}

static void on_message(void *arg, struct chan *c, unsigned type, uint32_t id, const ProtobufCMessage *m, int *fds, unsigned n_fds)
{
    struct person *p = arg;
    const Sluice__Error *e = (const Sluice__Error *)m;
    double ms = (double)(clock_mono_ns() - p->asked) / 1e6;

    (void)c, (void)fds, (void)n_fds;
    if (id != p->id)
        return;
    p->waits = false;
    all.answer_most = ms > all.answer_most ? ms : all.answer_most;
    if (type != SLUICE__TYPE__ERROR) {
        all.answered++;
        return;
    }
    snprintf(all.last, sizeof(all.last), "%s", e->text == NULL ? "" : e->text);
    if (e->retry_ms == 0) {
        all.errors++;
        return;
    }
    all.put_off++;
    all.retry_least = all.retry_least == 0 || e->retry_ms < all.retry_least ? e->retry_ms : all.retry_least;
    all.retry_most = e->retry_ms > all.retry_most ? e->retry_ms : all.retry_most;
    if (opt.heed)
        again(p, e->retry_ms / 1000.);
}

static void on_lost(void *arg, const struct err *why)
{
    struct person *p = arg;

    (void)why;
    p->waits = false;
    all.lost++;
}

static void on_over(struct ev_loop *l, ev_timer *t, int events)
{
    (void)t, (void)events;
    ev_break(l, EVBREAK_ALL);
}

static double real(const char *what, const char *text)
{
    struct err e;
    double v;

    if (str_parse_f64(what, text, 0.001, 1e6, &v, &e) < 0)
        fake_die(&e);
    return v;
}

static void parse(int argc, char **argv)
{
    static const struct option options[] = {
        { "server", 1, NULL, 's' }, { "count", 1, NULL, 'n' }, { "period", 1, NULL, 'p' }, { "seconds", 1, NULL, 'e' }, { "heed", 0, NULL, 'H' },
        { "ready-fd", 1, NULL, 'f' }, { "quiet", 0, NULL, 'q' }, { 0 },
    };
    int c;

    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (c) {
        case 's': opt.server = optarg; break;
        case 'n': opt.count = (unsigned)real("--count", optarg); break;
        case 'p': opt.period = real("--period", optarg); break;
        case 'e': opt.seconds = real("--seconds", optarg); break;
        case 'H': opt.heed = true; break;
        case 'f': opt.ready_fd = (int)real("--ready-fd", optarg); break;
        case 'q': break;
        default: exit(2);
        }
    }
    if (opt.server == NULL) {
        fputs("fake-people --server ADDRESS [--count N] [--period S] [--seconds S] [--heed] [--ready-fd N] [--quiet]: all nodes and all jobs, again and again\n", stderr);
        exit(2);
    }
}

int main(int argc, char **argv)
{
    ev_timer over;

    parse(argc, argv);
    fake_descriptors(opt.count + 64);
    loop = ev_loop_new(EVFLAG_AUTO);
    people = mem_array(opt.count, sizeof(*people));
    for (unsigned i = 0; i < opt.count; i++) {
        struct person *p = &people[i];
        struct err e;
        struct connector_conf conf = { .loop = loop, .address = opt.server, .role = SLUICE__ROLE__CLIENT, .name = "fake-people",
                                       .events = { .ready = on_ready, .message = on_message, .lost = on_lost }, .arg = p };

        *p = (struct person){ .id = 0 };
        ev_timer_init(&p->next, on_next, 0, 0);
        p->next.data = p;
        p->link = connector_create(&conf, &e);
        if (p->link == NULL)
            fake_die(&e);
    }
    ev_timer_init(&over, on_over, opt.seconds, 0);
    if (opt.seconds > 0)
        ev_timer_start(loop, &over);
    fake_run(loop);
    printf("{\"asked\": %llu, \"answered\": %llu, \"put_off\": %llu, \"errors\": %llu, \"lost\": %llu, \"retry_least\": %u, \"retry_most\": %u, \"answer_ms_most\": %.1f, "
           "\"last\": \"%s\"}\n", (unsigned long long)all.asked, (unsigned long long)all.answered, (unsigned long long)all.put_off, (unsigned long long)all.errors,
           (unsigned long long)all.lost, all.retry_least, all.retry_most, all.answer_most, all.last);
    for (unsigned i = 0; i < opt.count; i++) {
        ev_timer_stop(loop, &people[i].next);
        connector_destroy(people[i].link);
    }
    free(people);
    ev_loop_destroy(loop);
    return 0;
}
