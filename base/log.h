/* log.h - one line an event, the object first: "node mi50-001: contact lost (SIGSTOP?)"
 *
 * err: someone must act; warning: odd, goes on; info: a few a job; debug: the rest.
 * To stderr with "<n>" priorities when that is the stream named by JOURNAL_STREAM, else with a time stamp; or to a file,
 * which is opened again on log_reopen (rotation). Whatever is written is made one line that drives no terminal.
 * A line is one write(2); a full or hanging disk never blocks the caller: the file is written by
 * a thread of its own with a bounded queue, lines that find it full are counted and reported.
 */
#ifndef SLUICE_LOG_H
#define SLUICE_LOG_H

#include "err.h"

enum log_level { LOG_LEVEL_ERR = 3, LOG_LEVEL_WARNING = 4, LOG_LEVEL_INFO = 6, LOG_LEVEL_DEBUG = 7 };

/* program: name shown; file: NULL = stderr. Call once before threads start. */
int  log_open(const char *program, const char *file, enum log_level level, struct err *e);
void log_close(void);                  /* writes what is queued, waits at most 1 s */
int  log_reopen(struct err *e);        /* SIGHUP: asks the thread, which logs a failure and goes on with the old file */
void log_set_level(enum log_level level);
int  log_level_parse(const char *word, enum log_level *level);      /* err warning info debug */

void log_write(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
#define log_err(...)     log_write(LOG_LEVEL_ERR, __VA_ARGS__)
#define log_warning(...) log_write(LOG_LEVEL_WARNING, __VA_ARGS__)
#define log_info(...)    log_write(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...)   log_write(LOG_LEVEL_DEBUG, __VA_ARGS__)

/* An error that ends the program. Where the log is a file it is said on stderr as well: whoever started the program looks there. */
void log_last_word(const char *text);
/* Says so and ends the program with the code of e. */
void log_die(const struct err *e) __attribute__((noreturn));

/* What log_recent knows outlives this process, however it ends: from now on the lines are written to path as well, which never has more than some 128 KiB with path.1,
 * and what is there is read first. The log itself may be turned, or be the journal. */
int log_keep(const char *path, struct err *e);
/* The last lines (for `logs --node`, support bundles), those of processes before this one too: calls fn oldest first. */
void log_recent(void (*fn)(void *arg, const char *line), void *arg);

#endif
