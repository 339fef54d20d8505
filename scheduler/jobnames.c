/* jobnames.c - names of the results of a job's files: given once, and held against those of other jobs in the same folder
 *
 * From: jobsubmit.c (a new job), jobcontrol.c (one that is run again), task.c (one that is read again).  To: the asker, in the loop.
 * A job of a million files, or one beside others, is looked at by a thread, which has a new job's files in its own hands meanwhile and reads all others from
 * the database. The folder is where the results go: that of a rerun of all is OUTPUT/rerun-N, which somebody may have named as his --output.
 * Always: two jobs that are on do not deliver under the same name. What other programs, runs and former jobs left in the folder the worker sees:
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

/* The folder below the output one, with a slash behind it; "" but for a rerun of all. */
struct below { char text[24]; };

static struct below below(unsigned reruns)
{
    struct below b = { "" };

    if (reruns > 0)
        snprintf(b.text, sizeof(b.text), "rerun-%u/", reruns);
    return b;
}

char *task_stem_of(const struct job *j, uint64_t number)
{
    const struct job_file *f = job_file_of(j, number);

    return mem_printf("%s%s.%" PRIu64, below(j->reruns).text, f->stem, number - f->first_task);
}


/* ---- held against others -------------------------------------------------------------------- */

struct naming {
    struct job *job;                     /* a new one, for the loop; NULL: its files are read, too */
    char  *dir;
    struct names_seen others;            /* jobs that deliver into the same folder */
    struct jobs words;                   /* of the thread's: none are read */
    struct job mine;                     /* its files, while the thread has them */
    int    rc;
    struct err why;
    names_fn *then;
    void  *arg;
};

static int load_names(struct job *j, struct naming *x, struct db *db)
{
    j->jobs = &x->words;
    j->n_tasks = UINT64_MAX;
    return task_load_files(j, db, &x->why);
}

/* Both have a file of that name, and its first TF. */
static int compare_names(struct naming *x, struct stem *mine, uint64_t other, struct db *db)
{
    struct job his = { .work.id = other };
    int rc = load_names(&his, x, db);

    if (rc == 0)
        task_stems(&his);
    for (size_t i = 0; i < his.n_files && rc == 0; i++) {
        if (his.file[i].tfs > 0 && stem_find(mine, his.file[i].stem))
            rc = err_set(&x->why, ERR_STATE, "job %" PRIu64 " is on and delivers results of the name %.200s into that folder, too: %s", other, his.file[i].stem,
                         x->job ? "another --output is wanted" : "its end is to be waited for");
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
    struct db *db = x->others.n > 0 ? db_open_reader(x->dir, &x->why) : NULL;

    x->rc = x->others.n > 0 && db == NULL ? -1 : x->job ? 0 : load_names(&x->mine, x, db);
    stems_drop(&x->mine);                        /* of a first look */
    struct stem *mine = stems_give(&x->mine);
    for (size_t i = 0; i < x->others.n && x->rc == 0; i++)
        x->rc = compare_names(x, mine, x->others.id[i], db);
    db_close(db);
    stems_free(mine);
    if (x->job == NULL)
        job_free_details(&x->mine);
}

static void naming_free(struct naming *x)
{
    free(x->others.id);
    free(x->dir);
    free(x);
}

static void done(void *arg)
{
    struct naming *x = arg;

    if (x->job) {
        x->job->file = x->mine.file;
        x->job->n_files = x->mine.n_files;
    }
    x->then(x->arg, x->rc, &x->why, &x->others);
    naming_free(x);
}

static bool same_path(const char *a, unsigned a_reruns, const char *b, unsigned b_reruns)
{
    if (a == NULL || b == NULL || a[0] == '\0')
        return false;
    if (a_reruns == 0 && b_reruns == 0)
        return strcmp(a, b) == 0;
    char *x = mem_printf("%s/%s", a, below(a_reruns).text), *y = mem_printf("%s/%s", b, below(b_reruns).text);
    bool same = strcmp(x, y) == 0;
    free(x);
    free(y);
    return same;
}

/* By the same path, or by two that lead to one. */
static bool same_folder(const struct job *j, unsigned reruns, const struct job *other)
{
    return same_path(j->work.output, reruns, other->work.output, other->reruns) || same_path(j->folder, reruns, other->folder, other->reruns);
}

/* The next one after `other` (NULL: the first) that is on and delivers there, or has results that wait to be published. */
static const struct job *next_beside(const struct job *j, unsigned reruns, const struct job *other)
{
    bool is_over = other && other->ended;

    other = other ? TAILQ_NEXT(other, entry) : TAILQ_FIRST(&j->jobs->open);
    for (;; other = TAILQ_NEXT(other, entry)) {
        if (other == NULL && !is_over) {
            is_over = true;
            other = TAILQ_FIRST(&j->jobs->over);
        }
        if (other == NULL)
            return NULL;
        if (other != j && (!is_over || other->work.records > 0 || other->loading) && same_folder(j, reruns, other))
            return other;
    }
}

static bool is_seen(const struct names_seen *seen, uint64_t id)
{
    for (size_t i = 0; i < seen->n; i++) {
        if (seen->id[i] == id)
            return true;
    }
    return false;
}

bool job_names_still(const struct job *j, unsigned reruns, const struct names_seen *seen)
{
    for (const struct job *x = NULL; (x = next_beside(j, reruns, x));) {
        if (!is_seen(seen, x->work.id))
            return false;
    }
    return true;
}

bool job_names_again(const struct job *j)
{
    for (const struct job *x = NULL; (x = next_beside(j, j->reruns, x));) {
        if (!same_path(j->work.output, j->reruns, x->work.output, x->reruns))
            return true;
    }
    return false;
}

/* Others that are taken in now, into the same folder: their names are not on disk yet. */
static int others_find(const struct job *j, unsigned reruns, struct names_seen *others, struct err *e)
{
    for (const struct job *x = NULL; (x = next_beside(j, reruns, x));) {
        if (!x->stored)
            return err_set(e, ERR_STATE, "job %" PRIu64 " is being taken in and delivers into the folder %.300s, too", x->work.id, j->work.output);
        others->id = mem_grow(others->id, others->n + 1, sizeof(*others->id));
        others->id[others->n++] = x->work.id;
    }
    return 0;
}

static int naming_run(struct naming *x, struct jobs *jobs, struct err *e)
{
    x->dir = mem_strdup(jobs->d->conf->state_dir);
    return helper_run(jobs->d->helper, work, done, x, e);
}

int job_names(struct job *j, names_fn *then, void *arg, struct err *e)
{
    struct naming *x = mem_zalloc(sizeof(*x));

    if (others_find(j, j->reruns, &x->others, e) < 0) {
        naming_free(x);
        return -1;
    }
    if (x->others.n == 0 && j->n_files <= FILES_AT_ONCE) {
        task_stems(j);
        naming_free(x);
        then(arg, 0, NULL, &(struct names_seen){ 0 });
        return 0;
    }
    x->job = j;
    x->then = then;
    x->arg = arg;
    x->mine = (struct job){ .work.id = j->work.id, .jobs = &x->words, .file = j->file, .n_files = j->n_files };
    j->file = NULL;
    j->n_files = 0;
    if (naming_run(x, j->jobs, e) == 0)
        return 0;
    j->file = x->mine.file;
    j->n_files = x->mine.n_files;
    naming_free(x);
    return -1;
}

int job_names_rerun(const struct job *j, unsigned reruns, names_fn *then, void *arg, struct err *e)
{
    struct naming *x = mem_zalloc(sizeof(*x));

    x->mine = (struct job){ .work.id = j->work.id, .jobs = &x->words };
    x->then = then;
    x->arg = arg;
    if (others_find(j, reruns, &x->others, e) < 0) {
        naming_free(x);
        return -1;
    }
    if (x->others.n == 0) {
        naming_free(x);
        then(arg, 0, NULL, &(struct names_seen){ 0 });
        return 0;
    }
    if (naming_run(x, j->jobs, e) == 0)
        return 0;
    naming_free(x);
    return -1;
}
