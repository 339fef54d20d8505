/* bench_dispatch.c - what a decision costs: choose, charge, give back, at 10, 350 and 10 000 nodes
 *
 * Farms of two kinds: two sizes of buffers (as the farm has), and no two alike (the worst case of the search by level).
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "clock.h"
#include "dispatch.h"
#include "mem.h"

static uint64_t seed = 88172645463325252u;

static uint64_t draw(uint64_t below)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed % below;
}

/* Of this process: others that run beside it do not count. */
static int64_t cpu_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec * CLOCK_SECOND + t.tv_nsec;
}

static double measure(enum disp_policy policy, unsigned nodes, bool alike)
{
    enum { DECISIONS = 200000, TF = 1800 };      /* MB */
    struct dispatch *d = dispatch_create();
    struct disp_node *n = mem_array(nodes, sizeof(*n));
    size_t flying = 20 * (size_t)nodes, at = 0;
    struct disp_node **who = mem_array(flying, sizeof(struct disp_node *));
    double ns;

    for (unsigned i = 0; i < nodes; i++) {
        n[i] = (struct disp_node){ .usable = true, .class_bit = i % 5 ? 1 : 2, .high_water = 0.8,
                                   .building_limit = 1000, .speed = i % 5 ? 1 : 1.5 };
        n[i].size = alike ? (i % 5 ? 345088 : 488448) : 345088 + draw(143360);
        dispatch_add(d, &n[i]);
    }
    int64_t start = 0;
    for (size_t k = 0; k < flying + DECISIONS; k++, at = (at + 1) % flying) {
        if (k == flying)
            start = cpu_ns();             /* filled up: now one goes for each that comes */
        if (who[at]) {
            who[at]->charged -= TF;
            dispatch_changed(d, who[at]);
        }
        struct disp_need need = { .policy = policy, .bytes = TF };
        who[at] = dispatch_choose(d, &need, NULL);
        if (who[at] == NULL) {
            fprintf(stderr, "bench_dispatch: no node took a TF\n");
            exit(1);
        }
        who[at]->charged += TF;
        dispatch_changed(d, who[at]);
    }
    ns = (double)(cpu_ns() - start) / DECISIONS;
    free(who);
    free(n);
    dispatch_destroy(d);
    return ns;
}

int main(void)
{
    static const unsigned nodes[] = { 10, 350, 10000 };

    printf("ns a decision (choose, charge, give back)\n%-14s %-10s", "policy", "buffers");
    for (size_t i = 0; i < ARRAY_LEN(nodes); i++)
        printf(" %8u", nodes[i]);
    printf(" nodes\n");
    for (int policy = 0; policy < 2; policy++) {
        for (int alike = 1; alike >= 0; alike--) {
            printf("%-14s %-10s", disp_policy_name[policy], alike ? "two sizes" : "all differ");
            for (size_t i = 0; i < ARRAY_LEN(nodes); i++)
                printf(" %8.0f", measure((enum disp_policy)policy, nodes[i], alike));
            printf("\n");
        }
    }
    return 0;
}
