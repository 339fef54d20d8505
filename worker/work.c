/* work.c - a run or a job as RunOpen told of it
 *
 * From: link.c.  To: intake.c, pull.c, device.c, deliver.c.
 */
#include "config.h"
#include "work.h"

#include "conf.h"
#include "mem.h"
#include "str.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct work *works_find(struct works *s, uint64_t run, uint64_t job)
{
    struct work *w;
    struct { uint64_t run, job; } key = { run, job };
    HASH_FIND(hh, s->table, &key, sizeof key, w);
    return w;
}

static void work_free(struct works *s, struct work *w)
{
    HASH_DEL(s->table, w);
    free(w->name);
    free(w->owner);
    free(w->workflow);
    free(w->backends);
    free(w->options);
    free(w->recipe);
    free(w->output);
    memset(w->secret, 0, sizeof w->secret);
    free(w);
}

static int open_check(const Sluice__RunOpen *m, struct err *e)
{
    if ((m->run != 0) == (m->job != 0))
        return err_set(e, ERR_PROTOCOL, "RunOpen: either a run or a job wanted");
    if (m->workflow == NULL || m->workflow[0] == '\0')
        return err_set(e, ERR_PROTOCOL, "RunOpen: a workflow wanted");
    if (m->has_key && m->key.len != RUNKEY_SIZE)
        return err_set(e, ERR_PROTOCOL, "RunOpen: a key of %d bytes wanted, %zu found", RUNKEY_SIZE, m->key.len);
    if (m->output != NULL && m->output[0] != '\0' && m->output[0] != '/')
        return err_set(e, ERR_PROTOCOL, "RunOpen: output \"%s\": an absolute path wanted", m->output);
    return 0;
}

static void put(char **field, const char *text)
{
    free(*field);
    *field = mem_strdup(text ? text : "");
}

static double limit(bool has, double s, double otherwise)
{
    return has && isfinite(s) && s > 0 ? s : otherwise;
}

struct work *works_open(struct works *s, const Sluice__RunOpen *m, const struct conf_limits *limits, struct err *e)
{
    if (open_check(m, e) < 0)
        return NULL;

    struct work *w = works_find(s, m->run, m->job);
    if (w == NULL) {
        w = mem_zalloc(sizeof *w);
        w->key.run = m->run;
        w->key.job = m->job;
        HASH_ADD(hh, s->table, key, sizeof w->key, w);
    }
    w->closed = false;
    put(&w->name, m->name);
    put(&w->owner, m->owner);
    put(&w->workflow, m->workflow);
    put(&w->backends, m->backends);
    put(&w->options, m->options);
    put(&w->output, m->output);
    free(w->recipe);
    w->recipe = mem_printf("%s\n%s\n%s", w->workflow, w->backends, w->options);
    w->has_key = m->has_key;
    if (m->has_key)
        memcpy(w->secret, m->key.data, sizeof w->secret);
    w->pull_timeout = limit(m->has_pull_timeout, m->pull_timeout, limits->pull_timeout);
    w->process_timeout = limit(m->has_process_timeout, m->process_timeout, limits->process_timeout);
    w->deliver_timeout = limit(m->has_deliver_timeout, m->deliver_timeout, limits->deliver_timeout);
    w->time_limit = limit(m->has_time_limit, m->time_limit, 0);
    w->has_owner = m->has_uid && m->has_gid;
    w->uid = m->uid;
    w->gid = m->gid;
    w->has_nice = m->has_nice && m->nice >= -20 && m->nice <= 19;
    w->nice = m->nice;
    return w;
}

void works_close(struct works *s, struct work *w)
{
    w->closed = true;
    if (w->users == 0)
        work_free(s, w);
}

void works_lapse(struct works *s)
{
    struct work *w, *next;

    HASH_ITER(hh, s->table, w, next)
        works_close(s, w);
}

void works_free(struct works *s)
{
    while (s->table != NULL)
        work_free(s, s->table);
}

struct work *work_use(struct work *w)
{
    w->users++;
    return w;
}

void work_unuse(struct works *s, struct work *w)
{
    if (w != NULL && --w->users == 0 && w->closed)
        work_free(s, w);
}
