/* counters.c - named numbers that only grow
 *
 * From: every module that refuses, drops or survives something.  To: show.c (status), metrics.c.
 * Names are literals, so the set is bounded by the source.
 */
#include "config.h"

#include "counters.h"

#include <string.h>

#include <uthash.h>

#include "mem.h"

struct counter {
    UT_hash_handle hh;
    char name[48];
    uint64_t value;
};

struct counters {
    struct counter *by_name;
};

struct counters *counters_create(void)
{
    return mem_zalloc(sizeof(struct counters));
}

void counters_destroy(struct counters *c)
{
    struct counter *each, *next;

    if (c == NULL)
        return;
    HASH_ITER(hh, c->by_name, each, next) {
        HASH_DEL(c->by_name, each);
        free(each);
    }
    free(c);
}

static int by_name(struct counter *a, struct counter *b)
{
    return strcmp(a->name, b->name);
}

static struct counter *find(const struct counters *c, const char *name)
{
    struct counter *found;

    HASH_FIND_STR(c->by_name, name, found);
    return found;
}

void counters_add(struct counters *c, const char *name, uint64_t n)
{
    struct counter *it = find(c, name);

    if (it == NULL) {
        it = mem_zalloc(sizeof(*it));
        strncpy(it->name, name, sizeof(it->name) - 1);
        HASH_ADD_STR(c->by_name, name, it);
        HASH_SRT(hh, c->by_name, by_name);
    }
    it->value += n;
}

uint64_t counters_get(const struct counters *c, const char *name)
{
    const struct counter *it = find(c, name);

    return it == NULL ? 0 : it->value;
}

void counters_each(const struct counters *c, void (*fn)(void *arg, const char *name, uint64_t value), void *arg)
{
    for (const struct counter *it = c->by_name; it != NULL; it = it->hh.next)
        fn(arg, it->name, it->value);
}
