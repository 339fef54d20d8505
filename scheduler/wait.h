/* wait.h - Wait: answered when a run or job is over, or its time is up */
#ifndef SLUICE_WAIT_H
#define SLUICE_WAIT_H

struct run;
struct runs;
struct job;
struct wait_ask;
void wait_run_over(struct run *r);
void wait_job_over(struct job *j);
void wait_tick(struct runs *runs, double now);
void wait_free(struct runs *runs);

#endif
