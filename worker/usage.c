/* usage.c - how much memory of each GPU is in use
 *
 * From: NVIDIA's management library where it is installed (dlopen), the files of AMD's kernel driver.  To: the worker (gpus.c), by standard output.
 * Neither opens a device. What can be asked about nothing is left out: the worker then waits for nothing.
 */
#include "config.h"
#include "usage.h"

#include "err.h"

#include <dirent.h>
#include <dlfcn.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PIDS = 64 };

struct usage { char id[64]; uint64_t used; unsigned pid[PIDS], n_pids; };

static bool first = true;

static void print(const struct usage *u)
{
    printf("%s  {\"id\": \"%s\", \"used\": %" PRIu64 ", \"pids\": [", first ? "" : ",\n", u->id, u->used);
    for (unsigned i = 0; i < u->n_pids; i++)
        printf("%s%u", i > 0 ? ", " : "", u->pid[i]);
    printf("]}");
    first = false;
}

/* ---- NVIDIA ------------------------------------------------------------------------------- */

/* Of nvml.h, which is not free: the structures of the versions that the functions' names say. */
struct nvml_pci { char legacy[16]; unsigned domain, bus, device, ids, subsystem; char text[32]; };
struct nvml_memory { unsigned long long total, free, used; };
struct nvml_process { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; };
typedef void *nvml_device;

static struct {
    int (*init)(void);
    int (*count)(unsigned *n);
    int (*by_index)(unsigned i, nvml_device *d);
    int (*pci)(nvml_device d, struct nvml_pci *out);
    int (*memory)(nvml_device d, struct nvml_memory *out);
    int (*processes)(nvml_device d, unsigned *n, struct nvml_process *out);
} nvml;

static bool nvml_load(void)
{
    static const struct { void *to; const char *name; } symbol[] = {
        { &nvml.init,      "nvmlInit_v2" },
        { &nvml.count,     "nvmlDeviceGetCount_v2" },
        { &nvml.by_index,  "nvmlDeviceGetHandleByIndex_v2" },
        { &nvml.pci,       "nvmlDeviceGetPciInfo_v3" },
        { &nvml.memory,    "nvmlDeviceGetMemoryInfo" },
        { &nvml.processes, "nvmlDeviceGetComputeRunningProcesses_v3" },
    };
    void *so = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);

    for (size_t i = 0; so != NULL && i < sizeof symbol / sizeof symbol[0]; i++) {
        void *p = dlsym(so, symbol[i].name);
        if (p == NULL)
            return false;
        memcpy(symbol[i].to, &p, sizeof p);
    }
    return so != NULL && nvml.init() == 0;
}

static void nvml_one(nvml_device d)
{
    struct nvml_pci pci = { 0 };
    struct nvml_memory memory = { 0 };
    struct nvml_process process[PIDS];
    struct usage u = { 0 };
    unsigned n = PIDS;

    if (nvml.pci(d, &pci) != 0 || nvml.memory(d, &memory) != 0)
        return;
    snprintf(u.id, sizeof u.id, "%04x:%02x:%02x.0", pci.domain, pci.bus, pci.device);
    u.used = memory.used;
    if (nvml.processes(d, &n, process) == 0) {
        for (; u.n_pids < n && u.n_pids < PIDS; u.n_pids++)
            u.pid[u.n_pids] = process[u.n_pids].pid;
    }
    print(&u);
}

static void nvidia(void)
{
    unsigned n = 0;
    nvml_device d;

    if (!nvml_load() || nvml.count(&n) != 0)
        return;
    for (unsigned i = 0; i < n; i++) {
        if (nvml.by_index(i, &d) == 0)
            nvml_one(d);
    }
}

/* ---- AMD ---------------------------------------------------------------------------------- */

static const char pci_devices[] = "/sys/bus/pci/devices", kfd_nodes[] = "/sys/class/kfd/kfd/topology/nodes", kfd_processes[] = "/sys/class/kfd/kfd/proc";

static bool read_number(const char *path, uint64_t *value)
{
    FILE *f = fopen(path, "re");
    bool ok = f != NULL && fscanf(f, "%" SCNu64, value) == 1;

    if (f != NULL)
        fclose(f);
    return ok;
}

/* The kernel driver's own number of the GPU at a place of the PCI bus; 0: none. */
static uint64_t kfd_number(const char *node, unsigned *domain, unsigned *place)
{
    char path[512], line[128];
    uint64_t id = 0;

    snprintf(path, sizeof path, "%s/%s/gpu_id", kfd_nodes, node);
    if (!read_number(path, &id) || id == 0)
        return 0;
    snprintf(path, sizeof path, "%s/%s/properties", kfd_nodes, node);
    FILE *f = fopen(path, "re");
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        sscanf(line, "location_id %u", place);
        sscanf(line, "domain %u", domain);
    }
    if (f != NULL)
        fclose(f);
    return id;
}

static uint64_t kfd_find(const char *pci)
{
    unsigned domain, bus, slot, function;
    DIR *dir = opendir(kfd_nodes);
    struct dirent *d;
    uint64_t found = 0;

    if (sscanf(pci, "%x:%x:%x.%x", &domain, &bus, &slot, &function) != 4) {
        if (dir != NULL)
            closedir(dir);
        return 0;
    }
    while (dir != NULL && found == 0 && (d = readdir(dir)) != NULL) {
        unsigned at_domain = 0, place = 0;
        uint64_t id = kfd_number(d->d_name, &at_domain, &place);
        if (id != 0 && at_domain == domain && place == (bus << 8 | slot << 3 | function))
            found = id;
    }
    if (dir != NULL)
        closedir(dir);
    return found;
}

static void kfd_pids(uint64_t number, struct usage *u)
{
    DIR *dir = opendir(kfd_processes);
    struct dirent *d;

    while (dir != NULL && u->n_pids < PIDS && (d = readdir(dir)) != NULL) {
        char path[512];
        uint64_t used = 0;
        snprintf(path, sizeof path, "%s/%s/vram_%" PRIu64, kfd_processes, d->d_name, number);
        if (d->d_name[0] != '.' && read_number(path, &used) && used > 0)
            u->pid[u->n_pids++] = (unsigned)strtoul(d->d_name, NULL, 10);
    }
    if (dir != NULL)
        closedir(dir);
}

static void amd(void)
{
    DIR *dir = opendir(pci_devices);
    struct dirent *d;

    while (dir != NULL && (d = readdir(dir)) != NULL) {
        char path[512];
        struct usage u = { 0 };
        snprintf(path, sizeof path, "%s/%s/mem_info_vram_used", pci_devices, d->d_name);
        if (!read_number(path, &u.used))
            continue;
        snprintf(u.id, sizeof u.id, "%.63s", d->d_name);
        kfd_pids(kfd_find(u.id), &u);
        print(&u);
    }
    if (dir != NULL)
        closedir(dir);
}

int usage_main(int argc, char **argv)
{
    if (argc > 2 || (argc == 2 && strcmp(argv[1], "--json") != 0)) {
        fprintf(stderr, "usage: sluice-reco usage [--json]: memory of the GPUs in use\n");
        return ERR_USAGE;
    }
    printf("{\"schema\": {\"name\": \"usage\", \"version\": 1}, \"usage\": [\n");
    nvidia();
    amd();
    printf("\n]}\n");
    return fflush(stdout) == 0 ? 0 : ERR_FAILED;
}
