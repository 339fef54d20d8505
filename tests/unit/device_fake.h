/* device_fake.h - a device for tests of kernels/: the cpu backend under the name cuda, which writes down what it is asked for and refuses on request */
#ifndef DEVICE_FAKE_H
#define DEVICE_FAKE_H

#include "kernels_help.h"

#include "backend/bk_load.h"

enum fake_what { FAKE_ALLOC, FAKE_IN, FAKE_OUT, FAKE_LAUNCH, FAKE_RECORD, FAKE_WAIT_FOR };

struct fake_call {
    enum fake_what what;
    unsigned queue;              /* the first made is 1 */
    const char *kernel;
    const void *from;
    size_t size;
};

enum { FAKE_CALLS = 200000, FAKE_REGIONS = 80000 };

static struct fake {
    const struct bk_ops *cpu;
    int devices;                 /* that the driver finds */
    const char *unfit;           /* why the device cannot be used, or NULL */
    size_t pin_most;             /* bytes of one registration */
    unsigned pin_count;          /* registrations there may be */
    unsigned pins, unpins;       /* calls that were answered with 0 */
    struct { const char *p; size_t size; } region[FAKE_REGIONS];
    unsigned regions;
    bool bad;                    /* a registration twice, an end of what is none, a copy across two */
    struct fake_call call[FAKE_CALLS];
    unsigned calls, queues;
    struct { const void *q; unsigned number; } queue[64];
    struct { const void *kern; const char *name; } kern[64];
    unsigned kerns;
} fake;

static unsigned fake_queue(const struct bk_queue *q)
{
    for (unsigned i = 0; i < 64; i++) {
        if (fake.queue[i].q == q)
            return fake.queue[i].number;
    }
    return 0;
}

static void fake_note(struct fake_call c)
{
    if (fake.calls < FAKE_CALLS)
        fake.call[fake.calls++] = c;
}

static int fake_count(void)
{
    return fake.devices;
}

static int fake_describe(int i, struct bk_info *info, char *why, size_t room)
{
    if (i >= fake.devices || fake.unfit) {
        snprintf(why, room, "%s", fake.unfit ? fake.unfit : "no card");
        return -1;
    }
    *info = (struct bk_info){ .name = "fake card", .class = "sm_90", .driver = "fake", .numa = -1 };
    snprintf(info->id, sizeof info->id, "0000:%02x:00.0", 0x40 - i);
    return 0;
}

static int fake_open(int i, const struct bk_option *o, struct bk_dev **d, char *why, size_t room)
{
    struct bk_option one = *o;
    (void)i;
    one.threads = 1;
    return fake.cpu->open(0, &one, d, why, room);
}

static struct bk_mem *fake_alloc(struct bk_dev *d, size_t size)
{
    fake_note((struct fake_call){ .what = FAKE_ALLOC, .size = size });
    return fake.cpu->alloc(d, size);
}

static int fake_register(struct bk_dev *d, const void *p, size_t size, int read_only)
{
    (void)d, (void)read_only;
    if (size > fake.pin_most || fake.regions >= fake.pin_count)
        return -1;
    fake.bad |= fake.regions > 0 && fake.region[fake.regions - 1].p + fake.region[fake.regions - 1].size > (const char *)p;
    fake.region[fake.regions].p = p;
    fake.region[fake.regions++].size = size;
    fake.pins++;
    return 0;
}

static int fake_unregister(struct bk_dev *d, const void *p)
{
    (void)d;
    for (unsigned i = fake.regions; i-- > 0;) {
        if (fake.region[i].p == p) {
            fake.region[i] = fake.region[--fake.regions];
            fake.unpins++;
            return 0;
        }
    }
    fake.bad = true;
    return -1;
}

static struct bk_queue *fake_queue_new(struct bk_dev *d)
{
    struct bk_queue *q = fake.cpu->queue_new(d);
    unsigned i = fake.queues++ % 64;

    fake.queue[i].q = q;
    fake.queue[i].number = fake.queues;
    return q;
}

static struct bk_kern *fake_kern(struct bk_dev *d, const char *name)
{
    struct bk_kern *k = fake.cpu->kern(d, name);
    unsigned i = 0;

    while (i < fake.kerns && fake.kern[i].kern != k)
        i++;
    fake.kern[i].kern = k;
    fake.kern[i].name = name;
    fake.kerns = i == fake.kerns ? i + 1 : fake.kerns;
    return k;
}

/* As with the drivers: wholly in one registration, or in none at all. */
static void fake_copy_check(const char *p, size_t n)
{
    for (unsigned i = 0; i < fake.regions; i++) {
        const char *from = fake.region[i].p, *to = from + fake.region[i].size;
        bool touches = p < to && from < p + n, whole = p >= from && p + n <= to;
        fake.bad |= touches && !whole;
    }
}

static int fake_h2d(struct bk_queue *q, struct bk_mem *m, size_t offset, const void *p, size_t size)
{
    fake_copy_check(p, size);
    fake_note((struct fake_call){ .what = FAKE_IN, .queue = fake_queue(q), .from = p, .size = size });
    return fake.cpu->h2d(q, m, offset, p, size);
}

static int fake_d2h(struct bk_queue *q, void *p, struct bk_mem *m, size_t offset, size_t size)
{
    fake_note((struct fake_call){ .what = FAKE_OUT, .queue = fake_queue(q), .size = size });
    return fake.cpu->d2h(q, p, m, offset, size);
}

static int fake_launch(struct bk_queue *q, struct bk_kern *k, uint32_t groups, unsigned nargs, const struct bk_arg *args)
{
    const char *name = "";

    for (unsigned i = 0; i < fake.kerns; i++)
        name = fake.kern[i].kern == k ? fake.kern[i].name : name;
    fake_note((struct fake_call){ .what = FAKE_LAUNCH, .queue = fake_queue(q), .kernel = name });
    return fake.cpu->launch(q, k, groups, nargs, args);
}

static struct bk_event *fake_record(struct bk_queue *q)
{
    fake_note((struct fake_call){ .what = FAKE_RECORD, .queue = fake_queue(q) });
    return fake.cpu->record(q);
}

static int fake_wait_for(struct bk_queue *q, struct bk_event *e)
{
    fake_note((struct fake_call){ .what = FAKE_WAIT_FOR, .queue = fake_queue(q) });
    return fake.cpu->wait_for(q, e);
}

/* One usable card, nothing written down, nothing refused. */
static void fake_reset(void)
{
    static struct bk_ops ops;

    fake.cpu = bk_cpu_entry();
    ops = *fake.cpu;
    ops.name = "cuda";
    ops.async = 1;
    ops.count = fake_count;
    ops.describe = fake_describe;
    ops.open = fake_open;
    ops.alloc = fake_alloc;
    ops.host_register = fake_register;
    ops.host_unregister = fake_unregister;
    ops.queue_new = fake_queue_new;
    ops.kern = fake_kern;
    ops.h2d = fake_h2d;
    ops.d2h = fake_d2h;
    ops.launch = fake_launch;
    ops.record = fake_record;
    ops.wait_for = fake_wait_for;
    bk_register(&ops);
    fake.devices = 1;
    fake.unfit = NULL;
    fake.pin_most = SIZE_MAX;
    fake.pin_count = FAKE_REGIONS;
    fake.pins = fake.unpins = fake.regions = fake.calls = fake.queues = fake.kerns = 0;
    fake.bad = false;
}

/* How many calls of a kind from the a-th to the b-th. */
__attribute__((unused)) static unsigned fake_calls(unsigned a, unsigned b, enum fake_what what)
{
    unsigned n = 0;
    for (unsigned i = a; i < b; i++)
        n += fake.call[i].what == what;
    return n;
}

__attribute__((unused)) static size_t fake_bytes(unsigned a, unsigned b, enum fake_what what)
{
    size_t n = 0;
    for (unsigned i = a; i < b; i++)
        n += fake.call[i].what == what ? fake.call[i].size : 0;
    return n;
}

#endif
