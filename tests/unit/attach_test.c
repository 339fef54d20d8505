/* attach_test.c - the reconstruction process in front of a scripted worker: its stages, its device */
#include "config.h"

#include "device_fake.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "attach.h"
#include "backend/bk_emu.h"
#include "shm_layout.h"
#include "wire.h"

enum { GENERATION = 5, LIMIT_S = 30 };

static struct wire wire;
static pid_t pid;
static struct tf tf;

/* A buffer that holds the TF from its first byte on; as many bytes as it has. */
static int make_buffer(void)
{
    struct shm_head head = { .magic = SHM_MAGIC, .version = SHM_VERSION, .head_size = sizeof head, .size = tf.size, .generation = GENERATION };
    int fd = memfd_create("buffer", MFD_CLOEXEC);

    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)(SHM_HEAD + tf.size)), 0);
    assert_int_equal(pwrite(fd, &head, sizeof head, 0), sizeof head);
    assert_int_equal(pwrite(fd, tf.data, tf.size, SHM_HEAD), tf.size);
    return fd;
}

static void say(const ProtobufCMessage *m, const int *fds, unsigned n_fds)
{
    struct err e;

    if (wire_send(&wire, 1, m, fds, n_fds, &e) < 0)
        fail_msg("%s", e.text);
}

static struct wire_message hear(void)
{
    struct wire_message in;
    struct err e;

    if (wire_read(&wire, &in, &e) <= 0)
        fail_msg("no answer");
    return in;
}

static unsigned hear_type(void)
{
    struct wire_message in = hear();
    unsigned type = in.type;

    wire_free(&in);
    return type;
}

/* The process, told of a device of this serial. */
static void begin(const char *serial, bool emulated)
{
    Sluice__RecoOpen open_m = SLUICE__RECO_OPEN__INIT;
    Sluice__Device device = SLUICE__DEVICE__INIT;
    int pair[2], buffer = make_buffer();

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    pid = fork();
    if (pid == 0) {
        char number[16];
        char *argv[] = { (char *)"attach", (char *)"--fd", number, NULL };
        snprintf(number, sizeof number, "%d", pair[1]);
        close(pair[0]);
        alarm(LIMIT_S);
        bk_register(bk_emu_entry());
        fake_reset();                            /* a GPU, 0000:40:00.0 of backend cuda */
        _exit(attach_main(3, argv));
    }
    close(pair[1]);
    wire.fd = pair[0];
    device.serial = (char *)serial;
    device.has_emulated = true;
    device.emulated = emulated;
    open_m.has_major = open_m.has_buffer_size = open_m.has_generation = true;
    open_m.major = PROTO_MAJOR;
    open_m.buffer_size = tf.size;
    open_m.generation = GENERATION;
    open_m.device = &device;
    say(&open_m.base, &buffer, 1);
    close(buffer);
    assert_int_equal(hear_type(), SLUICE__TYPE__RECO_READY);
}

static void end(void)
{
    int status;

    close(wire.fd);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

/* "" when it is taken, else why not; valid until the next call. */
static const char *workflow(const char *name, const char *backends, const char *options)
{
    static char why[300];
    Sluice__RecoWorkflow m = SLUICE__RECO_WORKFLOW__INIT;

    m.has_id = true;
    m.workflow = (char *)name;
    m.backends = (char *)backends;
    m.options = (char *)options;
    say(&m.base, NULL, 0);
    struct wire_message in = hear();
    snprintf(why, sizeof why, "%s", in.type == SLUICE__TYPE__ERROR ? ((const Sluice__Error *)in.m)->text : "");
    wire_free(&in);
    return why;
}

static void run(void)
{
    Sluice__RecoRun m = SLUICE__RECO_RUN__INIT;
    Sluice__Extent all = SLUICE__EXTENT__INIT, *segments[] = { &all };
    Sluice__Tf name = SLUICE__TF__INIT;
    Sluice__Fence fence = SLUICE__FENCE__INIT;

    all.has_offset = all.has_size = true;
    all.size = tf.size;
    m.has_workflow_id = m.has_generation = true;
    m.generation = GENERATION;
    m.segments = segments;
    m.n_segments = 1;
    m.tf = &name;
    m.fence = &fence;
    say(&m.base, NULL, 0);
}

static struct { bool said; uint64_t wanted, actual, chunks, staging; } pinned;       /* of the last RecoDone */

static char ran[300];                            /* of the last RecoDone: backend of the first stage, and why auto had to take it */

/* The stages it says before its result, as "decode cluster ...". */
static const char *stages_until_done(void)
{
    static char said[4000];
    struct wire_message in;

    said[0] = '\0';
    for (in = hear(); in.type == SLUICE__TYPE__RECO_STAGE; in = hear()) {
        size_t n = strlen(said);
        snprintf(said + n, sizeof said - n, "%s%s", n ? " " : "", ((const Sluice__RecoStage *)in.m)->stage);
        wire_free(&in);
    }
    assert_int_equal(in.type, SLUICE__TYPE__RECO_DONE);
    const Sluice__RecoDone *done = (const Sluice__RecoDone *)in.m;
    snprintf(ran, sizeof ran, "%s: %s", done->n_stages ? done->stages[0]->backend : "none",
             done->n_stages && done->stages[0]->fallback ? done->stages[0]->fallback : "-");
    pinned.said = done->pinned != NULL;
    if (pinned.said) {
        pinned.wanted = done->pinned->wanted;
        pinned.actual = done->pinned->actual;
        pinned.chunks = done->pinned->chunks;
        pinned.staging = done->pinned->staging;
    }
    wire_free(&in);
    return said;
}

static void each_stage_is_a_sign_of_life(void **state)
{
    (void)state;
    begin("cpu-n1-0", false);
    assert_string_equal(workflow("decode", "cpu", NULL), "");
    run();
    assert_string_equal(stages_until_done(), "decode");
    assert_string_equal(workflow("cluster", "cpu", NULL), "");
    run();
    assert_string_equal(stages_until_done(), "decode cluster");
    /* in batches of one link: the stages take turns, each turn is said */
    assert_string_equal(workflow("cluster", "cpu", "decode.batch=4096"), "");
    run();
    const char *said = stages_until_done();
    unsigned turns = 0;
    for (; strncmp(said, "decode cluster", 14) == 0; said += 14 + (said[14] == ' '))
        turns++;
    assert_string_equal(said, "");
    assert_int_equal(turns, 3);                  /* three links have digits */
    assert_string_equal(workflow("none", NULL, NULL), "");
    run();
    assert_string_equal(stages_until_done(), "");
    end();
}

/* The processor needs nothing pinned; for another device it is the whole buffer with its head, here in one registration. */
static void what_is_pinned_for_the_device_is_said_with_the_result(void **state)
{
    (void)state;
    begin("emu-0", false);
    assert_string_equal(workflow("cluster", "cpu", NULL), "");
    run();
    stages_until_done();
    assert_false(pinned.said);
    assert_string_equal(workflow("cluster", "cpu,decode=emu", NULL), "");
    run();
    stages_until_done();
    assert_true(pinned.said);
    assert_int_equal(pinned.wanted, SHM_HEAD + tf.size);
    assert_int_equal(pinned.actual, pinned.wanted);
    assert_int_equal(pinned.chunks, 1);
    assert_int_equal(pinned.staging, 0);
    end();
}

static void the_device_it_is_given_is_the_one_it_opens(void **state)
{
    (void)state;
    begin("emu-0", false);                       /* the id of the only device that backend emu has */
    assert_string_equal(workflow("decode", "emu", NULL), "");
    assert_string_equal(workflow("decode", "cpu", NULL), "");            /* a stage on the processor beside it */
    end();
    begin("GPU-1234", false);
    assert_non_null(strstr(workflow("decode", "emu", NULL), "no device GPU-1234"));
    end();
}

/* Whatever GPUs the machine has (here: one of backend cuda): auto takes the CPU and says why, a GPU is refused. */
static void a_device_that_is_the_cpu_opens_no_gpu(void **state)
{
    static const struct { const char *serial; bool emulated; } of[] = { { "cpu-n1-0", false }, { "emu-n1-0", true } };
    char want[200];

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        begin(of[i].serial, of[i].emulated);
        assert_string_equal(workflow("cluster", NULL, NULL), "");
        run();
        stages_until_done();
        snprintf(want, sizeof want, "cpu: no usable GPU (device %s is the CPU)", of[i].serial);
        assert_string_equal(ran, want);
        assert_string_equal(workflow("decode", "cpu", NULL), "");
        run();
        stages_until_done();
        assert_string_equal(ran, "cpu: -");
        snprintf(want, sizeof want, "stage cluster: gpu asked for, no usable GPU (device %s is the CPU); choices are auto, gpu, cpu", of[i].serial);
        assert_memory_equal(workflow("cluster", "cluster=gpu", NULL), want, strlen(want));
        snprintf(want, sizeof want, "stage decode: cuda asked for, device %s is the CPU; choices are auto, cpu", of[i].serial);
        assert_string_equal(workflow("cluster", "decode=cuda", NULL), want);
        end();
    }
    begin("0000:40:00.0", false);
    assert_string_equal(workflow("cluster", NULL, NULL), "");
    run();
    stages_until_done();
    assert_string_equal(ran, "cuda: -");
    end();
}

int main(void)
{
    static struct digit digits[3] = { { 0, 10, 5, 100, 40 }, { 9, 20, 5, 100, 40 }, { 30, 100, 5, 100, 40 } };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_stage_is_a_sign_of_life),
        cmocka_unit_test(what_is_pinned_for_the_device_is_said_with_the_result),
        cmocka_unit_test(the_device_it_is_given_is_the_one_it_opens),
        cmocka_unit_test(a_device_that_is_the_cpu_opens_no_gpu),
    };

    signal(SIGPIPE, SIG_IGN);
    alarm(2 * LIMIT_S);
    tf = tf_of(digits, 3, 2);
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    free(tf.data);
    return rc;
}
