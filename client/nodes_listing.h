/* nodes_listing.h - the columns of nodes, for the list of them (cmd_nodes.c) and for one (cmd_node_show.c) */
#ifndef SLUICE_NODES_LISTING_H
#define SLUICE_NODES_LISTING_H

#include "show.h"

extern const struct listing nodes_listing;

#endif
