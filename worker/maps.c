/* maps.c - the pages of a mapping of ours
 *
 * From: buffer.c, in its thread.  To: -.
 * Transparent huge pages of shared memory are counted as ShmemPmdMapped; the kernel calls the page of such a mapping small all the same. Those of hugetlbfs
 * have counters of their own.
 */
#include "config.h"
#include "maps.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>

/* The line that begins the part of a mapping. */
static bool is_head(const char *line, uint64_t *start)
{
    uint64_t end;

    return sscanf(line, "%" SCNx64 "-%" SCNx64 " ", start, &end) == 2;
}

struct maps_pages maps_pages(const void *start)
{
    struct maps_pages p = { 0, 0 };
    FILE *f = fopen("/proc/self/smaps", "re");
    char line[4352];                             /* a head ends in a path */
    bool here = false;
    uint64_t at, kib;

    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        if (is_head(line, &at)) {
            if (here)
                break;
            here = at == (uint64_t)(uintptr_t)start;
        } else if (here && sscanf(line, "KernelPageSize: %" SCNu64, &kib) == 1) {
            p.size = kib * 1024;
        } else if (here && sscanf(line, "ShmemPmdMapped: %" SCNu64, &kib) == 1) {
            p.huge += kib * 1024;
        } else if (here && (sscanf(line, "Shared_Hugetlb: %" SCNu64, &kib) == 1 || sscanf(line, "Private_Hugetlb: %" SCNu64, &kib) == 1)) {
            p.huge += kib * 1024;
        }
    }
    if (f != NULL)
        fclose(f);
    return p;
}
