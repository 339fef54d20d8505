/* maps.h - the pages of a mapping of ours, as /proc/self/smaps says */
#ifndef SLUICE_MAPS_H
#define SLUICE_MAPS_H

#include <stdint.h>

/* size: of its pages, bytes; huge: bytes of it that are mapped by huge ones. 0, 0: not known. Walks its page tables: seconds for hundreds of GiB. */
struct maps_pages { uint64_t size, huge; };

struct maps_pages maps_pages(const void *start);

#endif
