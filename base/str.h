/* str.h - strings: a growing one, splitting, showing what came from people, numbers */
#ifndef SLUICE_STR_H
#define SLUICE_STR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "err.h"

struct str { char *p; size_t len, cap; };           /* zero-initialised is empty; p may be NULL then */

void  str_add(struct str *s, const char *text);
void  str_addn(struct str *s, const char *bytes, size_t n);
void  str_addf(struct str *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void  str_clear(struct str *s);                     /* empties, keeps the memory */
char *str_take(struct str *s);                      /* the text, now the caller's; s is empty (never NULL) */
void  str_free(struct str *s);
const char *str_text(const struct str *s);          /* never NULL */

/* What is no UTF-8 in the n bytes, and every NUL, becomes '?'. */
void str_mend(char *text, size_t n);
/* Appends text as it may be shown on a terminal or in a log: control characters, DEL, and bytes that are not valid UTF-8
 * as \n \t \\ or \xNN. Nothing raw from outside ever reaches a terminal. */
void str_escape(struct str *s, const char *text, size_t n);
/* The same, but a backslash stays as it is: for sentences and lines of logs, in which something was escaped before. */
void str_show(struct str *s, const char *text, size_t n);

/* Sizes: bytes, or a number with K M G T (powers of 1024, fractions refused): "64M", "112G". Refuses 0, signs, overflow. */
int str_parse_size(const char *text, uint64_t *bytes, struct err *e);
/* For people: "64M" and "112G" when that is exact and short, else "3.2 GiB", below 1024 the number. */
const char *str_size_text(uint64_t bytes, char out[32]);
/* Whole decimal number in [min, max]; what names it in the error. */
int str_parse_u64(const char *what, const char *text, uint64_t min, uint64_t max, uint64_t *value, struct err *e);
int str_parse_i64(const char *what, const char *text, int64_t min, int64_t max, int64_t *value, struct err *e);
int str_parse_f64(const char *what, const char *text, double min, double max, double *value, struct err *e);

/* A name of a node, class, run, profile: 1 to 63 of [A-Za-z0-9._-], first a letter or digit. */
bool str_is_name(const char *text);

static inline bool str_is_empty(const char *s) { return s == 0 || s[0] == '\0'; }     /* NULL is, too */
/* Whether an absolute path is one of the folders, or below one; by the names alone. No folders: everything is. */
bool str_is_below(const char *path, char *const *folders, unsigned n);
bool str_equal(const char *a, const char *b);       /* NULL equals NULL only */
#endif
