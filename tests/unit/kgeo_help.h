/* kgeo_help.h - the pad rows once more, from the rule by which the chambers are laid out, not from the table of kernels/kgeo.h
 *
 * Region g with pads of width w and height h: row number `off` of the region has
 * 2 floor(h/w tan 10 deg (off + shift) + c) pads; its middle lies off * h beyond that of the region's first row.
 */
#ifndef KGEO_HELP_H
#define KGEO_HELP_H

#include <math.h>
#include <stdint.h>

static uint8_t pads_of[152];
static double width_of[152], x_of[152], height_of[152];

static inline void geo_init(void)
{
    static const struct { int first, shift; double w, h, x, c; } g[10] = {
        { 0, 0, 0.416, 0.75, 85.225, 33.20 },   { 17, 17, 0.420, 0.75, 97.975, 33.00 },
        { 32, 32, 0.420, 0.75, 109.225, 33.08 }, { 48, 48, 0.436, 0.75, 121.225, 31.83 },
        { 63, 0, 0.600, 1.0, 135.2, 38 },       { 81, 18, 0.600, 1.0, 153.2, 38 },
        { 97, 0, 0.608, 1.2, 171.4, 47.90 },    { 113, 16, 0.588, 1.2, 190.6, 49.55 },
        { 127, 0, 0.604, 1.5, 209.65, 59.39 },  { 140, 0, 0.607, 1.5, 229.15, 64.70 },
    };
    for (int i = 0, k = 0; i < 152; i++) {
        k += k < 9 && i == g[k + 1].first;
        int off = i - g[k].first;
        pads_of[i] = (uint8_t)(2 * (int)floor(g[k].h / g[k].w * tan(M_PI / 18) * (off + g[k].shift) + g[k].c));
        width_of[i] = g[k].w;
        height_of[i] = g[k].h;
        x_of[i] = g[k].x + off * g[k].h;
    }
}

#endif
