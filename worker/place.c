/* place.c - where on the machine things belong, and where they are
 *
 * From: main.c (the topology), device.c (a process), device_show.c (the actual state), buffer.c (pages), watch.c (between fork and exec).  To: the kernel.
 * Only the processors, the memory and the PCI bus are asked for: those parts of hwloc that call drivers are kept out.
 */
#include "config.h"
#include "place.h"

#include "mem.h"

#include <dirent.h>
#include <hwloc.h>
#include <linux/mempolicy.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SAMPLE = 256, MASK_WORDS = 16 };          /* of 64 domains each: more than the kernel has */

struct topology { hwloc_topology_t all; uint64_t domains; };

/* ---- the machine ------------------------------------------------------------------------------ */

struct topology *topology_load(struct err *e)
{
    static const char *const drivers[] = { "opencl", "cuda", "nvml", "rsmi", "levelzero", "gl" };
    struct topology *t = mem_zalloc(sizeof *t);
    hwloc_obj_t node = NULL;

    if (hwloc_topology_init(&t->all) < 0) {
        free(t);
        return err_null(e, ERR_FAILED, "the machine's topology: no memory");
    }
    for (size_t i = 0; i < ARRAY_LEN(drivers); i++)
        hwloc_topology_set_components(t->all, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, drivers[i]);
    hwloc_topology_set_type_filter(t->all, HWLOC_OBJ_BRIDGE, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
    hwloc_topology_set_type_filter(t->all, HWLOC_OBJ_PCI_DEVICE, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
    if (hwloc_topology_load(t->all) < 0) {
        err_errno(e, ERR_FAILED, "the machine's topology cannot be read");
        topology_free(t);
        return NULL;
    }
    while ((node = hwloc_get_next_obj_by_type(t->all, HWLOC_OBJ_NUMANODE, node)) != NULL) {
        if (node->os_index < PLACE_DOMAINS)
            t->domains |= UINT64_C(1) << node->os_index;
    }
    return t;
}

void topology_free(struct topology *t)
{
    if (t == NULL)
        return;
    hwloc_topology_destroy(t->all);
    free(t);
}

uint64_t topology_domains(const struct topology *t)
{
    return t->domains;
}

/* ---- where things belong ---------------------------------------------------------------------- */

static void nowhere(struct place *p)
{
    memset(p, 0, sizeof *p);
    p->domain = -1;
}

static void in_domain(hwloc_obj_t node, struct place *p)
{
    unsigned cpu;

    nowhere(p);
    if (node == NULL || node->cpuset == NULL || hwloc_bitmap_iszero(node->cpuset) || node->os_index >= PLACE_DOMAINS)
        return;
    hwloc_bitmap_foreach_begin(cpu, node->cpuset)
        if (cpu < CPU_SETSIZE)
            CPU_SET(cpu, &p->cpus);
    hwloc_bitmap_foreach_end();
    hwloc_bitmap_list_snprintf(p->text, sizeof p->text, node->cpuset);
    p->domain = (int)node->os_index;
}

/* The domain of what hangs at this place of the bus; NULL when it is near none in particular. */
static hwloc_obj_t domain_of(const struct topology *t, const char *pci)
{
    unsigned domain, bus, slot, function;

    if (sscanf(pci, "%x:%x:%x.%x", &domain, &bus, &slot, &function) != 4)
        return NULL;
    hwloc_obj_t device = hwloc_get_pcidev_by_busid(t->all, domain, bus, slot, function);
    hwloc_obj_t above = device ? hwloc_get_non_io_ancestor_obj(t->all, device) : NULL;
    if (above == NULL || above->nodeset == NULL || hwloc_bitmap_weight(above->nodeset) != 1)
        return NULL;
    return hwloc_get_numanode_obj_by_os_index(t->all, (unsigned)hwloc_bitmap_first(above->nodeset));
}

static bool is_flat(const struct topology *t)
{
    return (t->domains & (t->domains - 1)) == 0;
}

void place_near(const struct topology *t, const char *pci, int numa, struct place *p)
{
    hwloc_obj_t node = is_flat(t) ? NULL : domain_of(t, pci);

    if (node == NULL && numa >= 0 && !is_flat(t))
        node = hwloc_get_numanode_obj_by_os_index(t->all, (unsigned)numa);
    in_domain(node, p);
}

void place_spread(const struct topology *t, unsigned i, unsigned n, struct place *p)
{
    int domains = hwloc_get_nbobjs_by_type(t->all, HWLOC_OBJ_NUMANODE);

    if (is_flat(t) || n < 2 || domains < 1)
        nowhere(p);
    else
        in_domain(hwloc_get_obj_by_type(t->all, HWLOC_OBJ_NUMANODE, i * (unsigned)domains / n), p);
}

/* ---- putting them there ----------------------------------------------------------------------- */

void place_become(const struct place *p)
{
    unsigned long mask[MASK_WORDS] = { 0 };

    if (p->domain < 0)
        return;
    sched_setaffinity(0, sizeof p->cpus, &p->cpus);
    mask[0] = 1ul << p->domain;
    syscall(SYS_set_mempolicy, MPOL_PREFERRED, mask, sizeof mask * 8);
}

void place_self(const struct topology *t, uint64_t domains)
{
    struct place p;
    struct dirent *d;
    DIR *tasks;

    if (domains == 0 || (domains & (domains - 1)) != 0)
        return;
    place_near(t, "", __builtin_ctzll(domains), &p);
    tasks = opendir("/proc/self/task");
    while (p.domain >= 0 && tasks != NULL && (d = readdir(tasks)) != NULL) {
        pid_t tid = (pid_t)strtol(d->d_name, NULL, 10);
        if (tid > 0)
            sched_setaffinity(tid, sizeof p.cpus, &p.cpus);
    }
    if (tasks != NULL)
        closedir(tasks);
}

int place_memory(void *p, size_t size, uint64_t domains, struct err *e)
{
    unsigned long mask[MASK_WORDS] = { domains };
    int mode = (domains & (domains - 1)) == 0 ? MPOL_PREFERRED : MPOL_INTERLEAVE;
    char text[200];

    if (domains == 0 || syscall(SYS_mbind, p, size, mode, mask, sizeof mask * 8, 0) == 0)
        return 0;
    place_domains_text(domains, text, sizeof text);
    return err_errno(e, ERR_FAILED, "memory from domain %s", text);
}

/* ---- where they are --------------------------------------------------------------------------- */

bool place_cpus(pid_t pid, cpu_set_t *cpus, char *text, size_t room)
{
    if (sched_getaffinity(pid, sizeof *cpus, cpus) < 0)
        return false;
    hwloc_bitmap_t b = hwloc_bitmap_alloc();
    for (unsigned i = 0; i < CPU_SETSIZE; i++) {
        if (CPU_ISSET(i, cpus))
            hwloc_bitmap_set(b, i);
    }
    hwloc_bitmap_list_snprintf(text, room, b);
    hwloc_bitmap_free(b);
    return true;
}

int place_own_domain(void)
{
    unsigned long mask[MASK_WORDS] = { 0 };
    int mode;

    if (syscall(SYS_get_mempolicy, &mode, mask, sizeof mask * 8, NULL, 0) < 0 || (mode != MPOL_PREFERRED && mode != MPOL_BIND) || mask[0] == 0)
        return -1;
    return __builtin_ctzl(mask[0]);
}

void place_compare(const struct place *wanted, const cpu_set_t *cpus, const char *text, int domain, char *out, size_t room)
{
    cpu_set_t outside;
    size_t n = 0;

    out[0] = '\0';
    if (wanted->domain < 0)
        return;
    CPU_AND(&outside, cpus, &wanted->cpus);
    if (!CPU_EQUAL(&outside, cpus))
        n = (size_t)snprintf(out, room, "runs on CPUs %s, wanted %s", text, wanted->text);
    if (n < room && domain == -1)
        snprintf(out + n, room - n, "%smemory from any domain, wanted %d", n > 0 ? "; " : "", wanted->domain);
    else if (n < room && domain >= 0 && domain != wanted->domain)
        snprintf(out + n, room - n, "%smemory from domain %d, wanted %d", n > 0 ? "; " : "", domain, wanted->domain);
}

void place_domains_text(uint64_t domains, char *text, size_t room)
{
    size_t n = 0;

    text[0] = '\0';
    for (int i = 0; i < PLACE_DOMAINS && n < room; i++) {
        if (domains >> i & 1)
            n += (size_t)snprintf(text + n, room - n, "%s%d", n > 0 ? "," : "", i);
    }
}

uint64_t place_pages(void *p, size_t size, char *text, size_t room)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), pages = size / page, step = pages / SAMPLE > 0 ? pages / SAMPLE : 1, n = 0, at = 0;
    unsigned count[PLACE_DOMAINS] = { 0 }, known = 0;
    void *where[SAMPLE];
    int status[SAMPLE];
    uint64_t domains = 0;

    text[0] = '\0';
    for (; n < SAMPLE && n * step < pages; n++)
        where[n] = (char *)p + n * step * page;
    if (syscall(SYS_move_pages, 0, n, where, NULL, status, 0) < 0)
        return 0;
    for (size_t i = 0; i < n; i++) {
        if (status[i] < 0 || status[i] >= PLACE_DOMAINS)
            continue;
        domains |= UINT64_C(1) << status[i];
        count[status[i]]++;
        known++;
    }
    for (int i = 0; i < PLACE_DOMAINS && at < room; i++) {
        if (count[i] == known && known > 0)
            snprintf(text, room, "%d", i);
        else if (count[i] > 0)
            at += (size_t)snprintf(text + at, room - at, "%s%d %u %%", at > 0 ? ", " : "", i, (100 * count[i] + known / 2) / known);
    }
    return domains;
}
