/* hugetlb.c - a folder of type hugetlbfs
 *
 * From: statfs, /sys/kernel/mm/hugepages.  To: room.c, buffer.c.
 */
#include "config.h"
#include "hugetlb.h"

#include <inttypes.h>
#include <linux/magic.h>
#include <stdio.h>

int (*hugetlb_statfs)(const char *folder, struct statfs *fs) = statfs;

uint64_t hugetlb_page(const char *folder, uint64_t *left)
{
    struct statfs fs;

    if (hugetlb_statfs(folder, &fs) < 0 || fs.f_type != HUGETLBFS_MAGIC || fs.f_bsize <= 0)
        return 0;
    *left = fs.f_blocks > 0 ? (uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize : UINT64_MAX;      /* mounted without a size: 0 blocks */
    return (uint64_t)fs.f_bsize;
}

/* 0 when it is not there. */
static uint64_t number(const char *root, uint64_t page, const char *name)
{
    char path[512];
    uint64_t n = 0;

    snprintf(path, sizeof path, "%s/sys/kernel/mm/hugepages/hugepages-%" PRIu64 "kB/%s", root, page / 1024, name);
    FILE *f = fopen(path, "re");
    if (f != NULL && fscanf(f, "%" SCNu64, &n) != 1)
        n = 0;
    if (f != NULL)
        fclose(f);
    return n;
}

uint64_t hugetlb_free(const char *root, uint64_t page)
{
    uint64_t free = number(root, page, "free_hugepages"), promised = number(root, page, "resv_hugepages");
    uint64_t most = number(root, page, "nr_overcommit_hugepages"), made = number(root, page, "surplus_hugepages");
    uint64_t pages = (free > promised ? free - promised : 0) + (most > made ? most - made : 0);

    return pages > UINT64_MAX / page ? UINT64_MAX : pages * page;
}
