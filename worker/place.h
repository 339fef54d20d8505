/* place.h - where on the machine things belong: NUMA domains, CPUs near a device, and where they really are
 *
 * The topology is hwloc's: HWLOC_XMLFILE and HWLOC_SYNTHETIC in the environment make one up. On a machine of one domain nothing is placed.
 */
#ifndef SLUICE_PLACE_H
#define SLUICE_PLACE_H

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include "err.h"

enum { PLACE_DOMAINS = 64 };                     /* by the system's numbers, at most; others are not placed */

struct topology;

struct topology *topology_load(struct err *e);
void     topology_free(struct topology *t);
uint64_t topology_domains(const struct topology *t);         /* a bit each */

struct place {
    int       domain;                            /* -1: anywhere */
    cpu_set_t cpus;                              /* of the domain; no meaning without one */
    char      text[128];                         /* the CPUs as a list: "0-3,8"; "" */
};
/* Near the device at that address of the PCI bus; when the topology does not know it, in this domain; else (numa -1) anywhere. */
void place_near(const struct topology *t, const char *pci, int numa, struct place *p);
/* Number i of n that are alike, spread over the domains in equal shares. */
void place_spread(const struct topology *t, unsigned i, unsigned n, struct place *p);

/* Between fork and exec: this process on these CPUs, its memory from this domain. What cannot be had is left; place_compare says so. */
void place_become(const struct place *p);

/* All threads of this process in the one domain; of several, or none, nothing. */
void place_self(const struct topology *t, uint64_t domains);

/* Where process pid may run, as a list. false: it is gone. */
bool place_cpus(pid_t pid, cpu_set_t *cpus, char *text, size_t room);
/* The domain from which this process takes its memory; -1: no one in particular. */
int  place_own_domain(void);
/* What is not as wanted of a process on these CPUs (text of them) with its memory from this domain (-2: not known). "" when all is. */
void place_compare(const struct place *wanted, const cpu_set_t *cpus, const char *text, int domain, char *out, size_t room);

/* A mapping's pages: from the one domain, or in turn from each of several. Whoever touches it first. -1: the system does not take it. */
int  place_memory(void *p, size_t size, uint64_t domains, struct err *e);
/* Where they are, from a sample: "0", or "0 75 %, 1 25 %"; "" when the system does not say. Returns the domains. */
uint64_t place_pages(void *p, size_t size, char *text, size_t room);
void place_domains_text(uint64_t domains, char *text, size_t room);      /* "0,1" */

#endif
