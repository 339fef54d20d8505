/* outname.c - the names of a try's files
 *
 * From: outplace.c, outfile.c, outpublish.c, outsweep.c, deliver.c.
 */
#include "config.h"
#include "outname.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void outname_former(struct fence f, char out[OUTNAME_SUFFIX])
{
    snprintf(out, OUTNAME_SUFFIX, ".a%" PRIu64 "-%" PRIu64, f.epoch, f.attempt);
}

void outname_suffix(struct tf_name tf, struct fence f, char out[OUTNAME_SUFFIX])
{
    snprintf(out, OUTNAME_SUFFIX, ".a%" PRIu64 "-%" PRIu64 "-%c%" PRIu64, f.epoch, f.attempt, tf.run ? 'r' : 'j', tf.run ? tf.run : tf.job);
}

/* Past a number, or NULL: there is none. */
static const char *past_number(const char *p, uint64_t *value)
{
    char *end;

    if (!isdigit((unsigned char)*p))
        return NULL;
    *value = strtoull(p, &end, 10);
    return end;
}

size_t outname_tried(const char *name, struct tf_name *whose)
{
    const char *dot = strrchr(name, '.'), *p;
    uint64_t ignored, id = 0;
    char kind = '\0';

    *whose = (struct tf_name){ 0 };
    if (dot == NULL || dot[1] != 'a')
        return 0;
    p = past_number(dot + 2, &ignored);
    p = p != NULL && *p == '-' ? past_number(p + 1, &ignored) : NULL;
    if (p != NULL && p[0] == '-' && (p[1] == 'j' || p[1] == 'r')) {
        kind = p[1];
        p = past_number(p + 2, &id);
    }
    if (p == NULL || *p != '\0')
        return 0;
    *(kind == 'r' ? &whose->run : &whose->job) = id;
    return (size_t)(dot - name);
}

bool outname_is_stage(const char *text, size_t n)
{
    size_t i = 0;

    while (i < n && (islower((unsigned char)text[i]) || isdigit((unsigned char)text[i]) || text[i] == '_' || text[i] == '-'))
        i++;
    return i > 0 && (i == n || (n - i == 5 && strncmp(text + i, ".json", 5) == 0));
}
