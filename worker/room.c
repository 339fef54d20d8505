/* room.c - how much memory a buffer may take here
 *
 * From: statvfs, RLIMIT_FSIZE, /proc/meminfo, /proc/self/cgroup, /sys/fs/cgroup.  To: buffer.c.
 * A page of shared memory is charged to the control group that touches it first, and one page above the limit is answered by the
 * kernel with SIGKILL: so the question is asked before the first page.
 */
#include "config.h"
#include "room.h"

#include "file.h"
#include "hugetlb.h"
#include "mem.h"
#include "str.h"

#include <errno.h>
#include <inttypes.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* Files of /proc and /sys have size 0: they are read, not measured. NULL: not there. */
static char *read_small(const char *root, const char *path)
{
    char *name = mem_printf("%s%s", root, path);
    FILE *f = fopen(name, "re");
    free(name);
    if (f == NULL)
        return NULL;
    char *text = mem_zalloc(65536);
    size_t n = fread(text, 1, 65535, f);
    text[n] = '\0';
    fclose(f);
    return text;
}

/* "max" and the number with which version 1 says "none" (about 2^63) are no limit. */
static int parse_limit(const char *path, const char *text, uint64_t *v, struct err *e)
{
    char *end;

    if (strncmp(text, "max", 3) == 0) {
        *v = ROOM_ANY;
        return 0;
    }
    errno = 0;
    uint64_t n = strtoull(text, &end, 10);
    if (errno != 0 || end == text || (*end != '\n' && *end != '\0') || text[0] == '-')
        return err_set(e, ERR_FAILED, "%s: a number or max wanted, found \"%.40s\"", path, text);
    *v = n >= UINT64_C(1) << 62 ? ROOM_ANY : n;
    return 0;
}

/* 1: read; 0: no such file. */
static int read_limit(const char *root, const char *path, uint64_t *v, struct err *e)
{
    char *text = read_small(root, path);
    if (text == NULL)
        return 0;
    int rc = parse_limit(path, text, v, e);
    free(text);
    return rc < 0 ? -1 : 1;
}

/* What the reclaimable cache of files holds in the group would be dropped first, so it counts as free. */
static uint64_t inactive_file(const char *root, const char *folder, const char *key)
{
    char *path = mem_printf("%s/memory.stat", folder);
    char *text = read_small(root, path);
    uint64_t n = 0;

    free(path);
    for (char *line = text; line != NULL && *line != '\0'; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        size_t len = strlen(key);
        if (strncmp(line, key, len) == 0 && line[len] == ' ') {
            n = strtoull(line + len + 1, NULL, 10);
            break;
        }
    }
    free(text);
    return n;
}

/* The names of one version's files; cache: NULL where there is none. */
struct names { const char *limit, *usage, *cache; };
static const struct names v1 = { "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file" };
static const struct names v2 = { "memory.max", "memory.current", "inactive_file" };

/* What is counted: memory, or huge pages of one size (controller hugetlb, "hugetlb.2MB.max"). */
struct counted { const char *controller; struct names v1, v2; char text[4][64]; };

static void count_memory(struct counted *c)
{
    *c = (struct counted){ .controller = "memory", .v1 = v1, .v2 = v2 };
}

static void count_huge(struct counted *c, uint64_t page)
{
    static const char *const file[] = { "limit_in_bytes", "usage_in_bytes", "max", "current" };
    uint64_t n = page >= UINT64_C(1) << 30 ? page >> 30 : page >= UINT64_C(1) << 20 ? page >> 20 : page >> 10;
    const char *unit = page >= UINT64_C(1) << 30 ? "GB" : page >= UINT64_C(1) << 20 ? "MB" : "KB";

    for (int i = 0; i < 4; i++)
        snprintf(c->text[i], sizeof c->text[i], "hugetlb.%" PRIu64 "%s.%s", n, unit, file[i]);
    c->controller = "hugetlb";
    c->v1 = (struct names){ c->text[0], c->text[1], NULL };
    c->v2 = (struct names){ c->text[2], c->text[3], NULL };
}

static int group_limit(const char *root, const char *folder, const struct names *n, struct room *r, struct err *e)
{
    uint64_t limit = ROOM_ANY, usage = 0;
    char *path = mem_printf("%s/%s", folder, n->limit);
    int rc = read_limit(root, path, &limit, e);

    free(path);
    if (rc < 0)
        return -1;
    if (rc == 0 || limit == ROOM_ANY)
        return 0;
    path = mem_printf("%s/%s", folder, n->usage);
    rc = read_limit(root, path, &usage, e);
    free(path);
    if (rc < 0)
        return -1;

    uint64_t cache = n->cache != NULL ? inactive_file(root, folder, n->cache) : 0;
    usage = usage > cache ? usage - cache : 0;
    uint64_t left = limit > usage ? limit - usage : 0;
    if (left < r->cgroup) {
        r->cgroup = left;
        snprintf(r->cgroup_path, sizeof r->cgroup_path, "%.255s", folder);
    }
    return 0;
}

/* From our group up to the root: any of them may set the limit. In a container the path of the group may lie outside of what is
 * mounted; the mounted root then stands for it and is looked at last in any case. */
static int walk_up(const char *root, const char *mount, const char *group, const struct names *n, struct room *r, struct err *e)
{
    char *path = mem_printf("%s%s", mount, strcmp(group, "/") == 0 ? "" : group);
    size_t top = strlen(mount);
    int rc = 0;

    for (;;) {
        rc = group_limit(root, path, n, r, e);
        char *slash = strrchr(path, '/');
        if (rc < 0 || strlen(path) <= top || slash == NULL || (size_t)(slash - path) < top)
            break;
        *slash = '\0';
    }
    free(path);
    return rc;
}

static bool has_word(const char *list, size_t len, const char *word)
{
    size_t n = strlen(word);
    for (size_t i = 0; i + n <= len; i++) {
        if (strncmp(list + i, word, n) == 0 && (i == 0 || list[i - 1] == ',') &&
            (i + n == len || list[i + n] == ','))
            return true;
    }
    return false;
}

/* A line of /proc/self/cgroup: "4:memory:/a/b" (version 1) or "0::/a/b" (version 2). */
static int cgroup_line(const char *root, const char *line, const struct counted *c, struct room *r, struct err *e)
{
    const char *list = strchr(line, ':');
    const char *path = list ? strchr(list + 1, ':') : NULL;

    if (path == NULL || path[1] != '/')
        return err_set(e, ERR_FAILED, "/proc/self/cgroup: \"N:LIST:/PATH\" wanted, found \"%.60s\"", line);
    size_t len = (size_t)(path - list - 1);
    if (len == 0) {
        if (walk_up(root, "/sys/fs/cgroup", path + 1, &c->v2, r, e) < 0)
            return -1;
        return walk_up(root, "/sys/fs/cgroup/unified", path + 1, &c->v2, r, e);
    }
    if (!has_word(list + 1, len, c->controller))
        return 0;
    char *mount = mem_printf("/sys/fs/cgroup/%s", c->controller);
    int rc = walk_up(root, mount, path + 1, &c->v1, r, e);
    free(mount);
    return rc;
}

int room_cgroup(const char *root, struct room *r, struct err *e)
{
    char *text = read_small(root, "/proc/self/cgroup"), *save = NULL;
    struct counted counted;
    int rc = 0;

    if (r->page > 0)
        count_huge(&counted, r->page);
    else
        count_memory(&counted);
    r->cgroup = ROOM_ANY;
    r->cgroup_path[0] = '\0';
    for (char *line = text ? strtok_r(text, "\n", &save) : NULL; line != NULL && rc == 0;
         line = strtok_r(NULL, "\n", &save))
        rc = cgroup_line(root, line, &counted, r, e);
    free(text);
    return rc;
}

static uint64_t mem_available(const char *root)
{
    char *text = read_small(root, "/proc/meminfo");
    const char *at = text ? strstr(text, "MemAvailable:") : NULL;
    uint64_t n = at ? strtoull(at + strlen("MemAvailable:"), NULL, 10) * 1024 : ROOM_ANY;
    free(text);
    return n;
}

/* With CAP_IPC_LOCK there is no limit of locked memory. */
static bool may_lock(const char *root)
{
    char *text = read_small(root, "/proc/self/status");
    const char *at = text ? strstr(text, "CapEff:") : NULL;
    bool may = at != NULL && (strtoull(at + strlen("CapEff:"), NULL, 16) >> CAP_IPC_LOCK & 1) != 0;

    free(text);
    return may;
}

int room_measure(const char *folder, const char *root, struct room *r, struct err *e)
{
    struct statvfs fs;
    struct rlimit file, locked;

    if (statvfs(folder, &fs) < 0)
        return err_errno(e, ERR_FAILED, "%s: its free space cannot be read", folder);
    if (getrlimit(RLIMIT_FSIZE, &file) < 0 || getrlimit(RLIMIT_MEMLOCK, &locked) < 0)
        return err_errno(e, ERR_FAILED, "the limits of file sizes and locked memory cannot be read");
    r->disk = (uint64_t)fs.f_bavail * fs.f_frsize;
    r->huge = ROOM_ANY;
    r->page = hugetlb_page(folder, &r->disk);
    r->file = file.rlim_cur == RLIM_INFINITY ? ROOM_ANY : file.rlim_cur;
    r->locked = locked.rlim_cur == RLIM_INFINITY || may_lock(root) ? ROOM_ANY : locked.rlim_cur;
    r->memory = mem_available(root);
    if (r->page > 0) {                           /* set aside long ago, and never swapped */
        r->huge = hugetlb_free(root, r->page);
        r->locked = r->memory = ROOM_ANY;
    }
    return room_cgroup(root, r, e);
}

static uint64_t add(uint64_t left, uint64_t have)
{
    return left > ROOM_ANY - have ? ROOM_ANY : left + have;
}

int room_check(const struct room *r, const char *folder, uint64_t wanted, uint64_t have, struct err *e)
{
    char page[32];
    const struct { uint64_t left; const char *what, *where; } bound[] = {
        { add(r->disk, have),   "available in", folder },
        { r->file,              "allowed by", "the file size limit (ulimit -f)" },
        { r->locked,            "allowed by", "the limit of locked memory (ulimit -l)" },
        { add(r->memory, have), "available in", "the memory of this machine" },
        { r->page > 0 ? add(r->huge, have) : ROOM_ANY, "free in huge pages of", page },
        { add(r->cgroup, have), "left by the memory limit of control group", r->cgroup_path },
    };
    size_t least = 0;
    char want[32], left[32];

    str_size_text(r->page, page);
    for (size_t i = 1; i < ARRAY_LEN(bound); i++) {
        if (bound[i].left < bound[least].left)
            least = i;
    }
    if (wanted <= bound[least].left)
        return 0;
    return err_set(e, ERR_STATE, "%s wanted, %s %s %s", str_size_text(wanted, want),
                   str_size_text(bound[least].left, left), bound[least].what, bound[least].where);
}

/* The option huge= of a tmpfs, from the line of /proc/self/mountinfo whose device is that of the folder; "" when it has none. */
static void mount_huge(const char *root, const char *folder, char out[32])
{
    char *text = read_small(root, "/proc/self/mountinfo"), *save = NULL, device[32];
    struct stat st;

    out[0] = '\0';
    if (stat(folder, &st) < 0)
        st.st_dev = 0;
    snprintf(device, sizeof device, " %u:%u ", major(st.st_dev), minor(st.st_dev));
    for (char *line = text ? strtok_r(text, "\n", &save) : NULL; line != NULL; line = strtok_r(NULL, "\n", &save)) {
        const char *options = strstr(line, device) != NULL ? strstr(line, "huge=") : NULL;
        if (options != NULL)
            snprintf(out, 32, "%.*s", (int)strcspn(options + 5, ", \n"), options + 5);
    }
    free(text);
}

/* The word in brackets: "always [never] deny". */
static void chosen(const char *text, char out[32])
{
    const char *open = text ? strchr(text, '[') : NULL;

    snprintf(out, 32, "%.*s", open ? (int)strcspn(open + 1, "]") : 7, open ? open + 1 : "unknown");
}

int room_check_huge(const char *folder, const char *root, uint64_t wanted, struct err *e)
{
    char *text = read_small(root, "/sys/kernel/mm/transparent_hugepage/shmem_enabled");
    char system[32], mount[32], size[32];
    uint64_t left;

    chosen(text, system);
    free(text);
    mount_huge(root, folder, mount);
    if (hugetlb_page(folder, &left) > 0)
        return 0;
    if (strcmp(system, "deny") != 0 && (strcmp(system, "force") == 0 || strcmp(mount, "always") == 0 || strcmp(mount, "advise") == 0 ||
                                        strcmp(mount, "within_size") == 0))
        return 0;
    return err_set(e, ERR_STATE, "%s in huge pages wanted, %s gives none: it is mounted with huge=%s, shmem_enabled of this machine is %s",
                   str_size_text(wanted, size), folder, mount[0] != '\0' ? mount : "never", system);
}
