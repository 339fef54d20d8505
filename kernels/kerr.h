/* kerr.h - errors of kernels/: a code the caller can act on, and a sentence for a person */
#ifndef KERR_H
#define KERR_H

#include <stdint.h>

enum k_code {
    K_OK,
    K_EINPUT,                    /* the data are bad */
    K_ENOMEM,                    /* too little memory; `need` bytes would do */
    K_EDEVICE,                   /* the device failed or is not there */
    K_EOPTION,                   /* a workflow, stage, backend or option that cannot be */
    K_EINTERNAL,                 /* a bug of ours */
};

struct k_err {
    int code;
    char text[400];
    uint64_t need;
};

/* Fills e (which may be NULL); always -1. */
int k_fail(struct k_err *e, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#endif
