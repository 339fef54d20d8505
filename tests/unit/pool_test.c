/* pool_test.c - whether a task waits for the world or for us */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <unistd.h>

#include "clock.h"
#include "pool.h"

static struct job { struct pool_task task; int fd; ssize_t got; atomic_bool stop; bool done; } job;

static void spin(struct pool_task *t)
{
    (void)t;
    while (!job.stop)
        ;
}

static void wait_for_a_byte(struct pool_task *t)
{
    char c;

    (void)t;
    job.got = read(job.fd, &c, 1);
}

static void done(struct pool_task *t)
{
    (void)t;
    job.done = true;
}

static bool comes_to(bool starved)
{
    int64_t until = clock_mono_ns() + 20 * CLOCK_SECOND;

    while ((job.task.thread == 0 || pool_task_starved(&job.task) != starved) && clock_mono_ns() < until)
        usleep(1000);
    return pool_task_starved(&job.task) == starved;
}

static void a_task_that_reads_is_told_from_one_without_a_processor(void **state)
{
    struct ev_loop *loop = ev_loop_new(0);
    struct err e;
    struct pool *p = pool_create(loop, "pool-test", 1, 0, &e);
    int fd[2];

    (void)state;
    assert_non_null(p);
    assert_int_equal(pipe(fd), 0);
    assert_false(pool_task_starved(&job.task));              /* it has not begun */

    job.task = (struct pool_task){ .run = spin, .done = done };
    pool_submit(p, &job.task);
    assert_true(comes_to(true));
    job.stop = true;
    while (!job.done)
        ev_run(loop, EVRUN_ONCE);
    assert_false(pool_task_starved(&job.task));              /* it is over */

    job.done = false;
    job.fd = fd[0];
    job.task = (struct pool_task){ .run = wait_for_a_byte, .done = done };
    pool_submit(p, &job.task);
    assert_true(comes_to(false));
    assert_int_equal(write(fd[1], "x", 1), 1);
    while (!job.done)
        ev_run(loop, EVRUN_ONCE);
    assert_int_equal(job.got, 1);

    close(fd[0]);
    close(fd[1]);
    assert_int_equal(pool_destroy(p, 10), 0);
    ev_loop_destroy(loop);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(a_task_that_reads_is_told_from_one_without_a_processor) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
