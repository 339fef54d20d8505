/* paths.c - which files a job is to have: named, below folders, in lists
 *
 * Whatever comes is bounded: lists by their size, folders by their depth. A folder that cannot be read, and a link that leads nowhere, is said and counted like a
 * file that cannot be read.
 */
#include "config.h"

#include "paths.h"

#include "command.h"
#include "mem.h"
#include "str.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <uthash.h>

enum { LIST_LIMIT = 64 << 20, DEPTH_MOST = 32 };

static void add_taken(struct paths *p, char *path)
{
    if (p->n == p->cap) {
        p->cap = p->cap ? 2 * p->cap : 64;
        p->path = mem_grow(p->path, p->cap, sizeof(*p->path));
    }
    p->path[p->n++] = path;
}

static void add_empty(struct paths *p, const char *path, enum err_code code, char *text)
{
    p->empty = mem_grow(p->empty, p->n_empty + 1, sizeof(*p->empty));
    p->empty[p->n_empty++] = (struct empty){ mem_strdup(path), text, code };
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool ends_in_tf(const char *name)
{
    size_t n = strlen(name);

    return n >= 3 && strcmp(name + n - 3, ".tf") == 0;
}

/* The names in a folder, in order. */
static char **names_in(const char *folder, size_t *n)
{
    DIR *d = opendir(folder);
    char **name = NULL;
    size_t cap = 0;
    struct dirent *entry;

    *n = 0;
    if (d == NULL)
        return NULL;
    errno = 0;
    while ((entry = readdir(d)) != NULL) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (*n == cap) {
            cap = cap ? 2 * cap : 64;
            name = mem_grow(name, cap, sizeof(*name));
        }
        name[(*n)++] = mem_strdup(entry->d_name);
    }
    int error = errno;
    closedir(d);
    errno = error;
    if (*n > 1)
        qsort(name, *n, sizeof(*name), by_name);
    return name != NULL ? name : mem_array(1, sizeof(*name));
}

/* Folders that were walked, so that links do not lead round in a circle, nor to one folder by all the ways there are. */
struct walked { UT_hash_handle hh; struct walked_key { dev_t dev; ino_t ino; } key; };
struct walk { struct paths *p; struct walked *walked; };

static bool is_new(struct walk *w, const struct stat *st)
{
    struct walked_key key;
    struct walked *x;

    memset(&key, 0, sizeof(key));
    key.dev = st->st_dev;
    key.ino = st->st_ino;
    HASH_FIND(hh, w->walked, &key, sizeof(key), x);
    if (x != NULL)
        return false;
    x = mem_zalloc(sizeof(*x));
    x->key = key;
    HASH_ADD(hh, w->walked, key, sizeof(key), x);
    return true;
}

static void walk_free(struct walk *w)
{
    struct walked *x, *next;

    HASH_ITER(hh, w->walked, x, next) {
        HASH_DEL(w->walked, x);
        free(x);
    }
}

static size_t add_folder(struct walk *w, const char *folder, const struct stat *st, int depth);

/* What a folder has under that name. How many files, or things to be named as skipped, that gave; path is taken. */
static size_t add_entry(struct walk *w, char *path, const char *name, int depth)
{
    struct paths *p = w->p;
    bool hidden = name[0] == '.', is_tf = ends_in_tf(name);
    size_t found = 0;
    struct stat st;

    if (stat(path, &st) < 0 && !is_tf) {
        int error = errno;
        bool link = lstat(path, &st) == 0 && S_ISLNK(st.st_mode);

        if (link || err_of_errno(error) == ERR_PERMISSION) {         /* it may have been, or led to, a folder full of them */
            add_empty(p, path, err_of_errno(error), mem_printf("%s%s", link ? "a link that leads nowhere: " : "", strerror(error)));
            found = 1;
        }
    } else if (S_ISDIR(st.st_mode)) {
        p->hidden += hidden;
        found = hidden ? 0 : add_folder(w, path, &st, depth + 1);
    } else if (is_tf && hidden) {
        add_empty(p, path, ERR_FAILED, mem_strdup("its name begins with a dot: name it to have it"));
        found = 1;
    } else if (is_tf) {
        add_taken(p, path);
        return 1;
    }
    free(path);
    return found;
}

static size_t add_folder(struct walk *w, const char *folder, const struct stat *st, int depth)
{
    size_t n, found = 0;
    char **name;

    if (!is_new(w, st))
        return 1;                                /* its files are there already */
    name = depth < DEPTH_MOST ? names_in(folder, &n) : NULL;
    if (name == NULL) {
        int error = errno;

        add_empty(w->p, folder, depth < DEPTH_MOST ? err_of_errno(error) : ERR_FAILED,
                  depth < DEPTH_MOST ? mem_strdup(strerror(error)) : mem_printf("more than %d folders in one another", DEPTH_MOST));
        return 1;
    }
    for (size_t i = 0; i < n; i++) {
        found += add_entry(w, mem_printf("%s%s%s", folder, folder[strlen(folder) - 1] == '/' ? "" : "/", name[i]), name[i], depth);
        free(name[i]);
    }
    free(name);
    return found;
}

void paths_add(struct paths *p, const char *path)
{
    char *whole = args_path(path);
    struct walk w = { .p = p };
    struct stat st;

    if (stat(whole, &st) < 0 || !S_ISDIR(st.st_mode)) {
        add_taken(p, whole);
        return;
    }
    if (add_folder(&w, whole, &st, 0) == 0)
        add_empty(p, whole, ERR_FAILED, mem_strdup("no file in this folder ends in .tf"));
    walk_free(&w);
    free(whole);
}

/* All of it, refused beyond the limit before it is kept. */
static int read_all(FILE *f, const char *file, struct str *s, struct err *e)
{
    char step[65536];
    size_t n;

    while ((n = fread(step, 1, sizeof(step), f)) > 0) {
        str_addn(s, step, n);
        if (s->len > LIST_LIMIT || memchr(step, '\0', n) != NULL)
            return err_set(e, ERR_USAGE, "%s: a list of paths, one a line, is wanted, at most 64 MiB without zero bytes", file);
    }
    return ferror(f) ? err_errno(e, ERR_FAILED, "%s", file) : 0;
}

int paths_read(struct paths *p, const char *file, struct err *e)
{
    FILE *f = strcmp(file, "-") == 0 ? stdin : fopen(file, "re");
    struct str s = { 0 };
    int r;

    if (f == NULL)
        return err_errno(e, err_of_errno(errno), "%s", file);
    r = read_all(f, strcmp(file, "-") == 0 ? "standard input" : file, &s, e);
    for (char *line = r == 0 ? s.p : NULL, *end; line != NULL && *line != '\0'; line = end) {
        size_t n = strcspn(line, "\n");

        end = line + n + (line[n] == '\n');
        while (n > 0 && line[n - 1] == '\r')         /* a list that was written on Windows */
            n--;
        line[n] = '\0';
        if (line[0] == '#')
            p->comments++;
        else if (n > 0)
            paths_add(p, line);
    }
    str_free(&s);
    if (f != stdin)
        fclose(f);
    return r;
}

/* A folder, by whatever path it is reached. */
struct place { UT_hash_handle hh; char *folder; dev_t dev; ino_t ino; bool there; };

static const struct place *place_of(struct place **all, const char *path)
{
    const char *slash = strrchr(path, '/');
    char *folder = mem_printf("%.*s", (int)(slash > path ? slash - path : 1), path);
    struct place *p;
    struct stat st;

    HASH_FIND_STR(*all, folder, p);
    if (p != NULL) {
        free(folder);
        return p;
    }
    p = mem_zalloc(sizeof(*p));
    p->folder = folder;
    p->there = stat(folder, &st) == 0;
    p->dev = p->there ? st.st_dev : 0;
    p->ino = p->there ? st.st_ino : 0;
    HASH_ADD_KEYPTR(hh, *all, p->folder, strlen(p->folder), p);
    return p;
}

static void places_free(struct place *all)
{
    struct place *p, *next;

    HASH_ITER(hh, all, p, next) {
        HASH_DEL(all, p);
        free(p->folder);
        free(p);
    }
}

struct seen { UT_hash_handle hh; char *key; };

/* The same name in the same folder is the same input; another name for it, a link, is one of its own, and so are its results. */
static char *key_of(struct place **places, const char *path)
{
    const struct place *p = place_of(places, path);

    return p->there ? mem_printf("%jx:%jx%s", (uintmax_t)p->dev, (uintmax_t)p->ino, strrchr(path, '/')) : mem_strdup(path);
}

void paths_once(struct paths *p)
{
    struct seen *all = NULL, *seen = mem_array(p->n + 1, sizeof(*seen)), *found;
    struct place *places = NULL;
    size_t kept = 0;

    for (size_t i = 0; i < p->n; i++) {
        char *key = key_of(&places, p->path[i]);
        HASH_FIND_STR(all, key, found);
        if (found != NULL) {
            free(key);
            free(p->path[i]);
            p->twice++;
            continue;
        }
        seen[kept].key = key;
        p->path[kept] = p->path[i];
        HASH_ADD_KEYPTR(hh, all, key, strlen(key), &seen[kept]);
        kept++;
    }
    HASH_CLEAR(hh, all);
    for (size_t i = 0; i < kept; i++)
        free(seen[i].key);
    free(seen);
    places_free(places);
    p->n = kept;
}

void paths_free(struct paths *p)
{
    for (size_t i = 0; i < p->n; i++)
        free(p->path[i]);
    for (size_t i = 0; i < p->n_empty; i++) {
        free(p->empty[i].path);
        free(p->empty[i].text);
    }
    free(p->path);
    free(p->empty);
}
