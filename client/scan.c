/* scan.c - finds the time-frames of a file by their headers */
#include "config.h"

#include "scan.h"

#include "mem.h"
#include "tf_file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void trouble(struct scan *s, const struct tf_err *e)
{
    s->trouble = strstr(e->text, "offset") != NULL ? mem_strdup(e->text) : mem_printf("%s (offset %" PRIu64 ")", e->text, e->offset);
}

void scan_file(const char *path, struct scan *s, void (*found)(void *arg), void *arg)
{
    struct tf_err e = { 0 };
    struct tf_file *f = tf_file_open(path, &e);
    struct tf_info info;
    int r;

    *s = (struct scan){ 0 };
    if (f == NULL) {
        s->trouble = mem_strdup(e.text);         /* nothing was read yet: no offset */
        s->missing = access(path, F_OK) < 0 && errno == ENOENT;
        return;
    }
    while ((r = tf_file_next(f, &info, &e)) > 0) {
        if ((s->n & (s->n - 1)) == 0)
            s->tfs = mem_grow(s->tfs, s->n == 0 ? 1 : 2 * s->n, sizeof(*s->tfs));
        s->tfs[s->n++] = (struct scan_tf){ info.offset, info.size };
        s->largest = info.size > s->largest ? info.size : s->largest;
        if (found != NULL)
            found(arg);
    }
    if (r < 0)
        trouble(s, &e);
    tf_file_close(f);
}

void scan_free(struct scan *s)
{
    free(s->tfs);
    free(s->trouble);
}
