/* ktypes.h - what host and kernels hand each other; every struct has the same layout everywhere
 *
 * Included after kdef.h. Members of fixed width only, padding written out.
 */
#ifndef KTYPES_H
#define KTYPES_H

#define K_SECTORS 36u
#define K_ROWS 152u             /* of a sector */
#define K_LINKS 720u            /* 36 sectors x 10 regions x 2 endpoints */
#define K_LINK_ROWS 10u         /* room for the rows of an endpoint; there are at most 9 */
#define K_PAD_ROOM 144u         /* room for the pads of a row; there are at most 138 */
#define K_ORBIT_BC 3564u
#define K_BIN_BC 8u

/* Bins of a row that stage cluster does at a time, without the 8 on either side: where a group's
 * memory is a CPU's, and where it is a GPU's. */
#define K_CLU_T_WIDE 112u
#define K_CLU_T_NARROW 32u

/* A page with data. */
typedef struct {
    u32 offset;                 /* of the page in the buffer */
    u32 link;                   /* in the batch */
    u32 first_bin;
    u16 size;                   /* bytes, header included */
    u16 samples;                /* as announced */
    u8 bins;
    u8 endpoint;
    u8 rows;                    /* of the endpoint */
    u8 pad0;
    u32 row;                    /* first row of the endpoint in the batch */
} kpage;

/* A row of the batch. */
typedef struct {
    u16 sector_row;             /* 152 * sector + row */
    u8 pads;
    u8 in_link;                 /* row in its endpoint */
    u32 page, page_end;         /* the pages of its link */
} krow;

/* What is wrong in the data of a page: code << 16 | offset in the page; 0: nothing. */
enum kpage_error {
    KPE_NONE, KPE_ALIGN, KPE_MASK_CUT, KPE_MASK_EMPTY, KPE_MASK_END, KPE_MASK_ROWS,
    KPE_OFFSETS_CUT, KPE_OFFSET, KPE_ROW_CUT, KPE_NO_SEQUENCE, KPE_SEQUENCES_CUT, KPE_LENGTH,
    KPE_OVERLAP, KPE_PAD, KPE_SAMPLES_CUT, KPE_NIBBLE, KPE_COUNT, KPE_TAIL, KPE_EMPTY_END, KPE_LAST
};

/* Parameters of the cluster finder. Charges in 1/16 count. */
typedef struct {
    u32 rows;                   /* in the batch */
    u32 chunks;                 /* pieces of K_CLU_T bins a row is cut into */
    u32 segment;                /* chunks a group does */
    u32 slots;                  /* room for clusters */
    u32 peak_min;               /* a peak is above this */
    u32 qtot_min;               /* whole counts; a cluster is above this */
    u32 noise_bins;             /* the noise rule looks at bins below this */
    u32 noise_run, noise_count; /* a pad with that many is noisy */
    u32 noise_max;              /* unless it reaches this, quarter counts */
    u32 min_diff;               /* valley: at least this much below the peak */
    u32 min_num, min_den;       /* valley: and more than num/den of the peak below */
} kcluster_par;

#endif
