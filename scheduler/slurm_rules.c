/* slurm_rules.c - see slurm_rules.h */
#include "config.h"

#include "slurm_rules.h"

#include <string.h>

#include "str.h"

bool slurm_reason_is_ours(const char *reason, const char *prefix)
{
    size_t n = strlen(prefix);

    return reason != NULL && strncmp(reason, prefix, n) == 0 && strncmp(reason + n, ": ", 2) == 0;
}

enum slurm_view slurm_view(const Sluice__SlurmNode *n, const char *prefix, bool sent)
{
    if (n == NULL || n->unknown)
        return SLURM_NO_WORD;
    if (!n->drain && !n->down && !n->fail && !n->invalid)
        return SLURM_CLEAN;
    if (n->down || n->fail || n->invalid)        /* also under our reason: there is one place for reasons only */
        return SLURM_FOREIGN;
    if (slurm_reason_is_ours(n->reason, prefix) || (sent && str_is_empty(n->reason)))
        return SLURM_OURS;
    return SLURM_FOREIGN;
}

size_t slurm_due(const struct slurm_facts *f, Sluice__SlurmAct due[SLURM_ACTS])
{
    bool drain = f->drain && (f->view == SLURM_CLEAN || (f->view == SLURM_OURS && (f->half || f->stale))), undrain = f->view == SLURM_OURS && !f->drain;
    bool resv = f->lend && f->heard, lease = f->lend && f->lease_heard;
    bool unlease = lease && f->leased && !f->lease;
    const struct { bool due; Sluice__SlurmAct act; } steps[] = {
        /* the reservation first: it guards the node whatever else fails, and goes last */
        { resv && f->reserve && (!f->reserved || f->left_s < SLURM_RENEW_S),        SLUICE__SLURM_ACT__ACT_RESERVE },
        { drain,                                                                    SLUICE__SLURM_ACT__ACT_DRAIN },
        { undrain,                                                                  SLUICE__SLURM_ACT__ACT_UNDRAIN },
        { resv && !f->reserve && f->reserved && !drain && !undrain,                 SLUICE__SLURM_ACT__ACT_RELEASE },
        { unlease && (!f->reserve || f->reserved),                                  SLUICE__SLURM_ACT__ACT_UNLEASE },
        { lease && !f->leased && f->lease && resv && !f->reserve && !f->reserved,   SLUICE__SLURM_ACT__ACT_LEASE },
        { resv && f->reserve && f->reserved && f->clear_out && !unlease,            SLUICE__SLURM_ACT__ACT_CLEAR_OUT },
    };
    size_t n = 0;

    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        if (steps[i].due)
            due[n++] = steps[i].act;
    }
    return n;
}
