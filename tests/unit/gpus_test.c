/* gpus_test.c - the real worker on a machine with (fake) GPUs: who is found, a driver that hangs, memory that does not come back; case B69 */
#include "config.h"
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "query.h"
#include "worker_help.h"

enum { SIZE = 100000 };

static struct farm f;
static char *input, *out, *shm, *gpus;
static uint64_t order_number;                    /* of what it was told last about parking */

static const char machine[] =
    "{\"devices\": [\n"
    "{\"backend\": \"hip\", \"id\": \"0000:c1:00.0\", \"class\": \"gfx906\", \"memory\": 34342961152, \"numa\": 1, \"usable\": true, \"why\": null},\n"
    "{\"backend\": \"hip\", \"id\": \"0000:03:00.0\", \"class\": \"gfx906\", \"memory\": 34342961152, \"numa\": 0, \"usable\": true, \"why\": null},\n"
    "{\"backend\": \"hip\", \"id\": \"0000:04:00.0\", \"class\": \"gfx906\", \"memory\": 34342961152, \"numa\": 0, \"usable\": false, \"why\": \"self-test\"},\n"
    "{\"backend\": \"hip\", \"id\": \"0000:05:00.0\", \"class\": \"gfx908\", \"memory\": 34342961152, \"numa\": 0, \"usable\": true, \"why\": null},\n"
    "{\"backend\": \"cuda\", \"id\": null, \"class\": null, \"memory\": null, \"numa\": null, \"usable\": false, \"why\": \"no driver\"}]}";

/* A file of the machine: NULL removes it. */
static void machine_has(const char *name, const char *text)
{
    char *path = mem_printf("%s/%s", gpus, name);
    struct err e;

    if (text == NULL)
        unlink(path);
    else
        assert_int_equal(file_replace(path, text, strlen(text), 0644, &e), 0);
    free(path);
}

static int setup(void **unused)
{
    (void)unused;
    farm_make(&f);
    order_number = 0;
    input = farm_path(&f, "input");
    out = farm_path(&f, "out");
    shm = farm_path(&f, "shm");
    gpus = farm_path(&f, "gpus");
    make_file(input, SIZE, 1);
    mkdir(gpus, 0777);
    machine_has("devices", machine);
    setenv("FAKE_GPUS", gpus, 1);
    return 0;
}

static int teardown(void **unused)
{
    (void)unused;
    if (f.pid > 0) {
        kill(f.pid, SIGTERM);
        assert_int_equal(farm_wait(&f, 4), 0);
    }
    unsigned left = farm_children(&f);
    farm_destroy(&f);
    free(input);
    free(out);
    free(shm);
    free(gpus);
    return left > 0;
}

static void start(const char *conf)
{
    farm_worker(&f, conf, shm, "gpu");
    struct note r = farm_take(&f, SLUICE__TYPE__REGISTER, 10);
    assert_non_null(r.m);
    note_free(&r);
}

static const Sluice__Device *device(const Sluice__Report *r, const char *serial)
{
    for (size_t i = 0; i < r->n_devices; i++) {
        if (strcmp(r->devices[i]->serial, serial) == 0)
            return r->devices[i];
    }
    return NULL;
}

static bool in_state(const Sluice__Report *r, const char *serial, Sluice__DeviceState state)
{
    const Sluice__Device *d = device(r, serial);
    return d != NULL && d->state == state;
}

static bool both_are_free(const Sluice__Report *r)
{
    return in_state(r, "0000:c1:00.0", SLUICE__DEVICE_STATE__DEVICE_FREE) && in_state(r, "0000:03:00.0", SLUICE__DEVICE_STATE__DEVICE_FREE);
}

static bool one_is_unclean(const Sluice__Report *r)
{
    return in_state(r, "0000:c1:00.0", SLUICE__DEVICE_STATE__DEVICE_UNCLEAN) && in_state(r, "0000:03:00.0", SLUICE__DEVICE_STATE__DEVICE_FREE);
}

static void assert_failed(uint64_t tf, const char *word)
{
    struct note n = farm_take(&f, SLUICE__TYPE__FAILED, 15);
    assert_non_null(n.m);
    assert_int_equal(((const Sluice__Failed *)n.m)->tf->id, tf);
    assert_string_equal(((const Sluice__Failed *)n.m)->word, word);
    note_free(&n);
    farm_verdict(&f, 0, 1, tf, 1, false, NULL, NULL);
}

/* The device that did it; valid until the next call. */
static const char *done_on(uint64_t tf)
{
    static char device_name[100];
    struct note n;

    farm_assign_file(&f, 1, tf, 1, input, 0, SIZE, "x");
    n = farm_take(&f, SLUICE__TYPE__DONE, 15);
    assert_non_null(n.m);
    assert_int_equal(((const Sluice__Done *)n.m)->tf->id, tf);
    snprintf(device_name, sizeof device_name, "%s", ((const Sluice__Done *)n.m)->device);
    note_free(&n);
    farm_verdict(&f, 0, 1, tf, 1, false, NULL, NULL);
    return device_name;
}

/* ---- who is there --------------------------------------------------------------------------- */

static void usable_devices_of_the_class_are_there_by_their_ids_and_no_others(void **unused)
{
    (void)unused;
    start(NULL);
    assert_true(farm_report(&f, both_are_free, 10));
    assert_int_equal(f.report->n_devices, 2);
    const Sluice__Device *d = device(f.report, "0000:c1:00.0");
    assert_string_equal(d->class_, "gpu");
    assert_string_equal(d->backend, "hip");
    assert_int_equal(d->memory, 34342961152);
    assert_int_equal(d->memory_baseline, 1000000);
    assert_false(d->emulated);
    farm_open(&f, 0, 1, "copy", out, 0);
    assert_non_null(device(f.report, done_on(1)));
}

static bool none_of_the_class(const Sluice__Report *r)
{
    return r->word != NULL && strcmp(r->word, "DeviceMissing") == 0 && strstr(r->trouble, "no device of architecture gfx906 can be used") != NULL &&
           strstr(r->trouble, "0000:04:00.0 gfx906 self-test") != NULL && strstr(r->trouble, "no driver") != NULL;
}

static void where_none_can_be_used_it_says_why(void **unused)
{
    (void)unused;
    char *text = mem_strdup(machine);

    for (char *p = text; (p = strstr(p, "gfx906\", \"memory\": 34342961152, \"numa\": 1")) != NULL; p++)
        memcpy(p, "gfx999", 6);
    char *other = strstr(text, "\"0000:03:00.0\", \"class\": \"gfx906");
    memcpy(strstr(other, "gfx906"), "gfx999", 6);
    machine_has("devices", text);
    start(NULL);
    assert_true(farm_report(&f, none_of_the_class, 10));
    assert_int_equal(f.report->n_devices, 0);
    free(text);
}

/* ---- a driver that does not answer ---------------------------------------------------------- */

static const char *wanted;                       /* in the trouble */

static bool says_wanted(const Sluice__Report *r)
{
    return r->word != NULL && strcmp(r->word, "DeviceQuery") == 0 && strstr(r->trouble, wanted) != NULL;
}

static void b68_a_query_that_hangs_dies_or_talks_nonsense_never_stops_the_worker(void **unused)
{
    static const struct { const char *how, *says; } bad[] = {
        { "hang", "device query stuck since" }, { "deaf", "device query stuck since" }, { "die", "Segmentation fault" },
        { "rubbish", "no JSON" }, { "much", "wrote more than" },
    };

    (void)unused;
    machine_has("query", bad[0].how);
    start("query_timeout = 0.8");
    for (unsigned i = 0; i < ARRAY_LEN(bad); i++) {
        machine_has("query", bad[i].how);
        wanted = i == 1 ? bad[0].says : bad[i].says;
        if (!farm_report(&f, says_wanted, 15))
            fail_msg("%s: the trouble is \"%s\"", bad[i].how, f.report->trouble);
        unsigned before = f.reports;
        if (i < 2)
            run_for(f.loop, 1.1);
        assert_true(i >= 2 || f.reports > before);           /* its heart beats while it waits, and says since when it does */
        assert_true(farm_children(&f) <= 1);                 /* no second one beside it */
    }
    assert_int_equal(f.report->n_devices, 0);
    machine_has("query", NULL);
    assert_true(farm_report(&f, both_are_free, 15));
    assert_string_equal(f.report->trouble, "");
    farm_open(&f, 0, 1, "copy", out, 0);
    done_on(1);
}

static bool one_is_stuck(const Sluice__Report *r)
{
    const Sluice__Device *d = device(r, "0000:c1:00.0");
    return one_is_unclean(r) && strstr(d->why, "device query stuck since") != NULL;
}

/* Takes the process of the first device away by a TF that crashes it, while the other one is busy. */
static void crash_on_the_first(const char *how, const char *word)
{
    Sluice__Settings m = SLUICE__SETTINGS__INIT;
    char *off[] = { (char *)"0000:03:00.0" };

    assert_true(farm_report(&f, both_are_free, 15));
    m.pool = (char *)"online";
    m.devices_off = off;
    m.n_devices_off = 1;
    chan_send(f.chan, 0, &m.base);               /* the other one gets nothing new */
    farm_open(&f, 0, 1, how, out, 0.5);
    farm_assign_file(&f, 1, 1, 1, input, 0, SIZE, "x");
    assert_failed(1, word);
    m.n_devices_off = 0;
    chan_send(f.chan, 0, &m.base);
    farm_open(&f, 0, 1, "copy", out, 0);
}

static void a_device_whose_memory_cannot_be_asked_for_is_not_offered(void **unused)
{
    (void)unused;
    start("query_timeout = 0.8");
    assert_true(farm_report(&f, both_are_free, 15));
    machine_has("query", "hang");
    crash_on_the_first("crash", "Crashed");
    assert_true(farm_report(&f, one_is_stuck, 15));
    assert_string_equal(done_on(2), "0000:03:00.0");
    machine_has("query", NULL);
    assert_true(farm_report(&f, both_are_free, 15));
}

/* ---- memory that does not come back --------------------------------------------------------- */

static void a_device_that_leaks_is_offered_again_only_at_its_baseline(void **unused)
{
    (void)unused;
    start("memory_tolerance = \"1M\"");
    assert_true(farm_report(&f, both_are_free, 15));
    machine_has("leak", "0000:c1:00.0 3221225472\n");
    crash_on_the_first("crash", "Crashed");
    assert_true(farm_report(&f, one_is_unclean, 15));
    const Sluice__Device *d = device(f.report, "0000:c1:00.0");
    assert_non_null(strstr(d->why, "3.0 GiB of its memory are in use, 976.6 KiB when it is free"));
    assert_int_equal(d->memory_used, 3222225472);
    assert_int_equal(d->memory_baseline, 1000000);
    assert_int_equal(d->has_pid, 0);
    for (unsigned tf = 2; tf < 6; tf++)
        assert_string_equal(done_on(tf), "0000:03:00.0");
    assert_true(farm_report(&f, one_is_unclean, 15));         /* still; the other one may be busy in a report that is under way */
    machine_has("leak", "0000:c1:00.0 1000000\n");           /* within the tolerance */
    assert_true(farm_report(&f, both_are_free, 15));
    assert_int_equal(device(f.report, "0000:c1:00.0")->restarts, 1);
}

static pid_t pid_in(const char *path)
{
    size_t n;
    struct err e;
    char *text = file_read(path, 100, &n, &e);
    assert_non_null(text);
    pid_t pid = (pid_t)atoi(text);
    free(text);
    return pid;
}

static void leaves_no_grandchild(const char *kind)
{
    char *file = farm_path(&f, "brood"), *flow = mem_printf("%s:%s", kind, file);

    start(NULL);
    assert_true(farm_report(&f, both_are_free, 15));
    crash_on_the_first(flow, "TimedOut");
    assert_false(process_lives(pid_in(file)));
    assert_true(farm_report(&f, both_are_free, 15));         /* which it is only when the grandchild's memory is back */
    assert_string_equal(device(f.report, "0000:c1:00.0")->why ? device(f.report, "0000:c1:00.0")->why : "", "");
    done_on(2);
    free(flow);
    free(file);
}

static void B69_a_grandchild_that_forked_twice_and_left_its_session_goes_with_the_tf(void **unused)
{
    (void)unused;
    leaves_no_grandchild("double");
}

static void B69_one_that_wiped_its_environment_goes_too(void **unused)
{
    (void)unused;
    leaves_no_grandchild("wiped");
}

/* Not ours to kill: somebody else took the device meanwhile. */
static void B69_memory_that_another_process_holds_keeps_the_device_back_and_its_pid_is_shown(void **unused)
{
    (void)unused;
    start(NULL);
    assert_true(farm_report(&f, both_are_free, 15));
    pid_t other = fork();
    if (other == 0) {
        for (;;)
            pause();
    }
    char *name = mem_printf("held.%d", (int)other), *listed = mem_printf("held by pids %d", (int)other);
    machine_has(name, "0000:c1:00.0 3221225472\n");
    crash_on_the_first("crash", "Crashed");
    assert_true(farm_report(&f, one_is_unclean, 15));
    const Sluice__Device *d = device(f.report, "0000:c1:00.0");
    assert_int_equal(d->n_pids, 1);
    assert_int_equal(d->pids[0], other);
    assert_non_null(strstr(d->why, listed));
    assert_true(process_lives(other));
    kill(other, SIGKILL);
    waitpid(other, NULL, 0);
    assert_true(farm_report(&f, both_are_free, 15));
    done_on(2);
    free(name);
    free(listed);
}

static bool the_first_is_not_free(const Sluice__Report *r)
{
    return one_is_unclean(r) && strstr(device(r, "0000:c1:00.0")->why, "976.6 KiB when it is free") != NULL;
}

/* What a worker's processes left behind is not what its successor finds natural. */
static void the_baseline_outlives_the_worker(void **unused)
{
    (void)unused;
    start(NULL);
    assert_true(farm_report(&f, both_are_free, 15));
    kill(f.pid, SIGTERM);
    assert_int_equal(farm_wait(&f, 4), 0);
    machine_has("leak", "0000:c1:00.0 3221225472\n");
    sluice__report__free_unpacked(f.report, NULL);
    f.report = NULL;
    start(NULL);
    assert_true(farm_report(&f, the_first_is_not_free, 15));
    machine_has("leak", NULL);
    assert_true(farm_report(&f, both_are_free, 15));
}

/* ---- parked: nothing of ours on the devices --------------------------------------------------- */

static void order(Sluice__Parking parking)
{
    Sluice__Settings m = SLUICE__SETTINGS__INIT;

    m.pool = (char *)"async";
    m.has_parking = m.has_parking_order = 1;
    m.parking = parking;
    m.parking_order = ++order_number;
    chan_send(f.chan, 0, &m.base);
}

static bool in_order(const Sluice__Report *r)
{
    return r->parking_order == order_number;
}

static bool both_are_parked(const Sluice__Report *r)
{
    return in_order(r) && in_state(r, "0000:c1:00.0", SLUICE__DEVICE_STATE__DEVICE_PARKED) && in_state(r, "0000:03:00.0", SLUICE__DEVICE_STATE__DEVICE_PARKED);
}

static bool one_is_parked(const Sluice__Report *r)
{
    return in_order(r) && in_state(r, "0000:c1:00.0", SLUICE__DEVICE_STATE__DEVICE_UNCLEAN) && in_state(r, "0000:03:00.0", SLUICE__DEVICE_STATE__DEVICE_PARKED);
}

static void a_parked_device_has_no_process_and_its_memory_is_free(void **unused)
{
    (void)unused;
    start("memory_tolerance = \"1M\"");
    assert_true(farm_report(&f, both_are_free, 15));
    pid_t pid = (pid_t)device(f.report, "0000:c1:00.0")->pid, worker = f.pid;
    machine_has("leak", "0000:c1:00.0 3221225472\n");
    order(SLUICE__PARKING__DEVICES_PARK);
    assert_true(farm_report(&f, one_is_parked, 15));
    assert_non_null(strstr(device(f.report, "0000:c1:00.0")->why, "3.0 GiB of its memory are in use"));
    machine_has("leak", NULL);
    assert_true(farm_report(&f, both_are_parked, 15));
    assert_false(process_lives(pid));
    assert_int_equal(device(f.report, "0000:c1:00.0")->has_pid, 0);
    assert_string_equal(f.report->trouble, "");
    order(SLUICE__PARKING__DEVICES_WORK);
    assert_true(farm_report(&f, both_are_free, 15));
    assert_true(process_lives(worker));
    assert_int_equal(f.registrations, 1);
    assert_int_equal(f.report->restarts, 0);             /* nothing was wrong with it */
    farm_open(&f, 0, 1, "copy", out, 0);
    done_on(1);
}

/* Whatever it was told: what is here is finished, by a process that is started for it where there is none. */
static void what_is_under_way_is_finished_before_a_device_is_parked(void **unused)
{
    struct note n;

    (void)unused;
    start(NULL);
    assert_true(farm_report(&f, both_are_free, 15));
    farm_open(&f, 0, 1, "slow:700", out, 5);
    farm_assign_file(&f, 1, 1, 1, input, 0, SIZE, "x");
    order(SLUICE__PARKING__DEVICES_PARK);
    n = farm_take(&f, SLUICE__TYPE__DONE, 15);
    assert_non_null(n.m);
    note_free(&n);
    farm_verdict(&f, 0, 1, 1, 1, false, NULL, NULL);
    assert_true(farm_report(&f, both_are_parked, 15));
    order(SLUICE__PARKING__DEVICES_LENT);
    assert_true(farm_report(&f, both_are_parked, 15));
    done_on(2);
    assert_true(farm_report(&f, both_are_parked, 15));
}

/* On a node that is lent the memory is in use by others: that is looked at when it comes back. */
static void memory_of_a_node_that_is_lent_is_not_looked_at_until_it_comes_back(void **unused)
{
    (void)unused;
    f.parks = true;
    f.parking = SLUICE__PARKING__DEVICES_AS_THEY_ARE;
    start(NULL);
    for (unsigned i = f.reports; f.reports < i + 3;) {
        assert_true(farm_report(&f, in_order, 5));
        run_for(f.loop, 0.5);
    }
    assert_int_equal(device(f.report, "0000:c1:00.0")->has_pid, 0);          /* nobody knows yet */
    assert_int_equal(device(f.report, "0000:c1:00.0")->has_memory_used, 0);
    order(SLUICE__PARKING__DEVICES_LENT);
    assert_true(farm_report(&f, both_are_parked, 15));
    machine_has("leak", "0000:c1:00.0 3221225472\n");       /* a job's; and the first that we see */
    order(SLUICE__PARKING__DEVICES_WORK);
    assert_true(farm_report(&f, both_are_free, 15));
    order(SLUICE__PARKING__DEVICES_LENT);
    assert_true(farm_report(&f, both_are_parked, 15));
    machine_has("leak", "0000:c1:00.0 6442450944\n");
    run_for(f.loop, 2.5);
    assert_true(both_are_parked(f.report));
    order(SLUICE__PARKING__DEVICES_WORK);
    assert_true(farm_report(&f, one_is_unclean, 15));
    machine_has("leak", NULL);
    assert_true(farm_report(&f, both_are_free, 15));
    f.parks = false;
}

/* ---- the text of an answer ------------------------------------------------------------------ */

static void an_answer_is_believed_only_as_far_as_it_is_sound(void **unused)
{
    static const struct { enum query_what what; const char *text, *says; } bad[] = {
        { QUERY_DEVICES, "", "no JSON" },
        { QUERY_DEVICES, "[]", "a list \"devices\"" },
        { QUERY_DEVICES, "{\"usage\": []}", "a list \"devices\"" },
        { QUERY_DEVICES, "{\"devices\": [7]}", "an object a device" },
        { QUERY_DEVICES, "{\"devices\": [{\"id\": 7}]}", "id: a text" },
        { QUERY_DEVICES, "{\"devices\": [{\"memory\": -1}]}", "memory: a number" },
        { QUERY_DEVICES, "{\"devices\": [{\"class\": \"0123456789012345678901234567890123456789\"}]}", "class: a text shorter than 32" },
        { QUERY_USAGE, "{\"usage\": [{\"id\": \"a\"}]}", "id and used are wanted" },
        { QUERY_USAGE, "{\"usage\": [{\"used\": 1}]}", "id and used are wanted" },
        { QUERY_USAGE, "{\"usage\": [{\"id\": \"a\", \"used\": 1, \"pids\": [0]}]}", "pids: numbers" },
        { QUERY_USAGE, "{\"usage\": [{\"id\": \"a\", \"used\": 1.5}]}", "used: a number" },
    };
    struct query_device list[QUERY_DEVICES_MAX];
    struct err e;

    (void)unused;
    for (unsigned i = 0; i < ARRAY_LEN(bad); i++) {
        assert_int_equal(query_parse(bad[i].what, bad[i].text, strlen(bad[i].text), list, &e), -1);
        if (strstr(e.text, bad[i].says) == NULL)
            fail_msg("%s: \"%s\", not \"%s\"", bad[i].text, e.text, bad[i].says);
    }
    const char *good = "{\"usage\": [{\"id\": \"a\", \"used\": 18446744073709, \"pids\": [3, 4]}]}";
    assert_int_equal(query_parse(QUERY_USAGE, good, strlen(good), list, &e), 1);
    assert_string_equal(list[0].id, "a");
    assert_int_equal(list[0].used, 18446744073709);
    assert_int_equal(list[0].n_pids, 2);
    assert_int_equal(list[0].pid[1], 4);
}

static void more_devices_than_can_be_are_refused(void **unused)
{
    struct query_device list[QUERY_DEVICES_MAX];
    char *text = mem_strdup("{\"devices\": [{}");
    struct err e;

    (void)unused;
    for (int i = 0; i < QUERY_DEVICES_MAX; i++) {
        char *more = mem_printf("%s, {}", text);
        free(text);
        text = more;
    }
    char *all = mem_printf("%s]}", text);
    assert_int_equal(query_parse(QUERY_DEVICES, all, strlen(all), list, &e), -1);
    free(all);
    free(text);
}

#define here(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_is_believed_only_as_far_as_it_is_sound),
        cmocka_unit_test(more_devices_than_can_be_are_refused),
        here(usable_devices_of_the_class_are_there_by_their_ids_and_no_others),
        here(where_none_can_be_used_it_says_why),
        here(b68_a_query_that_hangs_dies_or_talks_nonsense_never_stops_the_worker),
        here(a_device_whose_memory_cannot_be_asked_for_is_not_offered),
        here(a_device_that_leaks_is_offered_again_only_at_its_baseline),
        here(the_baseline_outlives_the_worker),
        here(a_parked_device_has_no_process_and_its_memory_is_free),
        here(what_is_under_way_is_finished_before_a_device_is_parked),
        here(memory_of_a_node_that_is_lent_is_not_looked_at_until_it_comes_back),
        here(B69_a_grandchild_that_forked_twice_and_left_its_session_goes_with_the_tf),
        here(B69_one_that_wiped_its_environment_goes_too),
        here(B69_memory_that_another_process_holds_keeps_the_device_back_and_its_pid_is_shown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
