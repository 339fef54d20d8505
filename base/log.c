/* log.c - one line an event, written by a thread so that no disk ever blocks the caller
 *
 * From: everybody.  To: stderr or a file.
 * Callers only format and queue. The writer thread alone touches the file; it opens it again when
 * asked. Lines that find the queue full are dropped, counted, and the count is written as soon as
 * there is room. Before log_open and in a forked child (which has no such thread) lines go out directly.
 */
#include "config.h"

#include "clock.h"
#include "log.h"
#include "mem.h"
#include "str.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LINE_MAX_BYTES = 4096, QUEUE_MAX = 4096, RECENT_MAX = 512, KEPT_BYTES = 64 << 10 };

static struct {
    pthread_mutex_t lock;           /* guards everything below */
    pthread_cond_t  work, idle;
    enum log_level  level;
    char            program[64];
    char           *file;           /* NULL = stderr */
    int             fd;
    bool            journal, threaded, stop, done, reopen;
    pthread_t       thread;
    struct line { enum log_level level; char *text; } queue[QUEUE_MAX];
    size_t          head, n;
    unsigned long   lost;
    char           *recent[RECENT_MAX];
    size_t          recent_next;
    char           *kept;           /* the last lines lie there too; NULL: they do not */
    int             kept_fd;
    size_t          kept_bytes;
} log_ = {
    .lock = PTHREAD_MUTEX_INITIALIZER, .work = PTHREAD_COND_INITIALIZER, .idle = PTHREAD_COND_INITIALIZER,
    .level = LOG_LEVEL_INFO, .fd = STDERR_FILENO, .kept_fd = -1,
};

static const struct { enum log_level level; const char *word; } words[] = {
    { LOG_LEVEL_ERR, "err" }, { LOG_LEVEL_WARNING, "warning" }, { LOG_LEVEL_INFO, "info" }, { LOG_LEVEL_DEBUG, "debug" },
};

static const char *level_word(enum log_level level)
{
    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (words[i].level == level)
            return words[i].word;
    return "?";
}

int log_level_parse(const char *word, enum log_level *level)
{
    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        if (strcmp(words[i].word, word) == 0) {
            *level = words[i].level;
            return 0;
        }
    }
    return -1;
}

/* --- a line --------------------------------------------------------------------------------- */

/* One write for one line: lines of several processes on one file do not mix. A line that a full disk cuts is given up. */
static void write_line(int fd, const char *line)
{
    size_t size = strlen(line);
    ssize_t n;

    do
        n = write(fd, line, size);
    while (n < 0 && errno == EINTR);
}

/* A message is one line: what would break it or drive a terminal is escaped. */
static char *flatten(char *text)
{
    struct str s = { 0 };

    for (char *p = text; *p != '\0'; p++)
        if (*p == '\n' || *p == '\t')
            *p = ' ';
    str_show(&s, text, strlen(text));
    return str_take(&s);
}

static char *format_line(enum log_level level, const char *text)
{
    char when[CLOCK_TEXT];
    const char *program = log_.program[0] != '\0' ? log_.program : program_invocation_short_name;

    return mem_printf("%s %s[%ld] %s: %s\n", clock_rfc3339(clock_wall_ns(), when), program,
                      (long)getpid(), level_word(level), text);
}

/* The journal knows time and program itself, and wants the priority. */
static void write_out(int fd, enum log_level level, const char *line)
{
    const char *text = strstr(line, ": ");
    char *priority;

    if (!log_.journal || text == NULL) {
        write_line(fd, line);
        return;
    }
    priority = mem_printf("<%d>%s", level, text + 2);
    write_line(fd, priority);
    free(priority);
}

static void keep_recent(const char *line)
{
    char **slot = &log_.recent[log_.recent_next++ % RECENT_MAX];

    free(*slot);
    *slot = mem_strdup(line);
}

/* The end of a log of before. What cannot be read is no reason not to start. */
static void recall(const char *path)
{
    static char text[KEPT_BYTES + 1];    /* under the lock */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat st;
    ssize_t n = -1;
    char *line, *rest = text;

    if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
        n = pread(fd, text, KEPT_BYTES, st.st_size > KEPT_BYTES ? st.st_size - KEPT_BYTES : 0);
    if (fd >= 0)
        close(fd);
    if (n <= 0)
        return;
    text[n] = '\0';
    if (st.st_size > KEPT_BYTES)
        strsep(&rest, "\n");             /* the middle of one */
    while ((line = strsep(&rest, "\n")) != NULL) {
        str_mend(line, strlen(line));    /* whoever wrote it */
        if (line[0] != '\0')
            keep_recent(line);
    }
}

/* --- the writer thread ---------------------------------------------------------------------- */

/* With the lock held on entry and exit; the open itself is made without it. */
static void reopen_file(void)
{
    int fd, old;
    char *line;

    log_.reopen = false;
    if (log_.file == NULL)
        return;
    pthread_mutex_unlock(&log_.lock);
    fd = open(log_.file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640);
    pthread_mutex_lock(&log_.lock);
    if (fd < 0) {
        line = format_line(LOG_LEVEL_ERR, "log: the file could not be opened again; the old one stays in use");
        keep_recent(line);
        write_out(log_.fd, LOG_LEVEL_ERR, line);
        free(line);
        return;
    }
    old = log_.fd;
    log_.fd = fd;
    if (old != STDERR_FILENO)
        close(old);
}

/* By the thread alone. */
static void kept_open(void)
{
    struct stat st;

    log_.kept_fd = open(log_.kept, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640);
    log_.kept_bytes = log_.kept_fd >= 0 && fstat(log_.kept_fd, &st) == 0 ? (size_t)st.st_size : 0;
}

static void kept_write(const char *line)
{
    if (log_.kept_bytes > KEPT_BYTES) {
        char *older = mem_printf("%s.1", log_.kept);

        close(log_.kept_fd);
        if (rename(log_.kept, older) < 0)
            unlink(log_.kept);
        free(older);
        kept_open();
    }
    if (log_.kept_fd < 0)
        return;
    write_line(log_.kept_fd, line);
    log_.kept_bytes += strlen(line);
}

/* The line that tells how many were lost; it stands where they would have stood. */
static struct line loss_line(void)
{
    char text[80];

    snprintf(text, sizeof(text), "log: %lu lines lost, the queue was full", log_.lost);
    log_.lost = 0;
    return (struct line){ LOG_LEVEL_WARNING, format_line(LOG_LEVEL_WARNING, text) };
}

static struct line next_line(void)
{
    struct line line;

    if (log_.n == 0)
        return loss_line();
    line = log_.queue[log_.head];
    log_.head = (log_.head + 1) % QUEUE_MAX;
    log_.n--;
    return line;
}

static void *writer(void *arg)
{
    (void)arg;
    pthread_mutex_lock(&log_.lock);
    for (;;) {
        while (log_.n == 0 && log_.lost == 0 && !log_.stop && !log_.reopen)
            pthread_cond_wait(&log_.work, &log_.lock);
        if (log_.reopen) {                  /* before what waits: a log that never rests is turned too */
            reopen_file();
        } else if (log_.n > 0 || log_.lost > 0) {
            struct line line = next_line();
            int fd = log_.fd;       /* only this thread changes it */
            bool kept = log_.kept != NULL;

            pthread_mutex_unlock(&log_.lock);
            write_out(fd, line.level, line.text);
            if (kept)
                kept_write(line.text);
            free(line.text);
            pthread_mutex_lock(&log_.lock);
        } else {
            break;
        }
    }
    log_.done = true;
    pthread_cond_signal(&log_.idle);
    pthread_mutex_unlock(&log_.lock);
    return NULL;
}

/* --- opening and closing -------------------------------------------------------------------- */

static void fork_prepare(void) { pthread_mutex_lock(&log_.lock); }
static void fork_parent(void)  { pthread_mutex_unlock(&log_.lock); }

/* The child has no writer thread: what is queued belongs to the parent. */
static void fork_child(void)
{
    log_.threaded = false;
    log_.n = log_.lost = 0;
    pthread_mutex_unlock(&log_.lock);
}

static int start_writer(struct err *e)
{
    static bool once;
    sigset_t all, old;
    int r;

    if (!once)
        pthread_atfork(fork_prepare, fork_parent, fork_child);
    once = true;
    log_.stop = log_.done = log_.reopen = false;
    /* signals belong to the program's own threads, and a reader that went away must not end it */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    r = pthread_create(&log_.thread, NULL, writer, NULL);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (r != 0) {
        errno = r;
        return err_errno(e, ERR_FAILED, "log: no thread");
    }
    log_.threaded = true;
    return 0;
}

/* JOURNAL_STREAM names device and inode of what the journal reads; stderr may have been sent elsewhere since. */
static bool is_journal(int fd)
{
    const char *named = getenv("JOURNAL_STREAM");
    unsigned long long dev, ino;
    struct stat st;

    return named != NULL && sscanf(named, "%llu:%llu", &dev, &ino) == 2 && fstat(fd, &st) == 0 && st.st_dev == dev && st.st_ino == ino;
}

int log_open(const char *program, const char *file, enum log_level level, struct err *e)
{
    int fd = STDERR_FILENO;

    log_close();
    if (file != NULL) {
        fd = open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640);
        if (fd < 0)
            return err_errno(e, ERR_FAILED, "log file %s", file);
    }
    pthread_mutex_lock(&log_.lock);
    snprintf(log_.program, sizeof(log_.program), "%s", program);
    log_.file = mem_strdup(file);
    log_.fd = fd;
    log_.level = level;
    log_.journal = file == NULL && is_journal(STDERR_FILENO);
    pthread_mutex_unlock(&log_.lock);
    return start_writer(e);
}

int log_keep(const char *path, struct err *e)
{
    char *older = mem_printf("%s.1", path), *now[RECENT_MAX];
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640), rc = 0;
    size_t n = 0;

    pthread_mutex_lock(&log_.lock);
    if (log_.kept != NULL)
        goto done;
    if (fd < 0) {
        rc = err_errno(e, ERR_FAILED, "the last lines cannot be kept in %s", path);
        goto done;
    }
    for (size_t i = 0; i < RECENT_MAX; i++) {        /* what this process said comes after what is read */
        char **slot = &log_.recent[(log_.recent_next + i) % RECENT_MAX];

        if (*slot != NULL)
            now[n++] = *slot;
        *slot = NULL;
    }
    recall(older);
    recall(path);
    for (size_t i = 0; i < n; i++) {
        keep_recent(now[i]);
        free(now[i]);
    }
    log_.kept = mem_strdup(path);
    kept_open();
done:
    pthread_mutex_unlock(&log_.lock);
    if (fd >= 0)
        close(fd);
    free(older);
    return rc;
}

/* Waits for the writer until a second has passed; a writer stuck in a hanging disk is left to itself. */
static bool writer_ended(void)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec++;
    while (!log_.done)
        if (pthread_cond_clockwait(&log_.idle, &log_.lock, CLOCK_MONOTONIC, &until) != 0)
            break;
    return log_.done;
}

void log_close(void)
{
    bool ended;

    pthread_mutex_lock(&log_.lock);
    if (!log_.threaded) {
        pthread_mutex_unlock(&log_.lock);
        return;
    }
    log_.stop = true;
    log_.threaded = false;
    pthread_cond_signal(&log_.work);
    ended = writer_ended();
    pthread_mutex_unlock(&log_.lock);
    if (!ended) {
        pthread_detach(log_.thread);
        return;
    }
    pthread_join(log_.thread, NULL);
    pthread_mutex_lock(&log_.lock);
    if (log_.fd != STDERR_FILENO)
        close(log_.fd);
    log_.fd = STDERR_FILENO;
    free(log_.file);
    log_.file = NULL;
    if (log_.kept_fd >= 0)
        close(log_.kept_fd);
    log_.kept_fd = -1;
    free(log_.kept);
    log_.kept = NULL;
    for (size_t i = 0; i < RECENT_MAX; i++) {
        free(log_.recent[i]);
        log_.recent[i] = NULL;
    }
    log_.recent_next = 0;
    pthread_mutex_unlock(&log_.lock);
}

int log_reopen(struct err *e)
{
    int r = 0;

    pthread_mutex_lock(&log_.lock);
    if (log_.threaded) {
        log_.reopen = true;
        pthread_cond_signal(&log_.work);
    } else {
        r = err_set(e, ERR_STATE, "log: it is not open");
    }
    pthread_mutex_unlock(&log_.lock);
    return r;
}

void log_set_level(enum log_level level)
{
    pthread_mutex_lock(&log_.lock);
    log_.level = level;
    pthread_mutex_unlock(&log_.lock);
}

/* --- writing -------------------------------------------------------------------------------- */

static void push(struct line line)
{
    log_.queue[(log_.head + log_.n++) % QUEUE_MAX] = line;
    pthread_cond_signal(&log_.work);
}

static void enqueue(struct line line)
{
    if (log_.n + (log_.lost > 0) >= QUEUE_MAX) {
        log_.lost++;
        free(line.text);
        return;
    }
    if (log_.lost > 0)
        push(loss_line());
    push(line);
}

void log_write(enum log_level level, const char *fmt, ...)
{
    char text[LINE_MAX_BYTES], *line, *flat;
    va_list ap;
    int saved = errno;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    flat = flatten(text);
    pthread_mutex_lock(&log_.lock);
    if (level <= log_.level) {
        line = format_line(level, flat);
        keep_recent(line);
        if (log_.threaded) {
            enqueue((struct line){ level, line });
        } else {
            write_out(STDERR_FILENO, level, line);
            free(line);
        }
    }
    pthread_mutex_unlock(&log_.lock);
    free(flat);
    errno = saved;
}

void log_last_word(const char *text)
{
    log_write(LOG_LEVEL_ERR, "%s", text);
    if (log_.file != NULL)
        fprintf(stderr, "%s: %s\n", log_.program, text);
}

void log_die(const struct err *e)
{
    log_last_word(e->text);
    log_close();
    exit(e->code != ERR_NONE ? (int)e->code : (int)ERR_FAILED);
}

void log_recent(void (*fn)(void *arg, const char *line), void *arg)
{
    char *lines[RECENT_MAX];
    size_t n = 0;

    pthread_mutex_lock(&log_.lock);
    for (size_t i = 0; i < RECENT_MAX; i++) {
        const char *line = log_.recent[(log_.recent_next + i) % RECENT_MAX];

        if (line != NULL)
            lines[n++] = mem_strdup(line);
    }
    pthread_mutex_unlock(&log_.lock);
    for (size_t i = 0; i < n; i++) {
        lines[i][strcspn(lines[i], "\n")] = '\0';
        fn(arg, lines[i]);
        free(lines[i]);
    }
}
