/* hold_test.c - parts held, pulled, released: every id and byte is accounted for */
#include "config.h"
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "hold.h"
#include "make_tf.h"

enum { MANY = 4000 };

/* The whole life of each id, kept beside the table. */
static struct mirror {
    bool     added, announced, pulled, released, freed;
    unsigned pins;
    uint64_t size;
    struct hold_fence fence;
} mirror[MANY + 1];
static unsigned freed_calls;

static void on_freed(void *arg, uint64_t id)
{
    (void)arg;
    assert_true(id >= 1 && id <= MANY);
    assert_true(mirror[id].released && mirror[id].pins == 0 && !mirror[id].freed);
    mirror[id].freed = true;
    freed_calls++;
}

static struct hold *fresh_table(void)
{
    memset(mirror, 0, sizeof mirror);
    freed_calls = 0;
    return hold_create(on_freed, NULL);
}

static void add(struct hold *h, uint64_t id, uint64_t size)
{
    hold_add(h, &(struct hold_part){ .id = id, .first_orbit = (uint32_t)id * 32, .size = size, .offset = id * 1000, .xxh3 = ~id });
    mirror[id] = (struct mirror){ .added = true, .size = size };
}

static void consecutive_parts_become_one_range_with_a_watermark(void **unused)
{
    (void)unused;
    struct hold *h = fresh_table();
    struct hold_range r[4];
    uint64_t sizes[16];
    uint32_t orbits[16];

    assert_int_equal(hold_watermark(h), 1);
    for (uint64_t id = 1; id <= 5; id++)
        add(h, id, id * 10);
    assert_int_equal(hold_watermark(h), 1);      /* 1 will still be announced */
    assert_int_equal(hold_announce(h, r, 4, sizes, orbits, 16), 1);
    assert_int_equal(r[0].first, 1);
    assert_int_equal(r[0].count, 5);
    assert_false(r[0].pulled);
    assert_int_equal(r[0].sizes[4], 50);
    assert_int_equal(r[0].orbits[4], 160);
    assert_int_equal(hold_watermark(h), 6);
    assert_int_equal(hold_announce(h, r, 4, sizes, orbits, 16), 0);
    hold_destroy(h);
}

static void an_announcement_is_cut_where_its_room_ends(void **unused)
{
    (void)unused;
    struct hold *h = fresh_table();
    struct hold_range r[2];
    uint64_t sizes[3], next = 1;
    uint32_t orbits[3];

    for (uint64_t id = 1; id <= 10; id++)
        add(h, id, 1);
    while (hold_waits(h)) {
        assert_int_equal(hold_watermark(h), next);
        assert_int_equal(hold_announce(h, r, 2, sizes, orbits, 3), 1);
        assert_int_equal(r[0].first, next);
        next += r[0].count;
    }
    assert_int_equal(next, 11);
    hold_destroy(h);
}

static void after_a_reconnect_everything_is_announced_as_fresh_or_by_whom(void **unused)
{
    (void)unused;
    struct hold *h = fresh_table();
    struct hold_range r[8];
    uint64_t sizes[16];
    uint32_t orbits[16];
    struct hold_part p;

    for (uint64_t id = 1; id <= 6; id++)
        add(h, id, 1);
    hold_announce(h, r, 8, sizes, orbits, 16);
    for (uint64_t id = 3; id <= 4; id++) {
        assert_int_equal(hold_pull(h, id, &(struct hold_fence){ 2, 1 }, "n1", &p), HOLD_OK);
        hold_unpin(h, id);
    }
    assert_int_equal(hold_pull(h, 5, &(struct hold_fence){ 2, 2 }, "n1", &p), HOLD_OK);
    hold_unpin(h, 5);
    mirror[2].released = true;
    hold_release(h, 2, 1);
    hold_announce_again(h);
    assert_int_equal(hold_announce(h, r, 8, sizes, orbits, 16), 4);
    assert_true(r[0].first == 1 && r[0].count == 1 && !r[0].pulled);
    assert_true(r[1].first == 3 && r[1].count == 2 && r[1].pulled && strcmp(r[1].node, "n1") == 0);
    assert_true(r[1].fence.epoch == 2 && r[1].fence.attempt == 1);
    assert_true(r[2].first == 5 && r[2].count == 1 && r[2].fence.attempt == 2);
    assert_true(r[3].first == 6 && !r[3].pulled);
    assert_int_equal(hold_watermark(h), 7);
    hold_destroy(h);
}

static void an_older_fence_is_refused_an_equal_one_served(void **unused)
{
    (void)unused;
    struct hold *h = fresh_table();
    struct hold_part p;

    add(h, 1, 7);
    assert_int_equal(hold_pull(h, 2, &(struct hold_fence){ 1, 1 }, "n1", &p), HOLD_GONE);
    assert_int_equal(hold_pull(h, 1, &(struct hold_fence){ 1, 5 }, "n1", &p), HOLD_OK);
    assert_int_equal(p.xxh3, ~UINT64_C(1));
    assert_int_equal(hold_pull(h, 1, &(struct hold_fence){ 1, 4 }, "n2", &p), HOLD_STALE);
    assert_int_equal(hold_pull(h, 1, &(struct hold_fence){ 1, 5 }, "n1", &p), HOLD_OK);
    assert_int_equal(hold_pull(h, 1, &(struct hold_fence){ 2, 1 }, "n3", &p), HOLD_OK);   /* the epoch counts first */
    assert_int_equal(hold_pull(h, 1, &(struct hold_fence){ 1, 99 }, "n1", &p), HOLD_STALE);
    hold_destroy(h);
}

static void released_in_a_transfer_it_is_freed_after_the_transfer(void **unused)
{
    (void)unused;
    struct hold *h = fresh_table();
    struct hold_part p;

    add(h, 1, 7);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(hold_pull(h, 1, &(struct hold_fence){ 1, 1 }, "n1", &p), HOLD_OK);
        mirror[1].pins++;
    }
    mirror[1].released = true;
    assert_int_equal(hold_release(h, 1, 1), 1);
    assert_int_equal(hold_release(h, 1, 1), 0);
    assert_int_equal(hold_pull(h, 1, &(struct hold_fence){ 1, 1 }, "n1", &p), HOLD_GONE);
    assert_int_equal(hold_count(h), 0);
    assert_int_equal(hold_in_use(h), 1);
    mirror[1].pins--;
    hold_unpin(h, 1);
    assert_int_equal(freed_calls, 0);
    mirror[1].pins--;
    hold_unpin(h, 1);
    assert_int_equal(freed_calls, 1);
    assert_int_equal(hold_in_use(h), 0);
    hold_destroy(h);
}

static void a_range_as_long_as_numbers_go_costs_what_is_held(void **unused)
{
    (void)unused;
    struct hold *h = fresh_table();

    for (uint64_t id = 1; id <= 100; id++) {
        add(h, id, 1);
        mirror[id].released = id >= 51;
    }
    assert_int_equal(hold_release(h, 51, UINT64_MAX), 50);
    assert_int_equal(hold_release(h, UINT64_MAX, UINT64_MAX), 0);
    assert_int_equal(hold_release(h, 1, 0), 0);
    assert_int_equal(hold_count(h), 50);
    hold_destroy(h);
}

static uint64_t expected(bool (*test)(const struct mirror *), bool bytes)
{
    uint64_t n = 0;
    for (int id = 1; id <= MANY; id++)
        n += test(&mirror[id]) ? bytes ? mirror[id].size : 1 : 0;
    return n;
}

static bool is_held(const struct mirror *m) { return m->added && !m->released; }
static bool is_in_use(const struct mirror *m) { return m->added && !m->freed; }

static void random_pull(struct hold *h, uint64_t id)
{
    struct mirror *m = &mirror[id];
    struct hold_fence f = { 1 + make_random(3), 1 + (uint32_t)make_random(3) };
    struct hold_part p;
    enum hold_answer want = !is_held(m) ? HOLD_GONE : m->pulled && hold_fence_cmp(&f, &m->fence) < 0 ? HOLD_STALE : HOLD_OK;

    assert_int_equal(hold_pull(h, id, &f, "n1", &p), want);
    if (want != HOLD_OK)
        return;
    assert_true(p.id == id && p.size == m->size && p.offset == id * 1000);
    m->pulled = true;
    m->fence = f;
    m->pins++;
}

static void random_release(struct hold *h, uint64_t last)
{
    uint64_t first = 1 + make_random(last), count = make_random(20), n = 0;

    for (uint64_t id = first; id < first + count && id <= MANY; id++) {
        n += is_held(&mirror[id]);
        mirror[id].released = mirror[id].released || mirror[id].added;
        mirror[id].announced = mirror[id].announced || mirror[id].added;   /* it never will be */
    }
    assert_int_equal(hold_release(h, first, count), n);
}

static void random_announce(struct hold *h)
{
    struct hold_range r[3];
    uint64_t sizes[20];
    uint32_t orbits[20];
    size_t n = hold_announce(h, r, 3, sizes, orbits, 1 + make_random(20));

    for (size_t i = 0; i < n; i++) {
        for (uint32_t k = 0; k < r[i].count; k++) {
            struct mirror *m = &mirror[r[i].first + k];
            assert_true(is_held(m) && !m->announced && m->pulled == r[i].pulled);
            assert_int_equal(r[i].sizes[k], m->size);
            assert_int_equal(r[i].orbits[k], (r[i].first + k) * 32);
            m->announced = true;
        }
    }
}

static void random_operations_conserve_ids_and_bytes(void **unused)
{
    (void)unused;
    struct hold *h = fresh_table();
    uint64_t last = 0;

    for (int step = 0; step < 40000; step++) {
        uint64_t id = last > 0 ? 1 + make_random(last) : 0;
        switch (make_random(id > 0 ? 6 : 1)) {
        case 0:
            if (last < MANY)
                add(h, ++last, make_random(1000));
            break;
        case 1:
            random_pull(h, id);
            break;
        case 2:
            if (mirror[id].pins > 0) {
                mirror[id].pins--;
                hold_unpin(h, id);
            }
            break;
        case 3:
            random_release(h, last);
            break;
        case 4:
            random_announce(h);
            break;
        case 5:
            if (make_random(50) == 0) {
                hold_announce_again(h);
                for (uint64_t i = 1; i <= last; i++)
                    mirror[i].announced = mirror[i].released;
            }
            break;
        }
        if (step % 97 == 0) {
            assert_int_equal(hold_count(h), expected(is_held, false));
            assert_int_equal(hold_in_use(h), expected(is_in_use, false));
            assert_int_equal(hold_bytes(h), expected(is_in_use, true));
        }
    }
    for (uint64_t id = 1; id <= last; id++) {
        for (; mirror[id].pins > 0;) {
            mirror[id].pins--;
            hold_unpin(h, id);
        }
        mirror[id].released = true;
    }
    hold_release(h, 1, UINT64_MAX);
    assert_int_equal(freed_calls, last);
    assert_int_equal(hold_bytes(h), 0);
    assert_int_equal(hold_in_use(h), 0);
    hold_destroy(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(consecutive_parts_become_one_range_with_a_watermark),
        cmocka_unit_test(an_announcement_is_cut_where_its_room_ends),
        cmocka_unit_test(after_a_reconnect_everything_is_announced_as_fresh_or_by_whom),
        cmocka_unit_test(an_older_fence_is_refused_an_equal_one_served),
        cmocka_unit_test(released_in_a_transfer_it_is_freed_after_the_transfer),
        cmocka_unit_test(a_range_as_long_as_numbers_go_costs_what_is_held),
        cmocka_unit_test(random_operations_conserve_ids_and_bytes),
    };
    make_seed();
    return cmocka_run_group_tests_name("hold", tests, NULL, NULL);
}
