/* handshake.c - what listener.c and connector.c share */
#include "config.h"

#include "handshake.h"

#include <stdio.h>
#include <string.h>

size_t handshake_payload(const uint8_t challenge[HANDSHAKE_CHALLENGE], unsigned role, const char *name, uint8_t out[HANDSHAKE_PAYLOAD])
{
    size_t len = strnlen(name, HANDSHAKE_PAYLOAD - HANDSHAKE_CHALLENGE - 1);

    memcpy(out, challenge, HANDSHAKE_CHALLENGE);
    out[HANDSHAKE_CHALLENGE] = (uint8_t)role;
    memcpy(out + HANDSHAKE_CHALLENGE + 1, name, len);
    return HANDSHAKE_CHALLENGE + 1 + len;
}

int handshake_method(const char *method, struct names *names, struct err *e)
{
    if (method == NULL || strcmp(method, "none") == 0)
        return err_set(e, ERR_USAGE, "a TCP address needs a method of authentication (auth = \"munge\")");
    if (strcmp(method, "munge") != 0 && strncmp(method, "munge:", 6) != 0)
        return err_set(e, ERR_USAGE, "authentication \"%s\" is not known, wanted munge or munge:SOCKET", method);
#ifndef HAVE_MUNGE
    return err_set(e, ERR_USAGE, "authentication munge is wanted, but this build has no munge");
#endif
    if (names == NULL)
        return err_set(e, ERR_FAILED, "a TCP address needs the name thread");
    return method[5] == ':' ? names_munge_socket(names, method + 6, e) : 0;
}

void handshake_version(unsigned major, unsigned minor, const char *software, char out[96])
{
    snprintf(out, 96, "%u.%u (sluice %.60s)", major, minor, software ? software : "of unknown version");
}
