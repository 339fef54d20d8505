/* mem.h - small memory: an allocation of our own bookkeeping that fails ends the program
 *
 * Only for sizes that we chose or have already bounded. Sizes from outside, shared memory and
 * device memory are checked and refused by whoever takes them in.
 */
#ifndef SLUICE_MEM_H
#define SLUICE_MEM_H

#include <stddef.h>

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
#define CONTAINER_OF(ptr, type, member) ((type *)((char *)(ptr) - offsetof(type, member)))

void *mem_zalloc(size_t size);                      /* zeroed */
void *mem_array(size_t n, size_t size);             /* zeroed; overflow ends the program */
void *mem_grow(void *old, size_t n, size_t size);   /* realloc to n elements; new ones not zeroed */
char *mem_strdup(const char *s);                    /* NULL stays NULL */
char *mem_printf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
