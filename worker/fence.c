/* fence.c - which try at which TF
 *
 * From: link.c (messages), intake.c (Assigns).  To: -.
 * The hash keeps its elements in the order in which they were added, and a TF that is met again goes to the end: the first is
 * always the one met longest ago.
 */
#include "config.h"
#include "fence.h"

#include "mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <uthash.h>

struct seen {
    UT_hash_handle hh;
    struct tf_name name;
    struct fence   newest;
    bool           taken;
};

struct fences { struct seen *table; size_t limit; };

int fence_cmp(struct fence a, struct fence b)
{
    if (a.epoch != b.epoch)
        return a.epoch < b.epoch ? -1 : 1;
    return a.attempt < b.attempt ? -1 : a.attempt > b.attempt;
}

int tf_name_from(const Sluice__Tf *tf, struct tf_name *name)
{
    if (tf == NULL || !tf->has_id || (tf->run != 0) == (tf->job != 0))
        return -1;
    *name = (struct tf_name){ tf->run, tf->job, tf->id };
    return 0;
}

int fence_from(const Sluice__Fence *f, struct fence *fence)
{
    if (f == NULL || !f->has_epoch || !f->has_attempt)
        return -1;
    *fence = (struct fence){ f->epoch, f->attempt };
    return 0;
}

void tf_id_fill(struct tf_id *id, struct tf_name name, struct fence fence)
{
    sluice__tf__init(&id->tf);
    sluice__fence__init(&id->fence);
    id->tf.has_run = name.run != 0;
    id->tf.run = name.run;
    id->tf.has_job = name.job != 0;
    id->tf.job = name.job;
    id->tf.has_id = 1;
    id->tf.id = name.id;
    id->fence.has_epoch = 1;
    id->fence.epoch = fence.epoch;
    id->fence.has_attempt = 1;
    id->fence.attempt = (uint32_t)fence.attempt;
}

const char *tf_text(struct tf_name name, struct fence fence, char out[TF_TEXT])
{
    snprintf(out, TF_TEXT, "%s %" PRIu64 " tf %" PRIu64 " try %" PRIu64 ".%" PRIu64, name.run ? "run" : "job",
             name.run ? name.run : name.job, name.id, fence.epoch, fence.attempt);
    return out;
}

struct fences *fences_create(size_t limit)
{
    struct fences *f = mem_zalloc(sizeof *f);
    f->limit = limit;
    return f;
}

static void seen_remove(struct fences *f, struct seen *s)
{
    HASH_DEL(f->table, s);
    free(s);
}

void fences_destroy(struct fences *f)
{
    if (f == NULL)
        return;
    while (f->table != NULL)
        seen_remove(f, f->table);
    free(f);
}

int fences_meet(struct fences *f, struct tf_name name, struct fence fence)
{
    struct seen *s;

    HASH_FIND(hh, f->table, &name, sizeof name, s);
    if (s != NULL) {
        int cmp = fence_cmp(fence, s->newest);
        if (cmp < 0 || (cmp == 0 && s->taken))
            return cmp;
        HASH_DEL(f->table, s);
    } else {
        if (HASH_COUNT(f->table) >= f->limit)
            seen_remove(f, f->table);
        s = mem_zalloc(sizeof *s);
        s->name = name;
    }
    s->newest = fence;
    s->taken = false;
    HASH_ADD(hh, f->table, name, sizeof s->name, s);
    return 1;
}

void fences_taken(struct fences *f, struct tf_name name)
{
    struct seen *s;

    HASH_FIND(hh, f->table, &name, sizeof name, s);
    if (s != NULL)
        s->taken = true;
}

void fences_forget(struct fences *f, uint64_t run, uint64_t job)
{
    struct seen *s, *next;

    HASH_ITER(hh, f->table, s, next) {
        if (s->name.run == run && s->name.job == job)
            seen_remove(f, s);
    }
}

size_t fences_count(const struct fences *f)
{
    return HASH_COUNT(f->table);
}
