/* show.h - one answer as table, JSON or lines for programs
 *
 * Escapes: in tables and parsable lines text from people shows control characters, backslashes and what is not UTF-8 as \n \t \\ \xNN;
 * parsable lines write '|' in a field as \|, so that a line always has as many fields as its heading.
 */
#ifndef SLUICE_SHOW_H
#define SLUICE_SHOW_H

#include <jansson.h>
#include <protobuf-c/protobuf-c.h>
#include "command.h"
#include "err.h"

enum column_format {
    AS_IS,              /* text, numbers, words; lists joined by ',' */
    AS_SIZE,            /* bytes */
    AS_SECONDS,
    AS_TIME,
    AS_AGE,             /* since a time */
    AS_SHARE,           /* 0..1 as percent */
    AS_COUNT,           /* how many elements a list has */
    AS_COUNTERS,        /* list of {name, value}: "name 3, other 1" */
};

struct column {
    const char *name;           /* in -o, and in capitals as the heading */
    const char *path;           /* where it is in the object: "move.to", "marks.reason" (over all of a list); NULL: the name */
    enum column_format format;
    json_t *(*make)(const json_t *object);      /* instead of a path: a new reference, NULL = unknown */
};

struct listing {
    const char *plural;         /* name of the document and of its list */
    const struct column *columns;       /* ends without name; other fields of the objects can be asked for by their names too */
    const char *usual;          /* the columns shown without -o */
    const ProtobufCMessageDescriptor *element;      /* what the objects were, NULL: made here */
};

/* Shows the objects (takes the reference); a document has ctx->seq. 0 or -1. usual: other columns than the listing's, or NULL. */
int show_list(const struct context *ctx, const struct listing *l, const char *usual, json_t *objects, struct err *e);
/* The same for one object: in a table every field has a line. */
int show_one(const struct context *ctx, const struct listing *l, json_t *object, struct err *e);
/* -o help: prints the columns; true when that was asked for. */
bool show_columns_help(const struct context *ctx, const struct listing *l);
/* Whether the columns of -o are there. For commands that change something: asked before, so that a slip changes nothing. 0 or -1. */
int show_columns_check(const struct context *ctx, const struct listing *l, struct err *e);

/* How JSON is written: ASCII only, so that what a terminal could take for a command is always \uNNNN. */
#define SHOW_DUMP_FLAGS (JSON_ENSURE_ASCII | JSON_REAL_PRECISION(15))
/* A text for a line on a terminal, escaped; the caller frees. */
char *show_text(const char *text);
/* The same for a sentence or a line of a log, in which what came from people may be escaped already. */
char *show_sentence(const char *text);

#endif
