/* show.h - what people ask: status, nodes, buffers, configuration, metrics, invariants, logs; backup
 *
 * From: session.c.  To: the asker, at once from memory; logs come from the worker, a backup from a helper thread.
 */
#ifndef SLUICE_SHOW_H
#define SLUICE_SHOW_H

#include "alarm.h"
#include "session.h"

struct show *show_create(struct sluiced *d);
void show_destroy(struct show *s);

void show_status(struct session *s, uint32_t id, const void *m);       /* GET_STATUS */
void show_nodes(struct session *s, uint32_t id, const void *m);        /* GET_NODES */
void show_config(struct session *s, uint32_t id, const void *m);       /* GET_CONFIG */
void show_metrics(struct session *s, uint32_t id, const void *m);      /* GET_METRICS */
void show_check(struct session *s, uint32_t id, const void *m);        /* GET_CHECK */
void show_backup(struct session *s, uint32_t id, const void *m);       /* BACKUP */
void show_logs(struct session *s, uint32_t id, const void *m);         /* GET_LOGS */
void show_log_lines(struct session *s, uint32_t id, const void *m);    /* LOG_LINES, from a worker */
void show_log_error(struct session *s, uint32_t id, const void *m);    /* ERROR, from a worker */

/* alarms.c */
void alarms_each(struct sluiced *d, alarm_fn fn, void *arg);
/* invariants.c */
void invariants_each(struct sluiced *d, void (*line)(void *arg, const char *name, bool ok, const char *text), void *arg);
/* metrics.c: the text, caller frees. */
char *metrics_text(struct sluiced *d);

/* A node is shown when it belongs to the farm, is in contact, or bears a mark. */
struct node;
struct farm;
bool show_is_shown(const struct node *n);
/* The nodes of these names (none: all), in natural order, each once; the caller frees. NULL: e names the first that is not there. */
struct node **show_named(struct farm *f, char *const *names, size_t n_names, size_t *n, struct err *e);

#endif
