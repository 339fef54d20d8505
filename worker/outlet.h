/* outlet.h - where workers pull parts: one listening socket for the sources of one process and run
 *
 * A worker proves that it knows the run's key, and is shown that we do, before it may ask. Several pulls of a connection are answered in
 * order, a same-host worker gets a descriptor and reads by itself, any other the raw bytes. A slow worker holds up nobody but itself.
 */
#ifndef SLUICE_OUTLET_H
#define SLUICE_OUTLET_H

#include <ev.h>
#include <sys/types.h>
#include "chan.h"
#include "hold.h"

struct outlet;

struct outlet_conf {
    struct ev_loop *loop;
    const char *address;             /* "unix:PATH", "HOST:PORT" */
    mode_t      mode;                /* of a Unix socket */
    uint64_t    run;
    struct hold **holds;             /* by part: holds[i] has those of part first_part + i; borrowed */
    unsigned    n_holds, first_part;
    unsigned    max_workers;         /* connections at a time */
    double      handshake_s;
    struct chan_limits limits;
};

struct outlet_stats { uint64_t workers, refused, pulls, descriptors, raw_bytes, gone, stale, not_ours; };

struct outlet *outlet_create(const struct outlet_conf *conf, struct err *e);
void  outlet_destroy(struct outlet *o);                       /* also removes its Unix socket */
/* key: RUNKEY_SIZE bytes. data_fd: what hold_part.offset counts in, borrowed. Before this nobody is let in. */
void  outlet_open(struct outlet *o, const uint8_t *key, int data_fd);
const char *outlet_address(const struct outlet *o);           /* as bound: port 0 filled in */
const struct outlet_stats *outlet_stats(const struct outlet *o);

#endif
