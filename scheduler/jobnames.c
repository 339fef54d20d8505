/* jobnames.c - names of the results of a job's files: given once, and held against those of other jobs in the same folder
 *
 * From: jobsubmit.c (a new job), task.c (one that is read again).  To: the asker, in the loop.
 * A job of a million files, or one beside others, is looked at by a thread, which has the files in its own hands meanwhile and reads the others' from the
 * database. Always: two jobs that are on do not deliver under the same name. What other programs, runs and former jobs left in the folder the worker sees:
 * for the first names before the job is accepted (outcheck.c), for all of them before a result is written (worker/outfile.c).
 */
#include "config.h"
#include "job.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>
#include "helper.h"
#include "mem.h"

enum { FILES_AT_ONCE = 2000 };           /* named in the loop: a millisecond or two */

enum { STEM_MOST = 180, STEM_KEPT = 160 };       /* bytes; of a longer one so many, and what tells it from all others that begin alike */

/* Takes it; cut between two characters. */
static char *stem_shortened(char *stem)
{
    uint64_t whole = XXH3_64bits(stem, strlen(stem));
    size_t n = STEM_KEPT;

    while (n > 0 && ((unsigned char)stem[n] & 0xc0) == 0x80)
        n--;
    char *shorter = mem_printf("%.*s-%016" PRIx64, (int)n, stem, whole);
    free(stem);
    return shorter;
}

/* The name of a file without its folder and a trailing ".tf", safe as a part of a file's name. */
static char *stem_of(const char *path)
{
    const char *name = strrchr(path, '/');
    char *stem = mem_strdup(name ? name + 1 : path);
    size_t n = strlen(stem);

    if (n > 3 && strcmp(stem + n - 3, ".tf") == 0)
        stem[n -= 3] = '\0';
    if (n > STEM_MOST)
        stem = stem_shortened(stem);
    if (stem[0] == '\0' || stem[0] == '.')
        stem[0] = '_';
    if (stem[0] == '_' && n == 0) {
        free(stem);
        return mem_strdup("_");
    }
    return stem;
}

struct stem { UT_hash_handle hh; char *text; unsigned next; };

static struct stem *stem_find(struct stem *all, const char *text)
{
    struct stem *s;

    HASH_FIND_STR(all, text, s);
    return s;
}

static struct stem *stem_add(struct stem **all, const char *text)
{
    struct stem *s = mem_zalloc(sizeof(*s));

    s->text = mem_strdup(text);
    s->next = 2;
    HASH_ADD_KEYPTR(hh, *all, s->text, strlen(s->text), s);
    return s;
}

static void stems_free(struct stem *all)
{
    struct stem *s, *next;

    HASH_ITER(hh, all, s, next) {
        HASH_DEL(all, s);
        free(s->text);
        free(s);
    }
}

/* In the order of the files, so that a restart gives the same names. All of them come back. */
static struct stem *stems_give(struct job *j)
{
    struct stem *all = NULL, *s;

    for (size_t i = 0; i < j->n_files; i++) {
        char *wish = stem_of(j->file[i].path);
        if (j->file[i].tfs == 0) {
            j->file[i].stem = wish;
            continue;
        }
        while ((s = stem_find(all, wish))) {
            char *base = mem_strdup(s->text);
            free(wish);
            wish = mem_printf("%s~%u", base, s->next++);
            free(base);
        }
        stem_add(&all, wish);
        j->file[i].stem = wish;
    }
    return all;
}

void task_stems(struct job *j)
{
    stems_free(stems_give(j));
}

char *task_stem_of(const struct job *j, uint64_t number)
{
    const struct job_file *f = job_file_of(j, number);
    char rerun[24] = "";

    if (j->reruns > 0)
        snprintf(rerun, sizeof(rerun), "rerun-%u/", j->reruns);
    return mem_printf("%s%s.%" PRIu64, rerun, f->stem, number - f->first_task);
}


/* ---- a new job ----------------------------------------------------------------------------- */

struct naming {
    struct job *job;                     /* for the loop */
    char  *dir;
    uint64_t *other;                     /* jobs that deliver into the same folder */
    size_t n_other;
    struct jobs words;                   /* of the thread's: none are read */
    struct job mine;                     /* its files, while the thread has them */
    int    rc;
    struct err why;
    void (*then)(struct job *j, int rc, const struct err *e);
};

/* Both have a file of that name, and its first TF. */
static int compare_names(struct naming *x, struct stem *mine, uint64_t other, struct db *db)
{
    struct job his = { .work.id = other, .jobs = &x->words, .n_tasks = UINT64_MAX };
    int rc = task_load_files(&his, db, &x->why);

    if (rc == 0)
        task_stems(&his);
    for (size_t i = 0; i < his.n_files && rc == 0; i++) {
        if (his.file[i].tfs > 0 && stem_find(mine, his.file[i].stem))
            rc = err_set(&x->why, ERR_STATE, "job %" PRIu64 " is on and delivers results of the name %.200s into that folder, too: another --output is wanted", other,
                         his.file[i].stem);
    }
    job_free_details(&his);
    return rc;
}

static void stems_drop(struct job *j)
{
    for (size_t i = 0; i < j->n_files; i++) {
        free(j->file[i].stem);
        j->file[i].stem = NULL;
    }
}

static void work(void *arg)
{
    struct naming *x = arg;
    stems_drop(&x->mine);                        /* of a first look */
    struct stem *mine = stems_give(&x->mine);
    struct db *db = x->n_other > 0 ? db_open_reader(x->dir, &x->why) : NULL;

    x->rc = x->n_other > 0 && db == NULL ? -1 : 0;
    for (size_t i = 0; i < x->n_other && x->rc == 0; i++)
        x->rc = compare_names(x, mine, x->other[i], db);
    db_close(db);
    stems_free(mine);
}

static void done(void *arg)
{
    struct naming *x = arg;
    struct job *j = x->job;

    j->file = x->mine.file;
    j->n_files = x->mine.n_files;
    x->then(j, x->rc, &x->why);
    free(x->other);
    free(x->dir);
    free(x);
}

static void other_add(struct naming *x, uint64_t id)
{
    x->other = mem_grow(x->other, x->n_other + 1, sizeof(*x->other));
    x->other[x->n_other++] = id;
}

/* By the same path, or by two that lead to one. */
static bool same_folder(const struct job *a, const struct job *b)
{
    return a->work.output[0] != '\0' && (strcmp(a->work.output, b->work.output) == 0 || (a->folder && b->folder && strcmp(a->folder, b->folder) == 0));
}

/* Others that are taken in now, into the same folder: their names are not on disk yet. */
static const struct job *job_beside(const struct job *j, struct naming *x)
{
    const struct job *other;

    TAILQ_FOREACH(other, &j->jobs->open, entry) {
        if (other == j || !same_folder(j, other))
            continue;
        if (!other->stored)
            return other;
        other_add(x, other->work.id);
    }
    return NULL;
}

bool job_names_again(const struct job *j)
{
    const struct job *other;

    TAILQ_FOREACH(other, &j->jobs->open, entry) {
        if (other != j && same_folder(j, other) && strcmp(other->work.output, j->work.output) != 0)
            return true;
    }
    return false;
}

int job_names(struct job *j, void (*then)(struct job *j, int rc, const struct err *e), struct err *e)
{
    struct naming *x = mem_zalloc(sizeof(*x));
    const struct job *beside = job_beside(j, x);

    if (beside != NULL) {
        err_set(e, ERR_STATE, "job %" PRIu64 " is being taken in and delivers into the folder %.300s, too", beside->work.id, j->work.output);
    } else if (x->n_other == 0 && j->n_files <= FILES_AT_ONCE) {
        task_stems(j);
        free(x);
        then(j, 0, NULL);
        return 0;
    } else {
        x->job = j;
        x->dir = mem_strdup(j->jobs->d->conf->state_dir);
        x->then = then;
        x->mine = (struct job){ .work.id = j->work.id, .jobs = &x->words, .file = j->file, .n_files = j->n_files };
        j->file = NULL;
        j->n_files = 0;
        struct helper *h = j->jobs->d->helper;
        if (helper_run(h, work, done, x, e) == 0)
            return 0;
        j->file = x->mine.file;
        j->n_files = x->mine.n_files;
    }
    free(x->other);
    free(x->dir);
    free(x);
    return -1;
}
