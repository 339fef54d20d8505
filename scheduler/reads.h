/* reads.h - how much of the loop's time questions may take: a pure library, no clock of its own
 *
 * Each user may use half of the share, all together the share; who has used it up is told when it will be their turn, one after the other. Nobody's change, wait or watch is
 * ever put off.
 */
#ifndef SLUICE_READS_H
#define SLUICE_READS_H

#include <stdint.h>

struct reads;
struct reads *reads_create(void);
void reads_destroy(struct reads *r);
/* May user ask something now (s, monotonic), with this share of the loop's time for all? 0: yes. Else: ms after which to try again. */
unsigned reads_refuse(struct reads *r, uint32_t user, double share, double now);
/* An answer to user, or a connection of theirs, took so many seconds. */
void reads_charge(struct reads *r, uint32_t user, double share, double now, double seconds);

#endif
