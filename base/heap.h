/* heap.h - a binary heap of pointers whose elements know their place, so that any can be moved or removed in O(log n) */
#ifndef SLUICE_HEAP_H
#define SLUICE_HEAP_H

#include <stddef.h>

struct heap {
    void **at;
    size_t n, cap;
    int  (*less)(const void *a, const void *b);      /* strict order: the least is at the top */
    size_t *(*place)(void *element);                 /* where the element keeps its index */
};

#define HEAP_NOWHERE ((size_t)-1)                    /* the index of an element that is in no heap */

void  heap_init(struct heap *h, int (*less)(const void *, const void *), size_t *(*place)(void *));
void  heap_free(struct heap *h);
void  heap_push(struct heap *h, void *element);
void *heap_top(const struct heap *h);                /* NULL when empty */
void *heap_pop(struct heap *h);
void  heap_fix(struct heap *h, void *element);       /* after its key changed */
void  heap_remove(struct heap *h, void *element);
#endif
