/* place_test.c - NUMA domains on made-up machines, and two real workers with four GPUs each; case B63 */
#include "config.h"
#include <ctype.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "place.h"
#include "worker_help.h"

static struct topology *made_up(const char *synthetic)
{
    struct err e;

    setenv("HWLOC_SYNTHETIC", synthetic, 1);
    struct topology *t = topology_load(&e);
    unsetenv("HWLOC_SYNTHETIC");
    assert_non_null(t);
    return t;
}

static void assert_place(const struct place *p, int domain, const char *cpus)
{
    assert_int_equal(p->domain, domain);
    assert_string_equal(p->text, cpus);
}

static void the_domain_that_the_driver_says_is_taken_where_the_bus_is_not_known(void **unused)
{
    struct topology *t = made_up("numa:2 core:4 pu:1");
    struct place p;

    (void)unused;
    assert_int_equal(topology_domains(t), 3);
    place_near(t, "0000:03:00.0", 1, &p);
    assert_place(&p, 1, "4-7");
    assert_true(CPU_ISSET(4, &p.cpus) && CPU_ISSET(7, &p.cpus));
    assert_int_equal(CPU_COUNT(&p.cpus), 4);
    place_near(t, "GPU-5f2c", 0, &p);
    assert_place(&p, 0, "0-3");
    place_near(t, "0000:03:00.0", -1, &p);
    assert_place(&p, -1, "");
    place_near(t, "0000:03:00.0", 7, &p);
    assert_place(&p, -1, "");
    topology_free(t);
}

static void a_machine_of_one_domain_places_nothing(void **unused)
{
    struct topology *t = made_up("numa:1 core:4 pu:1");
    struct place p;

    (void)unused;
    place_near(t, "0000:03:00.0", 0, &p);
    assert_place(&p, -1, "");
    place_spread(t, 1, 2, &p);
    assert_place(&p, -1, "");
    topology_free(t);
}

static void devices_on_the_cpu_are_spread_in_equal_shares(void **unused)
{
    static const int want[8] = { 0, 0, 1, 1, 2, 2, 3, 3 };
    struct topology *t = made_up("pack:2 numa:2 core:2 pu:1");
    struct place p;

    (void)unused;
    for (unsigned i = 0; i < 8; i++) {
        place_spread(t, i, 8, &p);
        assert_int_equal(p.domain, want[i]);
    }
    place_spread(t, 0, 1, &p);
    assert_place(&p, -1, "");
    topology_free(t);
}

/* Two packages with a bridge each; what the driver says (here: nonsense) does not count where the bus is known. */
static void the_place_on_the_bus_counts_more_than_what_the_driver_says(void **unused)
{
    static const char xml[] =
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n<topology version=\"2.0\">\n"
        "<object type=\"Machine\" os_index=\"0\" cpuset=\"0xf\" complete_cpuset=\"0xf\" allowed_cpuset=\"0xf\" nodeset=\"0x3\" complete_nodeset=\"0x3\""
        " allowed_nodeset=\"0x3\" gp_index=\"1\">\n"
        "%s%s</object>\n</topology>\n";
    static const char package[] =
        "<object type=\"Package\" os_index=\"%d\" cpuset=\"%s\" complete_cpuset=\"%s\" nodeset=\"0x%d\" complete_nodeset=\"0x%d\" gp_index=\"%d\">\n"
        "<object type=\"NUMANode\" os_index=\"%d\" cpuset=\"%s\" complete_cpuset=\"%s\" nodeset=\"0x%d\" complete_nodeset=\"0x%d\" gp_index=\"%d\""
        " local_memory=\"1073741824\"/>\n"
        "<object type=\"PU\" os_index=\"%d\" cpuset=\"0x%d\" complete_cpuset=\"0x%d\" nodeset=\"0x%d\" complete_nodeset=\"0x%d\" gp_index=\"%d\"/>\n"
        "<object type=\"PU\" os_index=\"%d\" cpuset=\"0x%d\" complete_cpuset=\"0x%d\" nodeset=\"0x%d\" complete_nodeset=\"0x%d\" gp_index=\"%d\"/>\n"
        "<object type=\"Bridge\" gp_index=\"%d\" bridge_type=\"0-1\" depth=\"0\" bridge_pci=\"0000:[%s]\">\n"
        "<object type=\"PCIDev\" gp_index=\"%d\" pci_busid=\"0000:%s:00.0\" pci_type=\"0300 [1002:66a1] [1002:0834] 02\" pci_link_speed=\"0.0\"/>\n"
        "</object>\n</object>\n";
    char path[] = "/tmp/place_test.XXXXXX";
    struct topology *t;
    struct place p;
    struct err e;

    (void)unused;
    char *first = mem_printf(package, 0, "0x3", "0x3", 1, 1, 2, 0, "0x3", "0x3", 1, 1, 3, 0, 1, 1, 1, 1, 4, 1, 2, 2, 1, 1, 5, 6, "00-7f", 7, "03");
    char *second = mem_printf(package, 1, "0xc", "0xc", 2, 2, 12, 1, "0xc", "0xc", 2, 2, 13, 2, 4, 4, 2, 2, 14, 3, 8, 8, 2, 2, 15, 16, "80-ff", 17, "c1");
    char *text = mem_printf(xml, first, second);
    close(mkstemp(path));
    assert_int_equal(file_replace(path, text, strlen(text), 0600, &e), 0);
    setenv("HWLOC_XMLFILE", path, 1);
    t = topology_load(&e);
    unsetenv("HWLOC_XMLFILE");
    unlink(path);
    assert_non_null(t);
    place_near(t, "0000:c1:00.0", 0, &p);
    assert_place(&p, 1, "2-3");
    place_near(t, "0000:03:00.0", 1, &p);
    assert_place(&p, 0, "0-1");
    place_near(t, "0000:04:00.0", 1, &p);        /* the bus does not have it */
    assert_place(&p, 1, "2-3");
    topology_free(t);
    free(text);
    free(first);
    free(second);
}

static void what_is_not_as_wanted_is_said(void **unused)
{
    struct topology *t = made_up("numa:2 core:2 pu:1");
    struct place p, other, anywhere = { .domain = -1 };
    char text[256];

    (void)unused;
    place_near(t, "", 0, &p);
    place_near(t, "", 1, &other);
    place_compare(&p, &p.cpus, "0-1", 0, text, sizeof text);
    assert_string_equal(text, "");
    place_compare(&p, &p.cpus, "0-1", -2, text, sizeof text);        /* a program that does not say: nothing to complain about */
    assert_string_equal(text, "");
    place_compare(&p, &other.cpus, "2-3", 1, text, sizeof text);
    assert_string_equal(text, "runs on CPUs 2-3, wanted 0-1; memory from domain 1, wanted 0");
    place_compare(&p, &p.cpus, "0-1", -1, text, sizeof text);
    assert_string_equal(text, "memory from any domain, wanted 0");
    place_compare(&anywhere, &other.cpus, "2-3", 1, text, sizeof text);
    assert_string_equal(text, "");
    topology_free(t);
}

/* ---- B63 -------------------------------------------------------------------------------------- */

static struct farm low, high;
static struct farm *const farm[2] = { &low, &high };         /* number d has the GPUs of domain d */

/* Four GPUs near one domain; their addresses in no order, as a list of visible devices may give them. */
static void make_gpus(struct farm *f, int domain)
{
    static const int order[4] = { 3, 6, 5, 4 };
    char *dir = farm_path(f, "gpus"), *path = farm_path(f, "gpus/devices"), *text = mem_strdup("{\"devices\": ["), *more;
    struct err e;

    mkdir(dir, 0777);
    for (int i = 0; i < 4; i++) {
        more = mem_printf("%s%s{\"backend\": \"hip\", \"id\": \"0000:%d%d:00.0\", \"class\": \"gfx906\", \"memory\": 34342961152, \"numa\": %d, \"usable\": true}",
                          text, i > 0 ? ", " : "", domain, order[i], domain);
        free(text);
        text = more;
    }
    more = mem_printf("%s]}", text);
    assert_int_equal(file_replace(path, more, strlen(more), 0644, &e), 0);
    free(more);
    free(text);
    free(path);
    free(dir);
}

static bool four_are_free(const Sluice__Report *r)
{
    unsigned n = 0;

    for (size_t i = 0; i < r->n_devices; i++)
        n += r->devices[i]->state == SLUICE__DEVICE_STATE__DEVICE_FREE;
    return n == 4;
}

static void start_worker(int domain)
{
    struct farm *f = farm[domain];
    char *dir = farm_path(f, "gpus"), *shm = farm_path(f, "shm");

    setenv("FAKE_GPUS", dir, 1);
    farm_worker(f, NULL, shm, "gpu4");
    unsetenv("FAKE_GPUS");
    assert_true(farm_report(f, four_are_free, 20));
    free(dir);
    free(shm);
}

/* The first line of a file of /proc that begins with key, after it and the blanks; static. */
static const char *line_of(const char *path, const char *key)
{
    static char line[512];
    FILE *file = fopen(path, "re");

    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, key, strlen(key)) == 0) {
            fclose(file);
            line[strcspn(line, "\n")] = '\0';
            return line + strlen(key) + strspn(line + strlen(key), " \t");
        }
    }
    if (file != NULL)
        fclose(file);
    return "";
}

/* Every thread of the process, as the kernel says. */
static void assert_threads_on(pid_t pid, int cpu)
{
    char *dir = mem_printf("/proc/%d/task", (int)pid), *want = mem_printf("%d", cpu);
    DIR *d = opendir(dir);
    struct dirent *t;
    unsigned n = 0;

    while (d != NULL && (t = readdir(d)) != NULL) {
        char *path = mem_printf("%s/%s/status", dir, t->d_name);
        if (t->d_name[0] != '.') {
            assert_string_equal(line_of(path, "Cpus_allowed_list:"), want);
            n++;
        }
        free(path);
    }
    closedir(d);
    assert_true(n > 0);
    free(want);
    free(dir);
}

/* Domains that hold pages of the buffer as mapped by the worker, and their policy, from numa_maps. */
static unsigned buffer_domains_of(pid_t pid, char *policy, size_t room)
{
    char *path = mem_printf("/proc/%d/numa_maps", (int)pid), line[1024];
    FILE *file = fopen(path, "re");
    unsigned domains = 0;

    policy[0] = '\0';
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        if (strstr(line, ".buffer") == NULL)
            continue;
        char *p = strchr(line, ' ') + 1;
        snprintf(policy, room, "%.*s", (int)strcspn(p, " "), p);
        for (p = line; (p = strstr(p, " N")) != NULL; p++) {
            if (isdigit((unsigned char)p[2]))
                domains |= 1u << atoi(p + 2);
        }
    }
    if (file != NULL)
        fclose(file);
    free(path);
    return domains;
}

static bool machine_has_domain(int domain)
{
    char *path = mem_printf("/sys/devices/system/node/node%d", domain);
    bool there = access(path, F_OK) == 0;
    free(path);
    return there;
}

/* Memory, threads and GPUs share the domain; where the real machine has no such domain, the worker says what is misplaced. */
static void assert_in_domain(int domain)
{
    const Sluice__Report *r = farm[domain]->report;
    bool real = machine_has_domain(domain);
    char policy[64], want[32];

    assert_threads_on(farm[domain]->pid, domain);
    for (size_t i = 0; i < r->n_devices; i++) {
        const Sluice__Device *d = r->devices[i];
        assert_int_equal(d->numa, domain);
        assert_int_equal(d->numa_wanted, domain);
        snprintf(want, sizeof want, "%d", domain);
        assert_string_equal(d->cpus_wanted, want);
        assert_string_equal(d->cpus_actual, want);
        assert_threads_on((pid_t)d->pid, domain);
        char *maps = mem_printf("/proc/%d/numa_maps", (int)d->pid), prefer[64];
        FILE *file = fopen(maps, "re");
        bool preferred = false;
        while (file != NULL && fgets(policy, sizeof policy, file) != NULL) {
            snprintf(prefer, sizeof prefer, " prefer:%d ", domain);
            preferred = preferred || strstr(policy, prefer) != NULL;
        }
        if (file != NULL)
            fclose(file);
        assert_int_equal(preferred, file != NULL && real);
        assert_int_equal(d->has_numa_actual, real);           /* from any domain: no number */
        if (real)
            assert_int_equal(d->numa_actual, domain);
        assert_int_equal(d->misplaced == NULL, real);
        free(maps);
    }
    assert_string_equal(r->numa_wanted, want);
    unsigned domains = buffer_domains_of(farm[domain]->pid, policy, sizeof policy);
    if (domains == 0)
        return;                                  /* a kernel without NUMA tells nothing */
    assert_int_equal(r->misplaced, (domains & ~(1u << domain)) != 0);
    snprintf(want, sizeof want, "prefer:%d", domain);
    assert_string_equal(policy, real ? want : "default");
    if ((domains & (domains - 1)) == 0) {
        snprintf(want, sizeof want, "%d", __builtin_ctz(domains));
        assert_string_equal(r->numa_actual, want);
    }
}

static int setup(void **unused)
{
    (void)unused;
    for (int d = 0; d < 2; d++) {
        farm_make(farm[d]);
        make_gpus(farm[d], d);
    }
    setenv("HWLOC_SYNTHETIC", "numa:2 pu:1", 1);
    return 0;
}

static int teardown(void **unused)
{
    (void)unused;
    unsetenv("HWLOC_SYNTHETIC");
    for (int d = 0; d < 2; d++)
        farm_destroy(farm[d]);
    return 0;
}

static void two_workers(int first)
{
    cpu_set_t cpus;

    if (sched_getaffinity(0, sizeof cpus, &cpus) < 0 || !CPU_ISSET(0, &cpus) || !CPU_ISSET(1, &cpus))
        skip();                                  /* the two domains are CPU 0 and CPU 1 */
    start_worker(first);
    start_worker(!first);
    assert_in_domain(0);
    assert_in_domain(1);
}

static void B63_memory_threads_and_gpus_of_an_instance_share_a_domain(void **unused)
{
    (void)unused;
    two_workers(0);
}

static void B63_the_order_of_start_does_not_matter(void **unused)
{
    (void)unused;
    two_workers(1);
}

#define here(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_domain_that_the_driver_says_is_taken_where_the_bus_is_not_known),
        cmocka_unit_test(a_machine_of_one_domain_places_nothing),
        cmocka_unit_test(devices_on_the_cpu_are_spread_in_equal_shares),
        cmocka_unit_test(the_place_on_the_bus_counts_more_than_what_the_driver_says),
        cmocka_unit_test(what_is_not_as_wanted_is_said),
        here(B63_memory_threads_and_gpus_of_an_instance_share_a_domain),
        here(B63_the_order_of_start_does_not_matter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
