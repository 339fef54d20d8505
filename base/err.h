/* err.h - why something failed: a code that becomes an exit status, and a sentence for a person
 *
 * Whoever first knows the cause writes the sentence; callers hand it up unchanged and it is
 * shown once. The codes are the exit statuses of the commands and travel on the wire, so a
 * number is never given another meaning.
 */
#ifndef SLUICE_ERR_H
#define SLUICE_ERR_H

#include <stdarg.h>

enum err_code {
    ERR_NONE        = 0,
    ERR_FAILED      = 1,   /* anything without a code of its own */
    ERR_USAGE       = 2,
    ERR_NOT_FOUND   = 3,   /* a named object does not exist */
    ERR_STATE       = 4,   /* refused by the state things are in */
    ERR_PERMISSION  = 5,
    ERR_UNREACHABLE = 6,   /* the daemon does not answer */
    ERR_TIMEOUT     = 7,
    ERR_PARTLY      = 8,   /* --keep-going: some did, some did not */
    ERR_PROTOCOL    = 9,   /* protocol or version mismatch */
    ERR_SOME_FAILED = 10,  /* done, but some TFs failed or files were skipped */
    ERR_CANCELLED   = 11,
    ERR_LOST        = 12,
};

/* What an errno means for a file that somebody named: not there, not permitted, or anything else. */
enum err_code err_of_errno(int error);
/* The code that all have in common, so far `so_far` (ERR_NONE: nothing yet): ERR_FAILED when they differ. */
enum err_code err_common(enum err_code so_far, enum err_code next);

struct err {
    enum err_code code;
    char          text[512];
};

/* Writes code and sentence into e (e may be NULL). Returns -1, so that the line that fails is one line. */
int err_set(struct err *e, enum err_code code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* The same with ": " and the text of errno appended. */
int err_errno(struct err *e, enum err_code code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* The same as err_set for functions that return a pointer: returns NULL. */
void *err_null(struct err *e, enum err_code code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Puts "WORDS: " before the sentence that is there already. Returns -1. */
int err_prefix(struct err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
