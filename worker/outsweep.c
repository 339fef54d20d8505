/* outsweep.c - what tries at a job's TFs left half in its output folder, of which nothing will ever come
 *
 * From: outcheck.c, in its thread, once the job is over and no try of it is on anywhere.  To: the output folder, and the folders rerun-N in it.
 * Only names that say that they are that job's go: results never do, nor what other jobs have there.
 */
#include "config.h"
#include "deliver.h"

#include "mem.h"
#include "outname.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A former release's name does not say it; its .json does. */
static bool is_former_of(int dir, const char *name, size_t n, uint64_t job)
{
    size_t n_final = n > 5 && strncmp(name + n - 5, ".json", 5) == 0 ? n - 5 : n;
    char *json = mem_printf("%.*s.json%s", (int)n_final, name, name + n);
    bool is = deliver_job_of(dir, json) == job;

    free(json);
    return is;
}

static bool is_left(int dir, const char *name, uint64_t job)
{
    struct tf_name whose;
    size_t n = outname_tried(name, &whose);

    if (n == 0 || whose.run != 0)
        return false;
    return whose.job != 0 ? whose.job == job : is_former_of(dir, name, n, job);
}

static bool is_rerun(const char *name)
{
    return strncmp(name, "rerun-", 6) == 0 && name[6] != '\0' && strspn(name + 6, "0123456789") == strlen(name + 6);
}

static int sweep(int at, const char *folder, bool deeper, uint64_t job, struct err *e)
{
    int fd = openat(at, folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC | (deeper ? 0 : O_NOFOLLOW)), rc = 0;
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    struct dirent *entry;

    if (d == NULL) {
        int error = errno;
        if (fd >= 0)
            close(fd);
        errno = error;
        return error == ENOENT || error == ENOTDIR || error == ELOOP ? 0 : err_errno(e, ERR_FAILED, "%s", folder);
    }
    while (rc == 0 && (entry = readdir(d)) != NULL) {
        if (deeper && is_rerun(entry->d_name))
            rc = sweep(dirfd(d), entry->d_name, false, job, e);
        else if (is_left(dirfd(d), entry->d_name, job) && unlinkat(dirfd(d), entry->d_name, 0) < 0 && errno != ENOENT)
            rc = err_errno(e, ERR_FAILED, "%s/%s", folder, entry->d_name);
    }
    closedir(d);
    return rc;
}

int deliver_sweep(const char *output, uint64_t job, struct err *e)
{
    return sweep(AT_FDCWD, output, true, job, e);
}
