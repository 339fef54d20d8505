/* peer.c - addresses and their sockets
 *
 * From: whoever listens or connects.  To: listener.c, connector.c, worker/source.c, worker/link.c.
 * A Unix socket's file is replaced only under a lock on PATH.lock and only when nobody answers on it, so that two programs that start
 * at the same time do not take it from each other. The lock file is gone afterwards.
 */
#include "config.h"

#include "peer.h"

#include "clock.h"
#include "file.h"
#include "mem.h"
#include "str.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

bool peer_is_unix(const char *address)
{
    return strncmp(address, "unix:", 5) == 0 || strchr(address, '/') != NULL;
}

const char *peer_unix_path(const char *address)
{
    return strncmp(address, "unix:", 5) == 0 ? address + 5 : address;
}

/* Where the host ends and the port begins. */
static int split(const char *address, const char **host, size_t *host_len, const char **port, struct err *e)
{
    const char *colon = strrchr(address, ':');

    *host = address;
    *port = PEER_PORT;
    if (address[0] == '[') {
        const char *close = strchr(address, ']');

        if (close == NULL || (close[1] != '\0' && close[1] != ':'))
            return err_set(e, ERR_USAGE, "address %s: wanted [V6]:PORT", address);
        *host = address + 1;
        *host_len = (size_t)(close - *host);
        if (close[1] == ':')
            *port = close + 2;
    } else if (colon == NULL || colon != strchr(address, ':')) {
        *host_len = strlen(address);    /* a name without a port, or v6 without brackets */
    } else {
        *host_len = (size_t)(colon - address);
        *port = colon + 1;
    }
    return 0;
}

int peer_parse(const char *address, char host[256], char port[16], struct err *e)
{
    const char *h, *p;
    size_t len = 0;
    uint64_t number;
    struct in6_addr v6;

    if (split(address, &h, &len, &p, e) < 0)
        return -1;
    if (len >= 256)
        return err_set(e, ERR_USAGE, "address: the host has %zu characters, at most 255 can be used", len);
    if (str_parse_u64("port", p, 0, 65535, &number, e) < 0)
        return err_prefix(e, "address %s", address);
    memcpy(host, h, len);
    host[len] = '\0';
    if (strcmp(host, "*") == 0)
        host[0] = '\0';
    if (strchr(host, ':') && strchr(host, '%') == NULL && inet_pton(AF_INET6, host, &v6) != 1)
        return err_set(e, ERR_USAGE, "address %s: %s is no IPv6 address; wanted HOST:PORT or [V6]:PORT", address, host);
    if (address[0] == '[' && strchr(host, ':') == NULL)
        return err_set(e, ERR_USAGE, "address %s: only an IPv6 address stands in brackets", address);
    snprintf(port, 16, "%u", (unsigned)number);
    return 0;
}

bool peer_sockaddr_is_loopback(const struct sockaddr_storage *a)
{
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)a;
    const struct in6_addr *v6 = &((const struct sockaddr_in6 *)a)->sin6_addr;

    if (a->ss_family == AF_INET)
        return (ntohl(v4->sin_addr.s_addr) >> 24) == 127 || v4->sin_addr.s_addr == 0;
    if (a->ss_family != AF_INET6)
        return false;
    if (IN6_IS_ADDR_V4MAPPED(v6))
        return v6->s6_addr[12] == 127 || memcmp(v6->s6_addr + 12, "\0\0\0\0", 4) == 0;
    return IN6_IS_ADDR_LOOPBACK(v6) || IN6_IS_ADDR_UNSPECIFIED(v6);
}

static struct addrinfo *look_up(const char *address, int flags, struct err *e)
{
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_family = AF_UNSPEC, .ai_flags = flags }, *list = NULL;
    char host[256], port[16];
    int rc;

    if (peer_parse(address, host, port, e) < 0)
        return NULL;
    rc = getaddrinfo(host[0] ? host : NULL, port, &hints, &list);
    if (rc != 0)
        return err_null(e, ERR_UNREACHABLE, "%s: %s", address, rc == EAI_SYSTEM ? strerror(errno) : gai_strerror(rc));
    return list;
}

bool peer_is_loopback(const char *address)
{
    char host[256], port[16];
    struct addrinfo *list;
    struct sockaddr_storage a = { 0 };

    if (peer_is_unix(address) || peer_parse(address, host, port, NULL) < 0)
        return false;
    if (host[0] == '\0' || strcasecmp(host, "localhost") == 0)
        return true;
    list = look_up(address, AI_NUMERICHOST | AI_NUMERICSERV, NULL);
    if (list == NULL)
        return false;
    memcpy(&a, list->ai_addr, list->ai_addrlen);
    freeaddrinfo(list);
    return peer_sockaddr_is_loopback(&a);
}

void peer_bound_address(int fd, const char *address, char out[320])
{
    struct sockaddr_storage a = { 0 };
    socklen_t len = sizeof(a);
    char host[INET6_ADDRSTRLEN + 20], port[8];

    if (peer_is_unix(address))
        snprintf(out, 320, "unix:%s", peer_unix_path(address));
    else if (getsockname(fd, (struct sockaddr *)&a, &len) == 0 &&
             getnameinfo((struct sockaddr *)&a, len, host, sizeof(host), port, sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV) == 0)
        snprintf(out, 320, strchr(host, ':') ? "[%s]:%s" : "%s:%s", host, port);
    else
        snprintf(out, 320, "%s", address);
}

/* ---- Unix sockets ---- */

static int unix_socket(struct err *e)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    return fd >= 0 ? fd : err_errno(e, ERR_FAILED, "no socket");
}

/* errno of the connect; fd is as it was but for that. */
static int unix_connect(int fd, const char *path, struct err *e)
{
    struct sockaddr_un a;
    socklen_t len;
    int dir, rc;

    if (file_socket_address(path, &a, &len, &dir, e) < 0)
        return -1;
    rc = connect(fd, (struct sockaddr *)&a, len) < 0 ? errno : 0;
    if (dir >= 0)
        close(dir);
    return rc;
}

/* Takes PATH.lock. The file may have been removed between open and lock: then it is another's. */
static int lock_beside(const char *path, char **name, struct err *e)
{
    struct stat mine, there;
    int64_t limit = clock_mono_ns() + 5 * CLOCK_SECOND;

    *name = mem_printf("%s.lock", path);
    while (clock_mono_ns() < limit) {
        int fd = open(*name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

        if (fd < 0) {
            err_errno(e, ERR_FAILED, "%s", *name);
            free(*name);
            return -1;
        }
        if (flock(fd, LOCK_EX | LOCK_NB) == 0 && fstat(fd, &mine) == 0 && stat(*name, &there) == 0 &&
            mine.st_ino == there.st_ino && mine.st_dev == there.st_dev)
            return fd;
        close(fd);
        poll(NULL, 0, 10);             /* held only for the moment of a bind */
    }
    free(*name);
    return err_set(e, ERR_STATE, "another program has been starting at %s for 5 s", path);
}

/* Removes a socket file that nobody listens on. */
static int remove_stale(const char *path, struct err *e)
{
    struct stat st;
    int fd, rc;

    if (lstat(path, &st) < 0)
        return errno == ENOENT ? 0 : err_errno(e, ERR_FAILED, "%s", path);
    if (!S_ISSOCK(st.st_mode))
        return err_set(e, ERR_STATE, "%s exists and is not a socket", path);
    fd = unix_socket(e);
    if (fd < 0)
        return -1;
    rc = unix_connect(fd, path, e);
    close(fd);
    if (rc < 0)
        return -1;
    if (rc != ECONNREFUSED && rc != ENOENT)
        return err_set(e, ERR_STATE, "somebody listens at %s already", path);
    if (unlink(path) < 0 && errno != ENOENT)
        return err_errno(e, ERR_FAILED, "%s is stale and cannot be removed", path);
    return 0;
}

static int bind_and_listen(int fd, const char *path, mode_t mode, struct err *e)
{
    struct sockaddr_un a;
    socklen_t len;
    int dir, rc;

    if (file_socket_address(path, &a, &len, &dir, e) < 0)
        return -1;
    (void)fchmod(fd, mode);            /* never wider than mode, whatever the umask; then exactly mode */
    rc = bind(fd, (struct sockaddr *)&a, len);
    if (rc < 0)
        err_errno(e, ERR_FAILED, "%s", path);
    if (dir >= 0)
        close(dir);
    if (rc < 0)
        return -1;
    if (chmod(path, mode) < 0 || listen(fd, SOMAXCONN) < 0) {
        err_errno(e, ERR_FAILED, "%s", path);
        unlink(path);
        return -1;
    }
    return 0;
}

static int unix_listen(const char *path, mode_t mode, struct err *e)
{
    char *lock_name;
    int fd = -1, lock = lock_beside(path, &lock_name, e);

    if (lock < 0)
        return -1;
    if (remove_stale(path, e) == 0)
        fd = unix_socket(e);
    if (fd >= 0 && bind_and_listen(fd, path, mode, e) < 0) {
        close(fd);
        fd = -1;
    }
    unlink(lock_name);
    free(lock_name);
    close(lock);
    return fd;
}

/* ---- TCP ---- */

static int tcp_listen_one(const struct addrinfo *i)
{
    int one = 1, zero = 0, saved;
    int fd = socket(i->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (i->ai_family == AF_INET6)      /* [::] hears both */
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof(zero));
    if (bind(fd, i->ai_addr, i->ai_addrlen) == 0 && listen(fd, SOMAXCONN) == 0)
        return fd;
    saved = errno;
    close(fd);
    errno = saved;
    return -1;
}

static int tcp_listen(const char *address, struct err *e)
{
    struct addrinfo *list = look_up(address, AI_PASSIVE, e);
    int fd = -1;

    if (list == NULL)
        return -1;
    for (int family = AF_INET6; fd < 0 && family >= 0; family = family == AF_INET6 ? AF_INET : -1)
        for (struct addrinfo *i = list; fd < 0 && i; i = i->ai_next)
            if (i->ai_family == family)
                fd = tcp_listen_one(i);
    if (fd < 0)
        err_errno(e, errno == EADDRINUSE ? ERR_STATE : ERR_FAILED, "cannot listen at %s", address);
    freeaddrinfo(list);
    return fd;
}

int peer_listen_fd(const char *address, mode_t mode, struct err *e)
{
    return peer_is_unix(address) ? unix_listen(peer_unix_path(address), mode, e) : tcp_listen(address, e);
}

void peer_unlisten(int fd, const char *address)
{
    if (fd < 0)
        return;
    if (peer_is_unix(address))
        unlink(peer_unix_path(address));
    close(fd);
}

int peer_connect_fd(const char *address, struct err *e)
{
    struct addrinfo *list;
    int fd, rc;

    if (peer_is_unix(address)) {
        fd = unix_socket(e);
        rc = fd < 0 ? -1 : unix_connect(fd, peer_unix_path(address), e);
        if (rc > 0) {
            errno = rc;
            err_errno(e, ERR_UNREACHABLE, "nobody answers at %s", peer_unix_path(address));
        }
    } else {
        list = look_up(address, AI_NUMERICHOST | AI_NUMERICSERV, e);
        if (list == NULL)
            return -1;
        fd = socket(list->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        rc = fd < 0 || (connect(fd, list->ai_addr, list->ai_addrlen) < 0 && errno != EINPROGRESS);
        if (rc)
            err_errno(e, ERR_UNREACHABLE, "nobody answers at %s", address);
        freeaddrinfo(list);
    }
    if (rc == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

int peer_ready(struct chan *c, const struct peer_id *id, const char *role, uint64_t seq)
{
    Sluice__Ready m = SLUICE__READY__INIT;

    m.user = (char *)id->user;
    m.has_uid = 1;
    m.uid = id->uid;
    m.role = (char *)role;
    m.has_clock_offset = 1;
    m.clock_offset = id->clock_offset;
    m.has_seq = 1;
    m.seq = seq;
    chan_known(c);
    return chan_send(c, 0, &m.base);
}
