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

bool slurm_next(const struct slurm_facts *f, Sluice__SlurmAct *act)
{
    const struct { bool due; Sluice__SlurmAct act; } steps[] = {
        /* the reservation first: it guards the node whatever else fails */
        { f->lend && f->heard && f->reserve && (!f->reserved || f->left_s < SLURM_RENEW_S), SLUICE__SLURM_ACT__ACT_RESERVE },
        { f->view == SLURM_CLEAN && f->drain,                                               SLUICE__SLURM_ACT__ACT_DRAIN },
        { f->view == SLURM_OURS && f->drain && f->half,                                     SLUICE__SLURM_ACT__ACT_DRAIN },
        { f->view == SLURM_OURS && !f->drain,                                               SLUICE__SLURM_ACT__ACT_UNDRAIN },
        { f->lend && f->heard && !f->reserve && f->reserved,                                SLUICE__SLURM_ACT__ACT_RELEASE },
        { f->lend && f->lease_heard && f->leased && !f->lease,                              SLUICE__SLURM_ACT__ACT_UNLEASE },
        { f->lend && f->lease_heard && !f->leased && f->lease && f->heard && !f->reserve && !f->reserved, SLUICE__SLURM_ACT__ACT_LEASE },
        { f->lend && f->heard && f->reserve && f->reserved && f->clear_out,                 SLUICE__SLURM_ACT__ACT_CLEAR_OUT },
    };

    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        if (steps[i].due) {
            *act = steps[i].act;
            return true;
        }
    }
    return false;
}
