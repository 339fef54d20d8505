/* hugetlb.h - a folder of type hugetlbfs: its pages are huge ones that the administrator set aside */
#ifndef SLUICE_HUGETLB_H
#define SLUICE_HUGETLB_H

#include <stdint.h>
#include <sys/vfs.h>

/* Swapped by tests. */
extern int (*hugetlb_statfs)(const char *folder, struct statfs *fs);

/* Bytes of a page there; 0: the folder is of another type, or cannot be read. left: what the mount still gives, UINT64_MAX without a limit. */
uint64_t hugetlb_page(const char *folder, uint64_t *left);
/* Bytes in pages of this size that are free on the machine and promised to nobody, and those that it may make on demand (overcommit). */
uint64_t hugetlb_free(const char *root, uint64_t page);

#endif
