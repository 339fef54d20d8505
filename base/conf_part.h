/* conf_part.h - what the files of conf share: the rows of the tables, and what can be done with one
 *
 * conf_keys.c has the tables, conf_value.c reads and writes a value, conf_syntax.c is all that sees libconfuse's grammar, conf.c makes a
 * struct conf of what that read, and a text of a struct conf.
 */
#ifndef SLUICE_CONF_PART_H
#define SLUICE_CONF_PART_H

#include <stdbool.h>
#include <stddef.h>
#include "conf.h"
#include "str.h"

enum conf_kind {
    CONF_PATH,       /* char *, begins with '/' */
    CONF_WORD,       /* char *, one of words */
    CONF_NAME,       /* char *, str_is_name */
    CONF_LISTEN,     /* char *, HOST:PORT */
    CONF_METHOD,     /* char *, none, munge or munge:SOCKET */
    CONF_FEATURES,   /* char *, constraint_check */
    CONF_SIZE,       /* uint64_t bytes */
    CONF_COUNT,      /* uint64_t */
    CONF_UINT,       /* unsigned */
    CONF_INT,        /* int */
    CONF_REAL,       /* double */
    CONF_BOOL,       /* bool */
    CONF_PATHS,      /* char ** and unsigned right after it */
    CONF_TEXTS,      /* the same, no control characters */
    CONF_SIZES,      /* the same, each CLASS=SIZE */
};

struct conf_key {
    const char    *name;
    enum conf_kind kind;
    size_t         offset;
    double         min, max;    /* of numbers */
    const char    *def;         /* NULL = zero */
    const char    *words;       /* "none observe lend" */
};

enum conf_shape {
    CONF_ONE,        /* given once or not at all: a struct at the offset */
    CONF_BOTH,       /* pool: two structs at the offset, one for each title */
    CONF_MANY,       /* titled: a pointer to an array at the offset, and unsigned right after it */
};

/* The struct of a titled section begins with its title, a char *. */
struct conf_section {
    const char            *name;        /* NULL: what stands outside all sections */
    enum conf_shape        shape;
    size_t                 offset, size;
    const struct conf_key *keys;
    size_t                 n_keys;
    int (*check_title)(const char *title, struct err *e);
    int (*check)(struct conf *c, void *section, struct err *e);     /* what no key can tell alone; NULL: nothing */
};

/* conf_keys.c; the order is that of conf_show, and classes come before what names them */
enum { CONF_SECTIONS = 12, CONF_KEYS_MAX = 24 };
extern const struct conf_section conf_sections[CONF_SECTIONS];
extern const char *const conf_pool_names[2];

/* How many elements an array has stands right behind the pointer to them, here the place of that pointer. */
static inline unsigned *conf_count(const void *array)
{
    return (unsigned *)((char *)array + sizeof(void *));
}

/* conf_value.c; at is the field that k names: its place in the struct of the section */
bool conf_is_string(enum conf_kind kind);
bool conf_is_list(enum conf_kind kind);
/* Checks text and puts it there; of a list: at is one of its elements. */
int  conf_value_read(const struct conf_key *k, const char *text, void *at, struct err *e);
void conf_value_show(struct str *s, const struct conf_key *k, const void *at);
/* A string that is NULL, a size of 0 (which cannot be written), an empty list. */
bool conf_value_absent(const struct conf_key *k, const void *at);
void conf_value_free(const struct conf_key *k, void *at);
/* A title or text, in single quotes. */
void conf_text_show(struct str *s, const char *text);
/* The size behind CLASS=. */
int  conf_class_size(const char *text, uint64_t *size, struct err *e);

/* conf_syntax.c: what stands in text, each value and title checked by the tables, or NULL and the first fault with its line. The
 * caller frees it with cfg_free. */
struct cfg_t *conf_syntax(const char *text, const char *name, int *listen_line, struct err *e);

#endif
