/* runkey_test.c - the proofs of worker and source, against values of another implementation (Python's hmac) */
#include "config.h"
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "runkey.h"

static uint8_t key[RUNKEY_SIZE], worker_nonce[RUNKEY_NONCE], source_nonce[RUNKEY_NONCE];

static int setup(void **unused)
{
    (void)unused;
    for (unsigned i = 0; i < sizeof(key); i++)
        key[i] = (uint8_t)i;
    memset(worker_nonce, 0x11, sizeof(worker_nonce));
    memset(source_nonce, 0x22, sizeof(source_nonce));
    return 0;
}

static void proofs_are_hmac_sha256(void **unused)
{
    uint8_t proof[RUNKEY_PROOF];

    (void)unused;
    runkey_proof(key, "source", "mi50-001", 0x0102030405060708, worker_nonce, source_nonce, proof);
    assert_memory_equal(proof, "\xa9\x03\xc8\x2b\x39\x8f\x5c\x46\x68\x16\xfc\xac\x6b\xc7\x40\xfe"
                               "\x63\x78\x95\x43\x2a\x53\xf4\x98\x61\xa7\x93\x05\xd1\x01\xe6\xc7", RUNKEY_PROOF);
    runkey_proof(key, "worker", "mi50-001", 0x0102030405060708, worker_nonce, source_nonce, proof);
    assert_memory_equal(proof, "\xdb\x60\x11\x6c\x95\xaa\x1e\x46\x2e\xd8\xe8\x93\x7d\x59\x78\x9a"
                               "\xd1\xfd\x8c\x84\xe4\x5e\xef\x6f\x5a\x91\x69\x18\x31\x22\x4c\x2e", RUNKEY_PROOF);
}

static void everything_in_a_proof_counts(void **unused)
{
    uint8_t right[RUNKEY_PROOF], p[RUNKEY_PROOF];

    (void)unused;
    runkey_proof(key, "worker", "n1", 1, worker_nonce, source_nonce, right);
    runkey_proof(key, "source", "n1", 1, worker_nonce, source_nonce, p);
    assert_false(runkey_equal(p, right, sizeof(p)));
    runkey_proof(key, "worker", "n2", 1, worker_nonce, source_nonce, p);
    assert_false(runkey_equal(p, right, sizeof(p)));
    runkey_proof(key, "worker", "n1", 2, worker_nonce, source_nonce, p);
    assert_false(runkey_equal(p, right, sizeof(p)));
    runkey_proof(key, "worker", "n1", 1, source_nonce, worker_nonce, p);
    assert_false(runkey_equal(p, right, sizeof(p)));
    key[31] ^= 1;
    runkey_proof(key, "worker", "n1", 1, worker_nonce, source_nonce, p);
    key[31] ^= 1;
    assert_false(runkey_equal(p, right, sizeof(p)));
    runkey_proof(key, "worker", "n1", 1, worker_nonce, source_nonce, p);
    assert_true(runkey_equal(p, right, sizeof(p)));
}

static void random_bytes_differ(void **unused)
{
    uint8_t a[64] = { 0 }, b[64] = { 0 };
    struct err e;

    (void)unused;
    assert_int_equal(runkey_random(a, sizeof(a), &e), 0);
    assert_int_equal(runkey_random(b, sizeof(b), &e), 0);
    assert_memory_not_equal(a, b, sizeof(a));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(proofs_are_hmac_sha256),
        cmocka_unit_test(everything_in_a_proof_counts),
        cmocka_unit_test(random_bytes_differ),
    };

    return cmocka_run_group_tests(tests, setup, NULL);
}
