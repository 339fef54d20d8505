/* times.c - how long TFs take, by recipe
 *
 * From: device_talk.c (a TF is done).  To: device.c (is this one overdue?).
 */
#include "config.h"
#include "times.h"

#include "mem.h"

#include <stdlib.h>
#include <string.h>

struct recipe {
    char    *name;
    double   seconds[TIMES_KEPT], rate[TIMES_KEPT];      /* s; s per byte */
    unsigned n, next;
    uint64_t used;
};

struct times { struct recipe recipe[TIMES_RECIPES]; uint64_t turn; };

struct times *times_create(void)
{
    return mem_zalloc(sizeof(struct times));
}

void times_destroy(struct times *t)
{
    for (unsigned i = 0; t != NULL && i < TIMES_RECIPES; i++)
        free(t->recipe[i].name);
    free(t);
}

static const struct recipe *find(const struct times *t, const char *name)
{
    for (unsigned i = 0; i < TIMES_RECIPES; i++) {
        if (t->recipe[i].name != NULL && strcmp(t->recipe[i].name, name) == 0)
            return &t->recipe[i];
    }
    return NULL;
}

/* The place of the one that was used longest ago; a free one was never used. */
static struct recipe *make(struct times *t, const char *name)
{
    struct recipe *r = &t->recipe[0];

    for (unsigned i = 1; i < TIMES_RECIPES; i++) {
        if (t->recipe[i].used < r->used)
            r = &t->recipe[i];
    }
    free(r->name);
    *r = (struct recipe){ .name = mem_strdup(name) };
    return r;
}

void times_add(struct times *t, const char *recipe, uint64_t bytes, double seconds)
{
    struct recipe *r = (struct recipe *)find(t, recipe);

    if (r == NULL)
        r = make(t, recipe);
    r->seconds[r->next] = seconds;
    r->rate[r->next] = seconds / (double)(bytes > 0 ? bytes : 1);
    r->next = (r->next + 1) % TIMES_KEPT;
    r->n += r->n < TIMES_KEPT;
    r->used = ++t->turn;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Of an even number the greater of the middle two: late is better than wrong. */
static double median(const double *v, unsigned n)
{
    double sorted[TIMES_KEPT];

    memcpy(sorted, v, n * sizeof *v);
    qsort(sorted, n, sizeof *sorted, by_size);
    return sorted[n / 2];
}

double times_usual(const struct times *t, const char *recipe, uint64_t bytes)
{
    const struct recipe *r = find(t, recipe);

    if (r == NULL || r->n < TIMES_ENOUGH)
        return 0;
    double seconds = median(r->seconds, r->n), by_bytes = median(r->rate, r->n) * (double)bytes;
    return seconds > by_bytes ? seconds : by_bytes;
}
