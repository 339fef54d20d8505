/* hostlist.h - sets of node names as people write them: n001, n[001-010], n[1-3,7,010-012], r[1-2]n[01-04]
 *
 * Width is kept, duplicates are removed, an error names the column (from 1). At most 65 536 names and 8 bracket
 * groups a word, counted without expanding. "@words" are not known here: hostlist_parse hands them to a resolver.
 */
#ifndef SLUICE_HOSTLIST_H
#define SLUICE_HOSTLIST_H

#include <stddef.h>
#include "err.h"

#ifndef HOSTLIST_MAX_NAMES
#define HOSTLIST_MAX_NAMES  65536           /* a fuzz target takes fewer, for the sake of its pace */
#endif
#define HOSTLIST_MAX_GROUPS 8

struct hostlist;                                     /* an ordered set of names */

/* Adds the names of "@word" to h. Returns -1 with e set for an unknown word. */
typedef int (*hostlist_resolver)(void *arg, const char *word, struct hostlist *h, struct err *e);

struct hostlist *hostlist_create(void);
void  hostlist_destroy(struct hostlist *h);
/* Names are apart by commas or blanks. A blank text is an empty set: whoever wants a name at least must say so. */
struct hostlist *hostlist_parse(const char *text, hostlist_resolver resolve, void *arg, struct err *e);
int   hostlist_add(struct hostlist *h, const char *name, struct err *e);
size_t hostlist_count(const struct hostlist *h);
const char *hostlist_name(const struct hostlist *h, size_t i);       /* in the order of first mention; see hostlist_sort */
int   hostlist_has(const struct hostlist *h, const char *name);
void  hostlist_sort(struct hostlist *h);                             /* natural order: n2 before n10 */
int   hostlist_compare(const char *a, const char *b);                /* two names, in that order */
char *hostlist_fold(const struct hostlist *h);                       /* shortest usual writing; caller frees; unfold(fold(x)) = x as a set */
struct hostlist *hostlist_diff(const struct hostlist *a, const struct hostlist *b);
struct hostlist *hostlist_and(const struct hostlist *a, const struct hostlist *b);
#endif
