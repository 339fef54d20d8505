/* worker_show.c - fake-worker: what it counted, as one line of JSON */
#include "config.h"

#include "worker.h"
#include "str.h"

#include <stdio.h>
#include <string.h>

static void show_worker(const struct worker *w, bool last)
{
    unsigned held = 0;
    const struct held *h;

    TAILQ_FOREACH(h, &w->helds, link)
        held++;
    printf("{\"node\": \"%s\", \"seconds_per_tf\": %g, \"connections\": %llu, \"tries\": %llu, \"assigned\": %llu, \"refused\": %llu, \"stale\": %llu, "
           "\"built\": %llu, \"done\": %llu, \"failed\": %llu, \"accepted\": %llu, \"not_accepted\": %llu, \"cancelled\": %llu, \"forgotten\": %llu, "
           "\"held\": %u, \"most_held\": %u, \"most_fill\": %.4f}%s",
           w->name, w->seconds, (unsigned long long)w->connections, (unsigned long long)w->tries, (unsigned long long)w->assigned,
           (unsigned long long)w->refused, (unsigned long long)w->stale, (unsigned long long)w->built, (unsigned long long)w->done,
           (unsigned long long)w->failed, (unsigned long long)w->accepted, (unsigned long long)w->not_accepted,
           (unsigned long long)w->cancelled, (unsigned long long)w->forgotten, held, w->most,
           (double)w->most_used / (double)w->buffer, last ? "" : ", ");
}

uint64_t total(size_t field)
{
    uint64_t sum = 0;

    for (unsigned i = 0; i < opt.count; i++)
        sum += *(const uint64_t *)((const char *)&workers[i] + field);
    return sum;
}

static unsigned count_held(void)
{
    unsigned n = 0;
    const struct held *h;

    for (unsigned i = 0; i < opt.count; i++)
        TAILQ_FOREACH(h, &workers[i].helds, link)
            n++;
    return n;
}

#define TOTAL(field) (unsigned long long)total(offsetof(struct worker, field))

void show(void)
{
    struct str why = { 0 };

    printf("{\"workers\": %u, \"seconds\": %.3f, \"assigned\": %llu, \"refused\": %llu, \"stale\": %llu, \"built\": %llu, \"done\": %llu, \"failed\": %llu, "
           "\"accepted\": %llu, \"not_accepted\": %llu, \"cancelled\": %llu, \"forgotten\": %llu, \"pulled\": %llu, \"pull_failed\": %llu, \"held\": %u, \"tfs\": %u, \"doubles\": %llu, \"accepted_twice\": %llu, \"corrupted\": %llu, ",
           opt.count, now_s(), TOTAL(assigned), TOTAL(refused), TOTAL(stale), TOTAL(built), TOTAL(done), TOTAL(failed), TOTAL(accepted),
           TOTAL(not_accepted), TOTAL(cancelled), TOTAL(forgotten), TOTAL(pulled), TOTAL(pull_failed), count_held(), seen_count(), (unsigned long long)all.doubles,
           (unsigned long long)all.accepted_twice, (unsigned long long)all.corrupted);
    printf("\"registered\": %u, \"most_registered\": %u, \"full_strength_s\": %.3f, \"losses\": %llu, \"back_s\": %.3f, \"most_tries_a_second\": %u, "
           "\"clock_offset_min\": %.3f, \"clock_offset_max\": %.3f, \"last_lost\": \"",
           all.registered, all.most_registered, all.full_strength_s, (unsigned long long)all.losses, all.back_s, all.most_bin, all.offset_min, all.offset_max);
    str_escape(&why, all.last_lost, strlen(all.last_lost));
    for (const char *p = str_text(&why); *p; p++)
        printf(*p == '"' || *p == '\\' ? "\\%c" : "%c", *p);
    str_free(&why);
    printf("\", \"tries\": [");
    for (unsigned i = 0, n = (unsigned)(all.lost_s > 0 ? now_s() - all.lost_s : 0) + 1; i < n && i < BINS; i++)
        printf("%s%u", i ? ", " : "", all.bins[i]);
    printf("], \"nodes\": [");
    for (unsigned i = 0; i < opt.count; i++)
        show_worker(&workers[i], i + 1 == opt.count);
    printf("]}\n");
    fflush(stdout);
}
