/* fence_test.c - the newest fence of each TF is remembered, older ones are not taken, memory is bounded; the devices' table; texts */
#include "config.h"
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "device.h"
#include "fence.h"
#include "worker.h"

static const struct tf_name a = { 1, 0, 10 }, b = { 1, 0, 11 }, as_job = { 0, 1, 10 };

static struct fence fence(uint64_t epoch, uint64_t attempt)
{
    return (struct fence){ epoch, attempt };
}

static void epochs_count_before_attempts(void **unused)
{
    (void)unused;
    assert_true(fence_cmp(fence(2, 1), fence(1, 9)) > 0);
    assert_true(fence_cmp(fence(1, 2), fence(1, 3)) < 0);
    assert_true(fence_cmp(fence(UINT64_MAX, 0), fence(0, UINT64_MAX)) > 0);
    assert_int_equal(fence_cmp(fence(4, 4), fence(4, 4)), 0);
}

static void older_fences_are_refused_and_equal_ones_once_taken(void **unused)
{
    (void)unused;
    struct fences *f = fences_create(100);

    assert_int_equal(fences_meet(f, a, fence(1, 2)), 1);
    assert_int_equal(fences_meet(f, a, fence(1, 2)), 1);         /* it was refused */
    fences_taken(f, a);
    assert_int_equal(fences_meet(f, a, fence(1, 2)), 0);
    assert_int_equal(fences_meet(f, a, fence(1, 1)), -1);
    assert_int_equal(fences_meet(f, b, fence(1, 1)), 1);         /* another TF */
    assert_int_equal(fences_meet(f, as_job, fence(1, 1)), 1);    /* the same number in a job */
    assert_int_equal(fences_meet(f, a, fence(2, 1)), 1);
    assert_int_equal(fences_meet(f, a, fence(1, 9)), -1);
    assert_int_equal(fences_count(f), 3);
    fences_destroy(f);
}

static void a_closed_run_is_forgotten_and_others_are_not(void **unused)
{
    (void)unused;
    struct fences *f = fences_create(100);

    fences_meet(f, a, fence(1, 5));
    fences_meet(f, as_job, fence(1, 5));
    fences_forget(f, 1, 0);
    assert_int_equal(fences_count(f), 1);
    assert_int_equal(fences_meet(f, a, fence(1, 1)), 1);
    assert_int_equal(fences_meet(f, as_job, fence(1, 1)), -1);
    fences_destroy(f);
}

static void beyond_the_limit_the_one_met_longest_ago_goes(void **unused)
{
    (void)unused;
    struct fences *f = fences_create(3);

    for (uint64_t i = 0; i < 3; i++)
        fences_meet(f, (struct tf_name){ 1, 0, i }, fence(1, 5));
    fences_meet(f, (struct tf_name){ 1, 0, 0 }, fence(1, 6));    /* met again: not the oldest any more */
    fences_meet(f, (struct tf_name){ 1, 0, 3 }, fence(1, 5));
    assert_int_equal(fences_count(f), 3);
    assert_int_equal(fences_meet(f, (struct tf_name){ 1, 0, 0 }, fence(1, 1)), -1);
    assert_int_equal(fences_meet(f, (struct tf_name){ 1, 0, 2 }, fence(1, 1)), -1);
    assert_int_equal(fences_meet(f, (struct tf_name){ 1, 0, 1 }, fence(1, 1)), 1);      /* forgotten */
    fences_destroy(f);
}

static void messages_without_their_fields_are_refused(void **unused)
{
    (void)unused;
    struct tf_id id;
    struct tf_name name;
    struct fence f;

    tf_id_fill(&id, a, fence(3, 4));
    assert_int_equal(tf_name_from(&id.tf, &name), 0);
    assert_int_equal(fence_from(&id.fence, &f), 0);
    assert_memory_equal(&name, &a, sizeof a);
    assert_int_equal(f.epoch, 3);
    assert_int_equal(f.attempt, 4);
    id.tf.job = 2;                                               /* run and job at once */
    assert_int_equal(tf_name_from(&id.tf, &name), -1);
    id.tf.job = id.tf.run = 0;
    assert_int_equal(tf_name_from(&id.tf, &name), -1);
    id.fence.has_epoch = 0;
    assert_int_equal(fence_from(&id.fence, &f), -1);
    assert_int_equal(fence_from(NULL, &f), -1);
    assert_int_equal(tf_name_from(NULL, &name), -1);
}

/* ---- the table of device.c ---------------------------------------------------------------------------- */

static void a_device_that_has_a_process_can_always_lose_it(void **unused)
{
    (void)unused;
    for (int s = 0; s < DEVICE_N_STATES; s++) {
        enum device_state to = DEVICE_N_STATES;
        int rc = device_next((enum device_state)s, DEVICE_GONE, &to);
        assert_int_equal(rc, s == DEVICE_DOWN ? -1 : 0);
        assert_int_equal(to, s == DEVICE_DOWN ? DEVICE_N_STATES : DEVICE_DOWN);
    }
}

static void every_state_can_be_reached_and_left(void **unused)
{
    (void)unused;
    unsigned reached = 1u << DEVICE_DOWN;

    for (int round = 0; round < DEVICE_N_STATES; round++) {
        for (int s = 0; s < DEVICE_N_STATES; s++) {
            for (int event = 0; event < DEVICE_N_EVENTS && (reached >> s & 1); event++) {
                enum device_state to;
                if (device_next((enum device_state)s, (enum device_event)event, &to) == 0)
                    reached |= 1u << to;
            }
        }
    }
    assert_int_equal(reached, (1u << DEVICE_N_STATES) - 1);
}

static void work_starts_only_on_an_idle_device_and_a_process_only_where_there_is_none(void **unused)
{
    (void)unused;
    enum device_state to;

    for (int s = 0; s < DEVICE_N_STATES; s++) {
        assert_int_equal(device_next((enum device_state)s, DEVICE_SPAWN, &to), s == DEVICE_DOWN ? 0 : -1);
        assert_int_equal(device_next((enum device_state)s, DEVICE_ASK, &to), s == DEVICE_IDLE ? 0 : -1);
        assert_int_equal(device_next((enum device_state)s, DEVICE_GO, &to), s == DEVICE_IDLE || s == DEVICE_SETUP ? 0 : -1);
        assert_int_equal(device_next((enum device_state)s, DEVICE_HELD_ON, &to), s == DEVICE_ENDING ? 0 : -1);
    }
}

/* ---- worker.c ------------------------------------------------------------------------------------------ */

static void text_from_elsewhere_is_escaped_and_cut_where_a_letter_ends(void **unused)
{
    (void)unused;
    char out[8];

    worker_text(out, sizeof out, "a\033b");
    assert_string_equal(out, "a\033b");                 /* raw: escaped only where it is shown */
    worker_text(out, sizeof out, "a\xff\\b");
    assert_string_equal(out, "a?\\b");
    worker_text(out, sizeof out, "aaaaaa\xc3\xa9");           /* two bytes, one too many */
    assert_string_equal(out, "aaaaaa");
    worker_text(out, sizeof out, "aaaaa\xc3\xa9");
    assert_string_equal(out, "aaaaa\xc3\xa9");
    worker_text(out, sizeof out, NULL);
    assert_string_equal(out, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(epochs_count_before_attempts),
        cmocka_unit_test(older_fences_are_refused_and_equal_ones_once_taken),
        cmocka_unit_test(a_closed_run_is_forgotten_and_others_are_not),
        cmocka_unit_test(beyond_the_limit_the_one_met_longest_ago_goes),
        cmocka_unit_test(messages_without_their_fields_are_refused),
        cmocka_unit_test(text_from_elsewhere_is_escaped_and_cut_where_a_letter_ends),
        cmocka_unit_test(a_device_that_has_a_process_can_always_lose_it),
        cmocka_unit_test(every_state_can_be_reached_and_left),
        cmocka_unit_test(work_starts_only_on_an_idle_device_and_a_process_only_where_there_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
