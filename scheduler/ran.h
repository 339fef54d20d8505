/* ran.h - on which backend the stages of TFs ran: a text a TF, counts a run
 *
 * The text has a line a stage: STAGE=BACKEND, and "!REASON" behind it where `auto` had to fall back. It is what is stored; TFs of a run have few
 * different ones.
 */
#ifndef SLUICE_RAN_H
#define SLUICE_RAN_H

#include <stdint.h>
#include <stddef.h>
#include "sluice.pb-c.h"

struct ran {                             /* one stage on one backend */
    char     stage[32], backend[16];
    uint64_t tfs, fallbacks;
    char    *reason;                     /* of the last fall-back; NULL: none */
    struct ran *next;
};
enum { RAN_STAGES = 16, RAN_KINDS = 64, RAN_REASON = 200 };

/* From a worker's Done; what is no sound name is left out. NULL: nothing was said. The caller frees. */
char *ran_text(Sluice__StageRan *const *stages, size_t n);
/* Counts a TF with this text (NULL: none). At most RAN_KINDS kinds are kept. Returns how many fall-backs it had. */
unsigned ran_count(struct ran **list, const char *text);
void ran_uncount(struct ran **list, const char *text);           /* it is not done after all */
void ran_free(struct ran *list);
/* The counts as a text, and back: "STAGE=BACKEND TFS FALLBACKS!REASON" a line. NULL for none. */
char *ran_totals_text(const struct ran *list);
void ran_totals_read(struct ran **list, const char *text);

/* For people. Strings of ran_list belong to list; arrays and messages go by ran_..._free. */
Sluice__StageRan **ran_stages(const char *text, size_t *n);
void ran_stages_free(Sluice__StageRan **stages, size_t n);
Sluice__StageTotal **ran_list(const struct ran *list, size_t *n);
void ran_list_free(Sluice__StageTotal **totals, size_t n);

#endif
