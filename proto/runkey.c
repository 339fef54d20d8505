/* runkey.c - the key of a run and the proofs made with it
 *
 * From: worker/link.c and worker/source.c, which got the key from sluiced.  To: the handshake between worker and source.
 * The proof covers who speaks, the node, the run and both nonces: it is worth nothing on another connection or the other way round.
 */
#include "config.h"

#include "runkey.h"

#include <nettle/hmac.h>
#include <nettle/memops.h>

#include <errno.h>
#include <string.h>
#include <sys/random.h>

int runkey_random(uint8_t *out, size_t size, struct err *e)
{
    while (size > 0) {
        ssize_t n = getrandom(out, size, 0);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_errno(e, ERR_FAILED, "no random numbers from the kernel");
        out += n;
        size -= (size_t)n;
    }
    return 0;
}

void runkey_proof(const uint8_t key[RUNKEY_SIZE], const char *who, const char *node, uint64_t run,
                  const uint8_t worker_nonce[RUNKEY_NONCE], const uint8_t source_nonce[RUNKEY_NONCE],
                  uint8_t proof[RUNKEY_PROOF])
{
    struct hmac_sha256_ctx h;
    uint8_t run_le[8];

    for (unsigned i = 0; i < sizeof(run_le); i++)
        run_le[i] = (uint8_t)(run >> (8 * i));
    hmac_sha256_set_key(&h, RUNKEY_SIZE, key);
    /* The NUL of each word goes in: "ab" + "c" is not "a" + "bc". */
    hmac_sha256_update(&h, strlen(who) + 1, (const uint8_t *)who);
    hmac_sha256_update(&h, strlen(node) + 1, (const uint8_t *)node);
    hmac_sha256_update(&h, sizeof(run_le), run_le);
    hmac_sha256_update(&h, RUNKEY_NONCE, worker_nonce);
    hmac_sha256_update(&h, RUNKEY_NONCE, source_nonce);
    hmac_sha256_digest(&h, RUNKEY_PROOF, proof);
}

bool runkey_equal(const uint8_t *a, const uint8_t *b, size_t size)
{
    return memeql_sec(a, b, size);
}
