/* cmd_part.h - what the commands share: usage, JSON, sizes, names of files */
#ifndef CMD_PART_H
#define CMD_PART_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "kerr.h"
#include "tf_file.h"

/* A name or another text that came from outside: what would move a terminal is shown as \xNN. */
void cmd_put(FILE *out, const char *text);
/* `sluice NAME: ...` on stderr, by cmd_put. */
void cmd_say(const char *cmd, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The same, and where to find help; returns CMD_USAGE. */
int cmd_usage(const char *cmd, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* A number from low to high, whole text; 0 or -1. */
int cmd_number(const char *text, uint64_t low, uint64_t high, uint64_t *out);
/* The same, and says what is wanted. */
int cmd_want_number(const char *cmd, const char *option, const char *text, uint64_t low, uint64_t high, uint64_t *out);

/* JSON, written as it comes. Commas are put in by json_next(). */
struct json {
    FILE *out;
    unsigned depth;
    bool any[8];
};
void json_begin(struct json *j, const char *schema, const char *plural);
void json_end(struct json *j);               /* 0 bytes are left open */
void json_open(struct json *j, const char *key, char bracket);
void json_close(struct json *j, char bracket);
void json_str(struct json *j, const char *key, const char *value);   /* NULL: null */
void json_u64(struct json *j, const char *key, uint64_t value);
void json_num(struct json *j, const char *key, double value);
void json_bool(struct json *j, const char *key, bool value);
void json_digest(struct json *j, const char *key, uint64_t value);

/* "a/b/tpc-a.tf" -> "tpc-a". */
void cmd_stem(const char *path, char *out, size_t room);

/* Writes a file whole: under a name of its own, flushed to disk, then renamed. */
int cmd_write(const char *path, const void *data, size_t size, struct k_err *e);
/* Reads a whole regular file; *out is to be freed. CMD_DONE or another exit code. */
int cmd_read(const char *path, void **out, size_t *size, struct k_err *e);

#endif
