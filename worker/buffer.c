/* buffer.c - the shared file that holds TFs
 *
 * From: main.c (opens it), intake.c (takes ranges), device_talk.c (hands it to the reconstruction processes).  To: -.
 * Steps of opening, all in one thread: registry, open, lock, head of an earlier owner, room, length, map, place, reserve, fault. What fails gives
 * everything back. Another size later: the same from `room` on, for the tail alone; what fails leaves the old size. While the thread is at work the
 * loop reads nothing of this struct but `state`, what is atomic, and what stands above `task`.
 */
#include "config.h"
#include "buffer.h"

#include "clock.h"
#include "file.h"
#include "hugetlb.h"
#include "log.h"
#include "maps.h"
#include "mem.h"
#include "place.h"
#include "pool.h"
#include "room.h"
#include "segments.h"
#include "shm_layout.h"
#include "str.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHUNK (UINT64_C(64) << 20)               /* reserved and faulted at a time: some 30 ms, after which a stop is heard */

enum { OPEN_TURNS = 5 };

_Static_assert(sizeof(struct shm_head) <= SHM_HEAD, "the head fits in its page");

enum buffer_state { BUFFER_CLOSED, BUFFER_OPENING, BUFFER_OPEN, BUFFER_RESIZING };

struct buffer {
    struct ev_loop *loop;
    char    *shm_dir, *run_dir, *farm, *node, *room_root, *path;
    uint64_t wanted, domains;                    /* wanted: bytes of data, open or not */
    const char *huge_pages;
    bool     lock;
    void   (*opened)(void *arg, const struct err *why);
    void    *arg;
    struct pool *pool;
    struct ranges *ranges;
    enum buffer_state state;
    const char *word;
    uint64_t size, generation;                   /* as they are; of an open one */
    struct maps_pages pages;

    struct pool_task task;                       /* from here on the thread's while it opens */
    int      fd;
    bool     ours, adopted;                      /* ours: locked, so that it may be removed */
    uint8_t *map; uint64_t mapped;
    uint64_t page;                               /* of a shm_dir of type hugetlbfs; 0: of any other */
    uint64_t next_generation, freed;
    unsigned removed;
    uint64_t placed; char placed_text[64];       /* where the pages are */
    struct maps_pages next_pages;
    const char *trouble;
    struct err why;
    int      rc;
    atomic_bool stop;
    _Atomic uint64_t progress;                   /* progress: bytes reserved or faulted since the start */
};

static uint64_t whole(uint64_t size)
{
    return size / SHM_ALIGN * SHM_ALIGN;
}

struct buffer *buffer_create(const struct buffer_conf *conf, struct err *e)
{
    struct buffer *b = mem_zalloc(sizeof *b);

    b->loop = conf->loop;
    b->shm_dir = mem_strdup(conf->shm_dir);
    b->run_dir = mem_strdup(conf->run_dir);
    b->farm = mem_strdup(conf->farm);
    b->node = mem_strdup(conf->node);
    b->room_root = mem_strdup(conf->room_root);
    b->path = mem_printf("%s/sluice-%s-%s.buffer", conf->shm_dir, conf->farm, conf->node);
    b->wanted = whole(conf->size);
    b->huge_pages = conf->huge_pages;
    b->lock = conf->lock;
    b->opened = conf->opened;
    b->arg = conf->arg;
    b->fd = -1;
    b->word = "Starting";
    b->pool = pool_create(conf->loop, "buffer", 1, conf->nice, e);
    if (b->pool == NULL) {
        buffer_destroy(b, false);
        return NULL;
    }
    return b;
}

/* ---- in the thread ---------------------------------------------------------------------------- */

/* Of the file, with so many bytes of data: whole pages where those are huge. */
static uint64_t file_bytes(const struct buffer *b, uint64_t size)
{
    uint64_t page = b->page > 0 ? b->page : 1;

    return (SHM_HEAD + size + page - 1) / page * page;
}

static int trouble(struct buffer *b, const char *word)
{
    b->trouble = word;
    return -1;
}

/* Whether the file has its name yet: sluice shm clean may have removed it between our opening it and our lock. */
static bool has_name(const struct buffer *b, const struct stat *st)
{
    struct stat now;

    return lstat(b->path, &now) == 0 && now.st_dev == st->st_dev && now.st_ino == st->st_ino;
}

/* The file, locked. Another user's file or a link planted under our name is refused. */
static int open_once(struct buffer *b, struct stat *st, struct err *e)
{
    b->fd = open(b->path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (b->fd < 0) {
        err_errno(e, ERR_FAILED, "buffer %s cannot be opened", b->path);
        return trouble(b, "ShmFailed");
    }
    if (flock(b->fd, LOCK_EX | LOCK_NB) < 0) {
        err_set(e, ERR_STATE, "buffer %s: a worker of this farm and node holds it; one worker per farm and node name", b->path);
        return trouble(b, "ShmInUse");
    }
    if (fstat(b->fd, st) < 0 || !S_ISREG(st->st_mode) || st->st_uid != geteuid()) {
        err_set(e, ERR_STATE, "buffer %s: a regular file of this user wanted", b->path);
        return trouble(b, "ShmInUse");
    }
    return 0;
}

static int open_file(struct buffer *b, struct stat *st, struct err *e)
{
    for (int i = 0; i < OPEN_TURNS; i++) {
        if (open_once(b, st, e) < 0)
            return -1;
        if (has_name(b, st))
            return 0;
        close(b->fd);
        b->fd = -1;
    }
    err_set(e, ERR_STATE, "buffer %s: it is removed each time it is made", b->path);
    return trouble(b, "ShmFailed");
}

/* What is in the file from before: nothing, half a start (no head yet), or a buffer of ours whose owner is gone. */
static int adopt(struct buffer *b, const struct stat *st, struct err *e)
{
    static const struct shm_head none;
    struct shm_head h = { 0 };

    b->adopted = false;
    b->next_generation = 1;
    if (st->st_size > 0 && pread(b->fd, &h, sizeof h, 0) < 0) {
        err_errno(e, ERR_FAILED, "buffer %s: its head cannot be read", b->path);
        return trouble(b, "ShmFailed");
    }
    if (memcmp(&h, &none, sizeof h) == 0) {
        b->ours = true;
        return 0;
    }
    if (!segments_ours(&h, b->farm, b->node)) {
        err_set(e, ERR_STATE, "buffer %s: there is a file that is no buffer of node %s (version %d); it is left alone",
                b->path, b->node, SHM_VERSION);
        return trouble(b, "ShmInUse");
    }
    if (segments_owner_alive(&h)) {
        err_set(e, ERR_STATE, "buffer %s: its owner, pid %" PRIu64 ", lives; one worker per farm and node name",
                b->path, h.owner_pid);
        return trouble(b, "ShmInUse");
    }
    b->ours = true;
    b->next_generation = h.generation + 1;
    b->adopted = h.size == b->wanted && (uint64_t)st->st_size == file_bytes(b, b->wanted) && h.faulted == h.size;
    return 0;
}

static int check_room(struct buffer *b, const struct stat *st, struct err *e)
{
    struct room room;
    uint64_t have = (uint64_t)st->st_blocks * 512, wanted = b->page > 0 ? file_bytes(b, b->wanted) : b->wanted;

    if (room_measure(b->shm_dir, b->room_root, &room, e) < 0)
        return trouble(b, "ShmFailed");
    if (!b->lock)
        room.locked = ROOM_ANY;
    if (room_check(&room, b->shm_dir, wanted, have < wanted ? have : wanted, e) < 0 ||
        (str_equal(b->huge_pages, "must") && room_check_huge(b->shm_dir, b->room_root, b->wanted, e) < 0)) {
        err_prefix(e, "buffer %s", b->path);
        return trouble(b, "ShmShort");
    }
    return 0;
}

static int set_length(struct buffer *b, uint64_t bytes, struct err *e)
{
    if (ftruncate(b->fd, (off_t)bytes) == 0)
        return 0;
    err_errno(e, ERR_FAILED, "buffer %s: a size of %" PRIu64 " bytes", b->path, bytes);
    return trouble(b, "ShmFailed");
}

/* Mapped, and told where its pages are to come from: before the first of them is taken. NULL: e. */
static uint8_t *map_and_place(struct buffer *b, uint64_t bytes, struct err *e)
{
    struct err why;
    void *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, b->fd, 0);

    if (map == MAP_FAILED) {
        trouble(b, "ShmFailed");
        err_errno(e, ERR_FAILED, "buffer %s: %" PRIu64 " bytes cannot be mapped", b->path, bytes);
        return NULL;
    }
    if (!str_equal(b->huge_pages, "no") && b->page == 0 && madvise(map, bytes, MADV_HUGEPAGE) < 0)
        log_warning("buffer %s: no huge pages: %s", b->path, strerror(errno));
    if (place_memory(map, bytes, b->domains, &why) < 0)
        log_warning("buffer %s: %s", b->path, why.text);
    return map;
}

/* Takes the pages from the file system, so that no later access can find it full. */
static int reserve(struct buffer *b, uint64_t from, uint64_t to, struct err *e)
{
    for (uint64_t at = from; at < to && !b->stop; at += CHUNK) {
        uint64_t n = to - at < CHUNK ? to - at : CHUNK;
        int rc;
        do {
            rc = posix_fallocate(b->fd, (off_t)at, (off_t)n);
        } while (rc == EINTR);
        if (rc != 0) {
            char want[32], got[32];
            errno = rc;
            err_errno(e, ERR_STATE, "buffer %s: %s wanted, %s could be had", b->path,
                      str_size_text(to, want), str_size_text(at, got));
            return trouble(b, rc == ENOSPC || rc == EDQUOT || rc == ENOMEM || rc == EFBIG ? "ShmShort" : "ShmFailed");
        }
        b->progress += n;
    }
    return 0;
}

/* Touches every page from here: the page tables are filled. */
static void touch(uint8_t *p, uint64_t n)
{
    long page = sysconf(_SC_PAGESIZE);

#ifdef MADV_POPULATE_WRITE
    if (madvise(p, n, MADV_POPULATE_WRITE) == 0)
        return;
#endif
    for (uint64_t i = 0; i < n; i += (uint64_t)page) {
        volatile uint8_t *q = p + i;
        *q = *q;
    }
}

/* Pages that are there already are only mapped. */
static int fault(struct buffer *b, uint8_t *map, uint64_t to, struct err *e)
{
    for (uint64_t at = 0; at < to && !b->stop; at += CHUNK) {
        uint64_t n = to - at < CHUNK ? to - at : CHUNK;
        touch(map + at, n);
        b->progress += n;
    }
    if (b->stop) {
        err_set(e, ERR_STATE, "buffer %s: stopped while its pages were faulted", b->path);
        return trouble(b, "ShmFailed");
    }
    return 0;
}

static void write_head(struct buffer *b, uint8_t *map, const struct file_owner *self)
{
    struct shm_head h = {
        .magic = SHM_MAGIC, .version = SHM_VERSION, .head_size = sizeof h, .size = b->wanted,
        .generation = b->next_generation, .created = (uint64_t)clock_wall_ns(), .faulted = b->wanted,
    };

    h.owner_pid = (uint64_t)self->pid;
    h.owner_start = self->start;
    snprintf(h.owner_boot, sizeof h.owner_boot, "%s", self->boot_id);
    snprintf(h.farm, sizeof h.farm, "%s", b->farm);
    snprintf(h.node, sizeof h.node, "%s", b->node);
    memcpy(map, &h, sizeof h);
}

static void take_map(struct buffer *b, uint8_t *map)
{
    if (b->map != NULL)
        munmap(b->map, b->mapped);
    b->map = map;
    b->mapped = file_bytes(b, b->wanted);
    b->placed = place_pages(map, b->mapped, b->placed_text, sizeof b->placed_text);
    b->next_pages = maps_pages(map);
}

static void give_back(struct buffer *b)
{
    if (b->fd >= 0 && b->ours)
        unlink(b->path);                         /* first: to unmap hundreds of GiB takes longer than we may have */
    if (b->map != NULL)
        munmap(b->map, b->mapped);
    if (b->fd >= 0)
        close(b->fd);
    b->map = NULL;
    b->fd = -1;
    b->ours = false;
}

/* The file gets the wanted size: what there is from `from` on is taken, the rest stays as it is. Once it is cut only the end of the worker stops this. */
static int fill_file(struct buffer *b, uint64_t from, struct err *e)
{
    uint64_t to = file_bytes(b, b->wanted);
    struct file_owner self;
    uint8_t *map = file_owner_self(&self, e) < 0 ? NULL : map_and_place(b, to, e);

    if (map == NULL)
        return -1;
    if (set_length(b, to, e) < 0 || reserve(b, from, to, e) < 0 || fault(b, map, to, e) < 0) {
        munmap(map, to);
        return -1;
    }
    write_head(b, map, &self);
    take_map(b, map);
    return 0;
}

static int lock_pages(struct buffer *b, struct err *e)
{
    if (!b->lock || mlock(b->map, b->mapped) == 0)
        return 0;
    err_errno(e, ERR_STATE, "buffer %s: %" PRIu64 " bytes cannot be locked in memory", b->path, b->mapped);
    return trouble(b, "ShmShort");
}

static int open_steps(struct buffer *b, struct err *e)
{
    struct stat st;
    uint64_t left;

    b->trouble = "ShmFailed";
    b->ours = false;
    b->page = hugetlb_page(b->shm_dir, &left);
    if (file_mkdirs(b->run_dir, 0755, e) < 0 ||
        segments_take_over(b->run_dir, b->farm, b->node, b->path, &b->freed, &b->removed, e) < 0)
        return -1;
    if (open_file(b, &st, e) < 0 || adopt(b, &st, e) < 0 || check_room(b, &st, e) < 0)
        return -1;
    if (fill_file(b, 0, e) == 0 && lock_pages(b, e) == 0)
        return 0;
    return -1;
}

static void open_run(struct pool_task *t)
{
    struct buffer *b = CONTAINER_OF(t, struct buffer, task);

    b->rc = open_steps(b, &b->why);
    if (b->rc < 0)
        give_back(b);
}

/* What fails leaves the file as long as it was; what was faulted in vain goes with its tail. */
static int resize_steps(struct buffer *b, struct err *e)
{
    struct stat st;
    struct err ignored;

    if (fstat(b->fd, &st) < 0)
        return err_errno(e, ERR_FAILED, "buffer %s", b->path);
    if (b->wanted > b->size && check_room(b, &st, e) < 0)
        return -1;
    b->next_generation = b->generation + 1;
    if (fill_file(b, file_bytes(b, b->size), e) == 0) {
        if (lock_pages(b, &ignored) < 0)         /* there was room for it; it works all the same */
            log_warning("%s", ignored.text);
        return 0;
    }
    if (b->wanted > b->size && set_length(b, file_bytes(b, b->size), &ignored) < 0)
        log_warning("%s", ignored.text);
    return -1;
}

static void resize_run(struct pool_task *t)
{
    struct buffer *b = CONTAINER_OF(t, struct buffer, task);

    b->rc = resize_steps(b, &b->why);
}

/* ---- in the loop ------------------------------------------------------------------------------ */

static void say_place(const struct buffer *b)
{
    char wanted[200];

    if (!buffer_is_misplaced(b))
        return;
    place_domains_text(b->domains, wanted, sizeof wanted);
    log_warning("buffer %s: its pages are in domain %s, wanted %s", b->path, b->placed_text, wanted);
}

static void say_pages(const struct buffer *b)
{
    char huge[32], all[32];

    if (!str_equal(b->huge_pages, "no") && b->pages.huge < b->size)
        log_warning("buffer %s: %s of %s are in huge pages, the rest in small ones", b->path, str_size_text(b->pages.huge, huge), str_size_text(b->size, all));
}

/* It has the wanted size now. */
static void open_now(struct buffer *b)
{
    b->state = BUFFER_OPEN;
    b->word = "";
    b->size = b->wanted;
    b->generation = b->next_generation;
    b->pages = b->next_pages;
    ranges_destroy(b->ranges);
    b->ranges = ranges_create(b->size);
}

static void open_done(struct pool_task *t)
{
    struct buffer *b = CONTAINER_OF(t, struct buffer, task);

    b->state = BUFFER_CLOSED;
    if (t->dropped)
        return;
    if (b->removed > 0)
        log_info("buffer: %u left-over segments removed, %" PRIu64 " bytes freed", b->removed, b->freed);
    if (b->rc == 0) {
        open_now(b);
        log_info("buffer %s: %s, %" PRIu64 " bytes, generation %" PRIu64, b->path,
                 b->adopted ? "adopted" : "made", b->size, b->generation);
        say_place(b);
        say_pages(b);
    } else {
        b->word = b->trouble;
    }
    b->opened(b->arg, b->rc < 0 ? &b->why : NULL);
}

static void resize_done(struct pool_task *t)
{
    struct buffer *b = CONTAINER_OF(t, struct buffer, task);
    uint64_t before = b->size;

    b->state = BUFFER_OPEN;
    b->word = "";
    if (t->dropped)
        return;
    if (b->rc == 0) {
        open_now(b);
        log_info("buffer %s: from %" PRIu64 " to %" PRIu64 " bytes, generation %" PRIu64, b->path, before, b->size, b->generation);
        say_place(b);
        say_pages(b);
    } else {
        b->wanted = b->size;
        log_warning("buffer %s: stays at %" PRIu64 " bytes: %s", b->path, b->size, b->why.text);
    }
    b->opened(b->arg, b->rc < 0 ? &b->why : NULL);
}

void buffer_place(struct buffer *b, uint64_t domains)
{
    b->domains = domains;
}

int buffer_open(struct buffer *b, struct err *e)
{
    if (b->state != BUFFER_CLOSED)
        return err_set(e, ERR_STATE, "buffer %s is %s", b->path, b->state == BUFFER_OPENING ? "being opened" : "open");
    b->state = BUFFER_OPENING;
    b->word = "Starting";
    b->task.run = open_run;
    b->task.done = open_done;
    pool_submit(b->pool, &b->task);
    return 0;
}

int buffer_resize(struct buffer *b, uint64_t size, struct err *e)
{
    if (b->state == BUFFER_OPENING || b->state == BUFFER_RESIZING)
        return err_set(e, ERR_STATE, "buffer %s: it is being made", b->path);
    if (b->state == BUFFER_OPEN && ranges_used(b->ranges) > 0)
        return err_set(e, ERR_STATE, "buffer %s: %" PRIu64 " bytes of it are in use", b->path, ranges_used(b->ranges));
    b->wanted = whole(size);
    if (b->state == BUFFER_CLOSED)
        return buffer_open(b, e);
    b->state = BUFFER_RESIZING;
    b->word = "Resizing";
    b->task.run = resize_run;
    b->task.done = resize_done;
    pool_submit(b->pool, &b->task);
    return 0;
}

static void quiet(void *arg, const struct err *why)
{
    (void)arg, (void)why;
}

void buffer_destroy(struct buffer *b, bool remove)
{
    struct err e;

    if (b == NULL)
        return;
    b->opened = quiet;
    b->stop = true;
    if (pool_destroy(b->pool, 1) < 0)
        return;                                  /* the thread hangs in the kernel: what it uses stays */
    if ((b->state == BUFFER_OPEN || b->state == BUFFER_RESIZING) && remove) {
        b->ours = true;
        give_back(b);
        if (segments_forget(b->run_dir, b->path, &e) < 0)
            log_warning("buffer %s: %s", b->path, e.text);
    } else {
        b->ours = false;
        give_back(b);
    }
    ranges_destroy(b->ranges);
    free(b->shm_dir);
    free(b->run_dir);
    free(b->farm);
    free(b->node);
    free(b->room_root);
    free(b->path);
    free(b);
}

static bool is_there(const struct buffer *b)
{
    return b->state == BUFFER_OPEN || b->state == BUFFER_RESIZING;
}

bool buffer_is_open(const struct buffer *b)
{
    return b->state == BUFFER_OPEN;
}

const char *buffer_word(const struct buffer *b)
{
    return b->word;
}

const char *buffer_path(const struct buffer *b)
{
    return b->path;
}

uint64_t buffer_size(const struct buffer *b)
{
    return is_there(b) ? b->size : 0;
}

uint64_t buffer_generation(const struct buffer *b)
{
    return is_there(b) ? b->generation : 0;
}

uint64_t buffer_progress(const struct buffer *b)
{
    return b->progress;
}

bool buffer_was_adopted(const struct buffer *b)
{
    return b->state == BUFFER_OPEN && b->adopted;
}

uint64_t buffer_freed(const struct buffer *b)
{
    return b->state == BUFFER_OPENING ? 0 : b->freed;
}

uint64_t buffer_domains_wanted(const struct buffer *b)
{
    return b->domains;
}

const char *buffer_domains(const struct buffer *b)
{
    return b->state == BUFFER_OPEN ? b->placed_text : "";
}

bool buffer_is_misplaced(const struct buffer *b)
{
    return b->state == BUFFER_OPEN && b->domains != 0 && (b->placed & ~b->domains) != 0;
}

const char *buffer_huge_wanted(const struct buffer *b)
{
    return b->huge_pages;
}

uint64_t buffer_page_size(const struct buffer *b)
{
    return is_there(b) ? b->pages.size : 0;
}

uint64_t buffer_huge(const struct buffer *b)
{
    return is_there(b) ? b->pages.huge : 0;
}

struct ranges *buffer_ranges(struct buffer *b)
{
    return b->ranges;
}

void *buffer_at(struct buffer *b, uint64_t offset)
{
    return b->map + SHM_HEAD + offset;
}

int buffer_reader(const struct buffer *b, struct err *e)
{
    char name[64];

    snprintf(name, sizeof name, "/proc/self/fd/%d", b->fd);
    int fd = open(name, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_errno(e, ERR_FAILED, "buffer %s cannot be opened for reading", b->path);
    return fd;
}
