/* heap.c - a binary heap in an array; every element is told its index whenever it moves */
#include "config.h"

#include "heap.h"
#include "mem.h"

#include <stdlib.h>

void heap_init(struct heap *h, int (*less)(const void *, const void *), size_t *(*place)(void *))
{
    *h = (struct heap){ .less = less, .place = place };
}

void heap_free(struct heap *h)
{
    for (size_t i = 0; i < h->n; i++)
        *h->place(h->at[i]) = HEAP_NOWHERE;
    free(h->at);
    h->at = NULL;
    h->n = h->cap = 0;
}

static void put(struct heap *h, size_t i, void *element)
{
    h->at[i] = element;
    *h->place(element) = i;
}

static size_t sift_up(struct heap *h, size_t i, void *element)
{
    while (i > 0 && h->less(element, h->at[(i - 1) / 2])) {
        put(h, i, h->at[(i - 1) / 2]);
        i = (i - 1) / 2;
    }
    put(h, i, element);
    return i;
}

static void sift_down(struct heap *h, size_t i, void *element)
{
    for (;;) {
        size_t child = 2 * i + 1;

        if (child >= h->n)
            break;
        if (child + 1 < h->n && h->less(h->at[child + 1], h->at[child]))
            child++;
        if (!h->less(h->at[child], element))
            break;
        put(h, i, h->at[child]);
        i = child;
    }
    put(h, i, element);
}

void heap_push(struct heap *h, void *element)
{
    if (h->n == h->cap) {
        h->cap = h->cap == 0 ? 16 : 2 * h->cap;
        h->at = mem_grow(h->at, h->cap, sizeof(h->at[0]));
    }
    h->n++;
    sift_up(h, h->n - 1, element);
}

void *heap_top(const struct heap *h)
{
    return h->n == 0 ? NULL : h->at[0];
}

void *heap_pop(struct heap *h)
{
    void *top = heap_top(h);

    if (top != NULL)
        heap_remove(h, top);
    return top;
}

void heap_fix(struct heap *h, void *element)
{
    size_t i = *h->place(element);

    if (i >= h->n || h->at[i] != element)
        return;
    if (sift_up(h, i, element) == i)
        sift_down(h, i, element);
}

void heap_remove(struct heap *h, void *element)
{
    size_t i = *h->place(element);
    void *last;

    if (i >= h->n || h->at[i] != element)
        return;
    *h->place(element) = HEAP_NOWHERE;
    last = h->at[--h->n];
    if (last == element)
        return;
    put(h, i, last);
    heap_fix(h, last);
}
