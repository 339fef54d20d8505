/* device_test.c - a device and its memory: pinned in chunks or not at all, taken once, copied to only where it must be; which backend ran and why */
#include "device_fake.h"

#include <sys/mman.h>
#include <sys/resource.h>

static const char *const gpus[] = { "cuda", "hip", "opencl" };

static struct tf many_digits(void)
{
    static struct digit d[3000];
    uint64_t s = 7;

    for (unsigned i = 0; i < 3000; i++)
        d[i] = (struct digit){ (uint8_t)(i / 84), (uint8_t)(i * 11 % 152), (uint8_t)(i % 60 + 1), (uint16_t)(rnd(&s) % 800),
                               (uint16_t)(20 + rnd(&s) % 2000) };
    return tf_of(d, 3000, 2);
}

static struct pipeline *made(const struct pipeline_conf *c)
{
    struct k_err e = { 0 };
    struct pipeline *p = pipeline_create(c, &e);
    if (p == NULL)
        fail_msg("%s", e.text);
    return p;
}

static struct pipeline_result ran(struct pipeline *p, const struct tf *tf)
{
    struct k_err e = { 0 };
    struct pipeline_result r;
    if (run_tf(p, tf, &r, &e) < 0)
        fail_msg("%s", e.text);
    return r;
}

static uint64_t digest_on_cpu(const struct tf *tf)
{
    struct pipeline *p = pipeline_of("cluster", NULL);
    struct pipeline_result r = ran(p, tf);
    pipeline_destroy(p);
    return r.digest;
}

/* ---- pinning ------------------------------------------------------------------------------ */

/* 70 000 pieces of 4 KiB, the TF in the midst of them; most of it is never touched. */
enum { PAGE = 4096, PIECES = 70000 };

static char *buffer_with(const struct tf *tf, size_t at)
{
    char *p = mmap(NULL, (size_t)PIECES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_ptr_not_equal(p, MAP_FAILED);
    memcpy(p + at, tf->data, tf->size);
    return p;
}

static void test_B64_70000_pieces(void **state)
{
    (void)state;
    struct tf tf = many_digits();
    char *buffer = buffer_with(&tf, 12345);
    struct tf there = { (uint8_t *)buffer + 12345, tf.size };
    struct pipeline_conf c = { .workflow = "cluster", .backends = "cuda", .options = "decode.batch=4K",
                               .pin = { buffer, (uint64_t)PIECES * PAGE, PAGE, true } };

    fake_reset();
    struct pipeline *p = made(&c);
    assert_int_equal(fake.regions, PIECES);
    struct pipeline_result r = ran(p, &there);
    assert_int_equal(r.digest, digest_on_cpu(&tf));
    assert_int_equal(r.stage[0].host->wanted, (uint64_t)PIECES * PAGE);
    assert_int_equal(r.stage[0].host->pinned, (uint64_t)PIECES * PAGE);
    assert_int_equal(r.stage[0].host->chunks, PIECES);
    assert_string_equal(r.stage[0].host->why, "");
    pipeline_destroy(p);
    assert_int_equal(fake.regions, 0);
    assert_int_equal(fake.unpins, PIECES);
    assert_false(fake.bad);                      /* no copy reached across two pieces */
    munmap(buffer, (size_t)PIECES * PAGE);
    free(tf.data);
}

/* The n-th registration is refused: what stands is rolled back, the limits are named, and the TF goes through the ring. */
static void refused_at(unsigned n, const struct tf *tf)
{
    char *buffer = buffer_with(tf, 0);
    struct tf there = { (uint8_t *)buffer, tf->size };
    struct pipeline_conf c = { .workflow = "cluster", .backends = "cuda", .pin = { buffer, (uint64_t)PIECES * PAGE, PAGE, true } };
    struct k_err e;

    fake_reset();
    fake.pin_count = n;
    struct pipeline *p = made(&c);
    assert_int_equal(fake.pins, n);
    assert_int_equal(fake.unpins, n);
    assert_int_equal(fake.regions, 0);
    struct pipeline_result r = ran(p, &there);
    const struct khost_report *h = r.stage[1].host;
    assert_int_equal(r.digest, digest_on_cpu(tf));
    assert_int_equal(h->wanted, (uint64_t)PIECES * PAGE);
    assert_int_equal(h->pinned, 0);
    assert_int_equal(h->chunks, 0);
    assert_true(h->ring > 0);
    char at[64];
    snprintf(at, sizeof at, "at byte %u of %u", n * PAGE, PIECES * PAGE);
    assert_non_null(strstr(h->why, at));
    assert_non_null(strstr(h->why, "limited to 65536 bytes (ulimit -l, LimitMEMLOCK=)"));
    assert_non_null(strstr(h->why, "vm.max_map_count"));
    /* not one copy came from the buffer itself */
    for (unsigned i = 0; i < fake.calls; i++)
        assert_false(fake.call[i].what == FAKE_IN && (const char *)fake.call[i].from >= buffer &&
                     (const char *)fake.call[i].from < buffer + (size_t)PIECES * PAGE);
    pipeline_destroy(p);
    assert_false(fake.bad);

    /* where it must be pinned it goes no further */
    c.pin_must = true;
    assert_null(pipeline_create(&c, &e));
    assert_int_equal(e.code, K_ENOMEM);
    assert_non_null(strstr(e.text, "stage decode: 286720000 bytes are to be pinned for device 0000:40:00.0"));
    assert_non_null(strstr(e.text, "ulimit -l"));
    assert_int_equal(fake.regions, 0);
    munmap(buffer, (size_t)PIECES * PAGE);
}

static void test_B64_refused_under_memlock(void **state)
{
    (void)state;
    struct tf tf = many_digits();
    struct rlimit old, low = { 65536, 65536 };

    getrlimit(RLIMIT_MEMLOCK, &old);
    low.rlim_max = old.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &low), 0);
    refused_at(65530, &tf);
    refused_at(0, &tf);
    refused_at(1, &tf);
    setrlimit(RLIMIT_MEMLOCK, &old);
    free(tf.data);
}

/* One call takes so many bytes at most: whole it is refused, in chunks it is taken. */
static void test_B64_above_a_size(void **state)
{
    (void)state;
    struct tf tf = many_digits();
    char *buffer = buffer_with(&tf, 0);
    struct pipeline_conf c = { .workflow = "decode", .backends = "cuda", .pin = { buffer, (uint64_t)PIECES * PAGE, 0, false } };

    fake_reset();
    fake.pin_most = 100 << 20;
    struct pipeline *p = made(&c);
    struct pipeline_result r;
    pipeline_describe(p, &r);
    assert_int_equal(r.stage[0].host->pinned, 0);
    pipeline_destroy(p);
    c.pin.chunk = 100 << 20;
    p = made(&c);
    pipeline_describe(p, &r);
    assert_int_equal(r.stage[0].host->pinned, (uint64_t)PIECES * PAGE);
    assert_int_equal(r.stage[0].host->chunks, 3);
    assert_int_equal(fake.region[2].size, (size_t)PIECES * PAGE - (200u << 20));
    pipeline_destroy(p);
    munmap(buffer, (size_t)PIECES * PAGE);
    free(tf.data);
}

/* Several pipelines of one process use one buffer: it is registered once, and as long as one of them lives. */
static void test_pinned_once(void **state)
{
    (void)state;
    struct tf tf = many_digits();
    char *buffer = buffer_with(&tf, 0);
    struct pipeline_conf c = { .workflow = "decode", .backends = "cuda", .pin = { buffer, 10 * PAGE, 4 * PAGE, false } };

    fake_reset();
    struct pipeline *p = made(&c), *q = made(&c);
    struct pipeline_result r;
    assert_int_equal(fake.pins, 3);
    pipeline_describe(q, &r);
    assert_int_equal(r.stage[0].host->pinned, 10 * PAGE);
    assert_int_equal(r.stage[0].host->chunks, 3);
    pipeline_destroy(p);
    assert_int_equal(fake.regions, 3);
    pipeline_destroy(q);
    assert_int_equal(fake.regions, 0);
    assert_int_equal(fake.unpins, 3);
    assert_false(fake.bad);
    munmap(buffer, (size_t)PIECES * PAGE);
    free(tf.data);
}

/* ---- memory ------------------------------------------------------------------------------- */

static void test_taken_once(void **state)
{
    (void)state;
    struct tf tf = many_digits();
    struct pipeline_conf c = { .workflow = "cluster", .backends = "cuda", .options = "decode.batch=4K" };
    unsigned begun = 0, counts = 0;

    fake_reset();
    struct pipeline *p = made(&c);
    begun = fake.calls;
    ran(p, &tf);
    unsigned first = begun;
    while (fake.call[first].what == FAKE_ALLOC)
        first++;
    assert_true(first > begun);
    assert_int_equal(fake_calls(first, fake.calls, FAKE_ALLOC), 0);      /* all of it before anything else */
    for (unsigned i = first; i < fake.calls; i++)
        counts += fake.call[i].what == FAKE_LAUNCH && strcmp(fake.call[i].kernel, "k_decode_count") == 0;
    assert_true(counts > 5);
    begun = fake.calls;
    ran(p, &tf);
    assert_int_equal(fake_calls(begun, fake.calls, FAKE_ALLOC), 0);
    pipeline_destroy(p);
    free(tf.data);
}

/* One link: the error says what would do, and that does, not a byte less. */
static void test_needed_size(void **state)
{
    (void)state;
    struct tf all = many_digits(), tf = tf_links(&all, 4, 4);
    struct pipeline_conf c = { .workflow = "cluster", .backends = "cuda", .memory_limit = 20000 };
    struct pipeline_result r;
    struct k_err e = { 0 };

    fake_reset();
    struct pipeline *p = made(&c);
    assert_int_equal(run_tf(p, &tf, &r, &e), -1);
    assert_int_equal(e.code, K_ENOMEM);
    assert_true(e.need > 20000);
    assert_non_null(strstr(e.text, "bytes are needed in all"));
    pipeline_destroy(p);
    c.memory_limit = e.need - 1;
    p = made(&c);
    assert_int_equal(run_tf(p, &tf, &r, &e), -1);
    pipeline_destroy(p);
    c.memory_limit = e.need;
    p = made(&c);
    r = ran(p, &tf);
    assert_int_equal(r.digest, digest_on_cpu(&tf));
    pipeline_destroy(p);
    free(tf.data);
    free(all.data);
}

static void test_larger_than_the_device(void **state)
{
    (void)state;
    struct tf tf = many_digits();
    uint64_t want = digest_on_cpu(&tf), limit = 4 << 20;
    unsigned before = 0, counts = 1;

    /* ever less memory, ever more pieces, one answer; until one link is too much */
    for (bool done = false; !done; limit -= limit / 4) {
        struct pipeline_conf c = { .workflow = "cluster", .backends = "cuda", .memory_limit = limit };
        struct pipeline_result r;
        struct k_err e = { 0 };
        fake_reset();
        struct pipeline *p = made(&c);
        done = run_tf(p, &tf, &r, &e) < 0;
        if (done)
            assert_int_equal(e.code, K_ENOMEM);
        else
            assert_int_equal(r.digest, want);
        before = counts, counts = 0;
        for (unsigned i = 0; i < fake.calls; i++)
            counts += fake.call[i].what == FAKE_LAUNCH && strcmp(fake.call[i].kernel, "k_decode_count") == 0;
        assert_true(done || counts >= before);
        pipeline_destroy(p);
    }
    assert_true(before > 10);
    free(tf.data);
}

/* ---- copies ------------------------------------------------------------------------------- */

/* The next batch's pages go on a queue of their own before the kernels of this batch were waited for. */
static void test_two_queues(void **state)
{
    (void)state;
    struct tf tf = many_digits();
    struct pipeline_conf c = { .workflow = "cluster", .backends = "cuda", .options = "decode.batch=4K" };
    unsigned kernels = 0, ahead = 0, batches = 0, overlapped = 0;
    bool waited = true;

    fake_reset();
    struct pipeline *p = made(&c);
    fake.calls = 0;
    struct pipeline_result r = ran(p, &tf);
    assert_int_equal(r.digest, digest_on_cpu(&tf));
    for (unsigned i = 0; i < fake.calls; i++) {
        const struct fake_call *x = &fake.call[i];
        if (x->what == FAKE_LAUNCH && strcmp(x->kernel, "k_decode_count") == 0) {
            kernels = x->queue;
            assert_true(waited);                 /* for the copies of its own pages */
            batches++;
            waited = false;
            ahead = 0;
        } else if (x->what == FAKE_IN && batches > 0 && x->queue != kernels) {
            ahead++;
        } else if (x->what == FAKE_WAIT_FOR) {
            assert_int_equal(x->queue, kernels);
            waited = true;
        } else if (x->what == FAKE_LAUNCH && strcmp(x->kernel, "k_decode_fill") == 0) {
            overlapped += ahead > 0;
        }
    }
    assert_true(batches > 5);
    assert_int_equal(overlapped, batches - 1);
    pipeline_destroy(p);
    free(tf.data);
}

/* What crosses to the device, stage by stage, for a choice of backends. */
static void copies(const struct tf *tf, const char *backends, uint64_t in[2], uint64_t out[2], size_t *counted)
{
    struct pipeline_conf c = { .workflow = "cluster", .backends = backends };

    fake_reset();
    struct pipeline *p = made(&c);
    fake.calls = 0;
    struct pipeline_result r = ran(p, tf);
    for (int i = 0; i < 2; i++) {
        in[i] = r.stage[i].bytes_in;
        out[i] = r.stage[i].bytes_out;
    }
    counted[0] = fake_bytes(0, fake.calls, FAKE_IN);
    counted[1] = fake_bytes(0, fake.calls, FAKE_OUT);
    pipeline_destroy(p);
}

static void test_data_move_where_the_backend_changes(void **state)
{
    (void)state;
    struct tf tf = many_digits();
    uint64_t in[2], out[2], rows = 36 * 152, n = 3000;
    size_t counted[2];

    copies(&tf, "cuda", in, out, counted);
    assert_int_equal(in[1], 0);                  /* the digits are there already */
    assert_int_equal(counted[0], in[0] + in[1]);
    assert_int_equal(counted[1], out[0] + out[1]);
    uint64_t pages = in[0], digits = out[0];
    assert_true(digits >= 5 * n + (rows + 1) * 4 && digits < 5 * n + (rows + 1) * 4 + 100);

    copies(&tf, "cuda,decode=cpu", in, out, counted);
    assert_true(in[1] >= 5 * n + (rows + 1) * 4);
    assert_int_equal(counted[0], in[1]);         /* of decode's pages nothing */
    assert_int_equal(counted[1], out[1]);

    copies(&tf, "cuda,cluster=cpu", in, out, counted);
    assert_int_equal(in[0], pages);
    assert_int_equal(counted[0], pages);
    assert_int_equal(counted[1], digits);        /* the digits leave it once, as they do anyway */

    copies(&tf, "cpu", in, out, counted);
    assert_int_equal(counted[0] + counted[1], 0);
    free(tf.data);
}

/* ---- the choice --------------------------------------------------------------------------- */

static void test_auto_says_what_ran_and_why(void **state)
{
    (void)state;
    struct tf tf = many_digits();
    struct pipeline_conf c = { .workflow = "cluster", .backends = "auto,decode=cpu", .threads = 1 };

    fake_reset();
    struct pipeline *p = made(&c);
    struct pipeline_result r = ran(p, &tf);
    assert_string_equal(r.stage[0].wanted, "cpu");
    assert_string_equal(r.stage[0].backend, "cpu");
    assert_null(r.stage[0].fallback);
    assert_string_equal(r.stage[1].wanted, "auto");
    assert_string_equal(r.stage[1].backend, "cuda");
    assert_null(r.stage[1].fallback);
    pipeline_destroy(p);

    fake.unfit = "its fan is off";
    p = made(&c);
    r = ran(p, &tf);
    assert_null(r.stage[0].fallback);
    assert_string_equal(r.stage[1].wanted, "auto");
    assert_string_equal(r.stage[1].backend, "cpu");
    assert_non_null(strstr(r.stage[1].fallback, "cuda: its fan is off"));
    for (int i = 0; i < 3; i++)
        assert_non_null(strstr(r.stage[1].fallback, gpus[i]));
    pipeline_destroy(p);

    fake.unfit = NULL;
    fake.devices = 0;
    p = made(&c);
    pipeline_describe(p, &r);
    assert_non_null(strstr(r.stage[1].fallback, "cuda: no card"));
    pipeline_destroy(p);
    free(tf.data);
}

static void test_gpu_fails_fast(void **state)
{
    (void)state;
    struct pipeline_conf c = { .workflow = "cluster", .backends = "gpu,decode=cpu", .threads = 1 };
    struct k_err e = { 0 };

    fake_reset();
    fake.unfit = "its fan is off";
    assert_null(pipeline_create(&c, &e));
    assert_int_equal(e.code, K_EDEVICE);
    assert_non_null(strstr(e.text, "stage cluster: gpu asked for"));
    assert_non_null(strstr(e.text, "cuda: its fan is off"));
    assert_non_null(strstr(e.text, "choices are auto, gpu, cpu, cuda, hip, opencl"));
    c.backends = "cuda";
    assert_null(pipeline_create(&c, &e));
    assert_non_null(strstr(e.text, "stage decode: "));
    assert_non_null(strstr(e.text, "its fan is off"));
}

/* The same is set up, however often, and one setting up does not change another. */
static void test_set_up_twice(void **state)
{
    (void)state;
    struct tf tf = many_digits();
    struct pipeline_conf c = { .workflow = "cluster", .backends = "gpu,cluster=cpu", .options = "cluster.qtot=9", .threads = 1 };
    struct pipeline *p[3];
    struct pipeline_result r[3], again;

    fake_reset();
    for (int i = 0; i < 3; i++) {
        p[i] = made(&c);
        r[i] = ran(p[i], &tf);
        assert_int_equal(r[i].digest, r[0].digest);
        assert_string_equal(r[i].stage[0].backend, "cuda");
        assert_string_equal(r[i].stage[1].backend, "cpu");
    }
    again = ran(p[0], &tf);
    assert_int_equal(again.digest, r[0].digest);
    for (int i = 0; i < 3; i++)
        pipeline_destroy(p[i]);
    free(tf.data);
}

/* The device list of the job names the GPU only; a CPU is there all the same, and decode stays on it. */
static void test_B73_cpu_stage_in_a_gpu_job(void **state)
{
    (void)state;
    struct tf tf = many_digits();
    static const char *const lists[] = { "decode=cpu,cluster=gpu", "cluster=gpu,decode=cpu", "auto,decode=cpu", "gpu,decode=cpu" };

    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        struct pipeline_conf c = { .workflow = "cluster", .backends = lists[i], .device = "0000:3f:00.0", .threads = 1 };
        fake_reset();
        fake.devices = 3;
        struct pipeline *p = made(&c);
        struct pipeline_result r = ran(p, &tf);
        assert_string_equal(r.stage[0].backend, "cpu");
        assert_string_equal(r.stage[1].backend, "cuda");
        assert_string_equal(r.stage[1].device, "0000:3f:00.0");
        assert_int_equal(r.digest, digest_on_cpu(&tf));
        pipeline_destroy(p);
    }
    free(tf.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_B64_70000_pieces), cmocka_unit_test(test_B64_refused_under_memlock),
        cmocka_unit_test(test_B64_above_a_size), cmocka_unit_test(test_pinned_once), cmocka_unit_test(test_taken_once),
        cmocka_unit_test(test_needed_size), cmocka_unit_test(test_larger_than_the_device), cmocka_unit_test(test_two_queues),
        cmocka_unit_test(test_data_move_where_the_backend_changes), cmocka_unit_test(test_auto_says_what_ran_and_why),
        cmocka_unit_test(test_gpu_fails_fast), cmocka_unit_test(test_B73_cpu_stage_in_a_gpu_job), cmocka_unit_test(test_set_up_twice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
