/* notify.c - one datagram to the service manager
 *
 * From: sluiced and sluice-worker.  To: systemd, or whoever made NOTIFY_SOCKET.
 */
#include "config.h"

#include "notify.h"

#include "str.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int notify_send(const char *state, struct err *e)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un to = { .sun_family = AF_UNIX };
    size_t len = path == NULL ? 0 : strlen(path);
    int fd, rc = 0;

    if (len == 0)
        return 0;
    if ((path[0] != '/' && path[0] != '@') || len >= sizeof(to.sun_path))
        return err_set(e, ERR_USAGE, "NOTIFY_SOCKET '%.120s': a path, or @ and a name, of at most %zu bytes is wanted", path, sizeof(to.sun_path) - 1);
    memcpy(to.sun_path, path, len);
    if (path[0] == '@')
        to.sun_path[0] = '\0';
    fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&to, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len)) < 0)
        rc = err_errno(e, ERR_FAILED, "NOTIFY_SOCKET %s", path);
    if (fd >= 0)
        close(fd);
    return rc;
}

double notify_watchdog_s(void)
{
    const char *pid = getenv("WATCHDOG_PID"), *limit = getenv("WATCHDOG_USEC");
    uint64_t us, of;

    if (limit == NULL || str_parse_u64("WATCHDOG_USEC", limit, 1, UINT64_MAX, &us, NULL) < 0)
        return 0;
    if (pid != NULL && (str_parse_u64("WATCHDOG_PID", pid, 1, INT32_MAX, &of, NULL) < 0 || of != (uint64_t)getpid()))
        return 0;
    return (double)us / 2e6;
}
