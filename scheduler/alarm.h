/* alarm.h - one thing that somebody should look at: what every part of the daemon hands to whoever lists alarms
 *
 * An alarm is known by its word and what it is about: two pools whose brakes are on are two alarms. One that counts several things together (nodes without
 * contact) is one, with their number and, where they have names, these.
 */
#ifndef SLUICE_ALARM_H
#define SLUICE_ALARM_H

struct hostlist;

struct alarm {
    const char *word;                    /* stable */
    const char *about;                   /* "pool online", "run 3", "node n7"; NULL: the farm, or `count` things together */
    const char *text, *advice;
    double      since_s;                 /* for so long; 0: not known */
    unsigned    count;                   /* of the things it is about; 0: one */
    const struct hostlist *things;       /* their names; NULL: they have none, or it is one */
};

typedef void (*alarm_fn)(void *arg, const struct alarm *a);

#endif
