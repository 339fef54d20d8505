/* priority.h - the loop comes before what else this node does
 *
 * Heartbeats, verdicts and deadlines cost little and must not be late when the machine is busy: the thread of the loop asks for a better nice value
 * than the rest of the worker has. Threads that read, hash and write, and the reconstruction processes, stay behind it in any case.
 */
#ifndef SLUICE_PRIORITY_H
#define SLUICE_PRIORITY_H

enum { PRIORITY_LOOP = -5, PRIORITY_STEP = 5 };

struct priority { int loop, base; };             /* nice values: of the loop's thread; what the program was started with */

/* For the calling thread, to be called before others are started. Where the kernel refuses, the loop stays where it is, the log says so, and the
 * others step back instead. */
struct priority priority_take(void);
/* What a thread or a process gets that is wanted at this nice value: never nearer to the loop than PRIORITY_STEP, as far as 19 allows. */
int priority_behind(const struct priority *p, int wanted);

#endif
