/* simulate.c - a TF made from the physics, with its truth
 *
 * From: cmd_simulate.c, tests.  To: event.c, track.c, pads.c, encode.c; truth.c.
 */
#include "simulate.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "../result.h"
#include "encode.h"
#include "event.h"
#include "tf_file.h"

uint32_t simulate_bins(uint32_t orbits)
{
    return (orbits * K_ORBIT_BC + K_BIN_BC - 1) / K_BIN_BC;
}

static int conf_check(const struct simulate_conf *c, struct k_err *e)
{
    if (c->orbits == 0 || c->orbits > SIMULATE_MAX_ORBITS)
        return k_fail(e, K_EOPTION, "%u orbits, want 1 to %d", c->orbits, SIMULATE_MAX_ORBITS);
    if (c->tracks > SIMULATE_MAX_TRACKS)
        return k_fail(e, K_EOPTION, "%u tracks, want at most %d", c->tracks, SIMULATE_MAX_TRACKS);
    if (c->bins > simulate_bins(c->orbits))
        return k_fail(e, K_EOPTION, "collisions in %u bins, but %u orbits have %u", c->bins,
                      c->orbits, simulate_bins(c->orbits));
    if (!(c->noise >= 0) || c->noise > 0.5)
        return k_fail(e, K_EOPTION, "noise %g, want 0 to 0.5", c->noise);
    return 0;
}

int simulate_run(const struct simulate_conf *c, struct simulate_tf *tf, struct k_err *e)
{
    struct sim_normal normal;
    struct sim_rng r;

    if (conf_check(c, e) < 0)
        return -1;
    *tf = (struct simulate_tf){ .conf = *c, .bins = simulate_bins(c->orbits) };
    sim_normal_init(&normal);
    struct pads *pads = pads_create(tf->bins);
    tf->particle = calloc(c->tracks + 1, sizeof *tf->particle);
    if (pads == NULL || tf->particle == NULL) {
        k_fail(e, K_ENOMEM, "no memory for a TF of %u bins", tf->bins);
        goto fail;
    }
    sim_rng_init(&r, c->seed, c->tf, 0, 0);
    tf->collisions = event_make(tf->particle, c->tracks, c->bins ? c->bins : tf->bins, &normal, &r);
    for (uint32_t i = 0; i < c->tracks; i++) {
        sim_rng_init(&r, c->seed, c->tf, 1, i);
        track_follow(&tf->particle[i], (uint16_t)i, &normal, &r, pads);
    }
    if (pads_digitize(pads, &normal, c->seed, c->tf, c->noise, &tf->digits, e) < 0)
        goto fail;
    pads_destroy(pads);
    return 0;
fail:
    pads_destroy(pads);
    simulate_free(tf);
    return -1;
}

void simulate_free(struct simulate_tf *tf)
{
    free(tf->particle);
    pads_digits_free(&tf->digits);
    *tf = (struct simulate_tf){ 0 };
}

int simulate_encode(const struct simulate_tf *tf, uint8_t *packet, void **out, size_t *size,
                    struct k_err *e)
{
    const struct pads_digits *d = &tf->digits;
    const struct simulate_conf *c = &tf->conf;
    struct encode_digits ed = { d->n, d->time, d->charge, d->sector, d->row, d->pad };
    struct encode_tf et = { .orbits = c->orbits, .first_orbit = c->first_orbit,
                            .counter = c->counter, .run = c->run, .packet = packet };

    return encode_tf(&ed, &et, out, size, e);
}

static void put32(uint8_t *p, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        p[i] = (uint8_t)(v >> 8 * i);
}

int simulate_digits(const struct simulate_tf *tf, void **out, size_t *size, struct k_err *e)
{
    const struct pads_digits *d = &tf->digits;
    const struct simulate_conf *c = &tf->conf;
    const uint32_t head[6] = { d->n, tf->bins, c->orbits, c->first_orbit, c->counter, c->run };
    size_t n = d->n, bytes = DIGITS_HEADER + DIGIT_SIZE * n;
    uint8_t *p = calloc(1, bytes), *q = p + DIGITS_HEADER;

    if (p == NULL)
        return k_fail(e, K_ENOMEM, "no memory for %zu bytes", bytes);
    memcpy(p, "TPCDIG1", 8);
    for (int i = 0; i < 6; i++)
        put32(p + 8 + 4 * i, head[i]);
    uint32_t i = 0;
    for (uint32_t s = 0; s <= K_SECTORS; s++) {
        while (i < d->n && d->sector[i] < s)
            i++;
        put32(p + 32 + 4 * s, i);
    }
    for (i = 0; i < d->n; i++) {
        q[2 * i] = (uint8_t)d->time[i];
        q[2 * i + 1] = (uint8_t)(d->time[i] >> 8);
        q[2 * (n + i)] = (uint8_t)d->charge[i];
        q[2 * (n + i) + 1] = (uint8_t)(d->charge[i] >> 8);
        q[4 * n + i] = d->sector[i];
        q[5 * n + i] = d->row[i];
        q[6 * n + i] = d->pad[i];
    }
    *out = p;
    *size = bytes;
    return 0;
}

/* Noise, so that neither the file system nor a link can make the blocks small. */
static void filler(uint8_t *p, size_t size, uint64_t seed)
{
    struct sim_rng r;

    sim_rng_init(&r, seed, 0, 4, 0);
    for (size_t i = 0; i < size; i += 8) {
        uint64_t v = sim_bits(&r);
        for (size_t k = 0; k < 8 && i + k < size; k++)
            p[i + k] = (uint8_t)(v >> 8 * k);
    }
}

static size_t blocks_of(const void *tf, size_t size, struct tf_new_block *nb, struct tf_err *te)
{
    struct tf_seg seg = { tf, size };
    struct tf_iter it;
    struct tf_block b;
    size_t n = 0;

    tf_iter_init(&it, &seg, 1);
    while (tf_iter_next(&it, &b, te) == 1) {
        if (tf_block_kind(&b) == TF_DATA)
            nb[n++] = (struct tf_new_block){ "RAWDATA", "TPC", b.subspec, b.payload, b.size };
    }
    return n;
}

int simulate_pad(const void *tf, size_t tf_size, uint64_t size, uint64_t blocks, uint64_t seed,
                 void **out, struct k_err *e)
{
    struct tf_seg seg = { tf, tf_size };
    struct tf_info info;
    struct tf_err te = { 0 };
    uint64_t own = tf_size + blocks * TF_HEADER_SIZE + TF_ENTRY_SIZE;
    size_t made = 0;
    int r = -1;

    if (blocks == 0)
        return k_fail(e, K_EOPTION, "no blocks to fill a TF with");
    if (size < own)
        return k_fail(e, K_EOPTION, "the TF and %" PRIu64 " more blocks have %" PRIu64 " bytes already, "
                      "%" PRIu64 " are asked for", blocks, own, size);
    if (tf_check(&seg, 1, &info, NULL, &te) < 0)
        return k_fail(e, K_EINTERNAL, "%s", te.text);
    uint64_t each = (size - own) / blocks, last = size - own - each * (blocks - 1);
    struct tf_new_block *nb = calloc(info.blocks + blocks, sizeof *nb);
    uint8_t *fill = malloc(last + 1);
    if (nb == NULL || fill == NULL) {
        k_fail(e, K_ENOMEM, "no memory for a TF of %" PRIu64 " bytes", size);
        goto out;
    }
    filler(fill, last, seed);
    size_t n = blocks_of(tf, tf_size, nb, &te);
    for (uint64_t i = 0; i < blocks; i++)
        nb[n++] = (struct tf_new_block){ "RAWDATA", "ITS", 0, fill, i + 1 == blocks ? last : each };
    r = tf_build(nb, n, info.first_orbit, info.counter, info.run, info.written_ms, out, &made, &te);
    if (r < 0)
        k_fail(e, K_ENOMEM, "%s", te.text);
out:
    free(nb);
    free(fill);
    return r;
}
