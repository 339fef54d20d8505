/* bk_load.h - finds a backend by name */
#ifndef BK_LOAD_H
#define BK_LOAD_H

#include <stddef.h>

#include "bk.h"

/* Names in the order `gpu` and `auto` try them; a NULL ends the list. */
extern const char *const bk_names[];

/* Adds a backend of the caller's (a test's device); one of a built-in name takes its place. */
void bk_register(const struct bk_ops *ops);

/* The i-th backend added that is none of bk_names; NULL: there are no more. */
const char *bk_added(unsigned i);

/* NULL with the reason in why when the backend is unknown or cannot be loaded. */
const struct bk_ops *bk_load(const char *name, char *why, size_t room);

#endif
