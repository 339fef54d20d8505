/* local.c - finds our own programs; runs the commands that need no sluiced by becoming sluice-reco
 *
 * The reconstruction is a program of its own, so that this one links no kernel and no GPU library.
 */
#include "config.h"

#include "local.h"

#include "command.h"
#include "mem.h"
#include "str.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char *if_executable(const char *folder, const char *program)
{
    char *path = mem_printf("%s/%s", folder, program);

    if (access(path, X_OK) == 0)
        return path;
    free(path);
    return NULL;
}

/* The folder of the running binary. */
static char *own_folder(void)
{
    char path[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);
    char *slash;

    if (n <= 0)
        return mem_strdup(".");
    path[n] = '\0';
    slash = strrchr(path, '/');
    if (slash != NULL)
        *slash = '\0';
    return mem_strdup(path);
}

char *local_find(const char *program, struct err *e)
{
    const char *given = getenv("SLUICE_LIBEXEC");
    char *own = own_folder(), *path = NULL;
    const char *folders[] = { given, own, SLUICE_LIBEXECDIR, SLUICE_SBINDIR, SLUICE_BINDIR };
    struct str tried = { 0 };

    for (size_t i = 0; path == NULL && i < ARRAY_LEN(folders); i++) {
        if (folders[i] == NULL || folders[i][0] == '\0')
            continue;
        path = if_executable(folders[i], program);
        str_addf(&tried, "%s%s", tried.len > 0 ? ", " : "", folders[i]);
    }
    if (path == NULL)
        err_set(e, ERR_FAILED, "the program %s is not in any of: %s", program, str_text(&tried));
    str_free(&tried);
    free(own);
    return path;
}

int cmd_local(struct context *ctx, const struct args *a, struct err *e)
{
    const char *space = strchr(a->command->name, ' ');
    char *path = local_find("sluice-reco", e);
    char **argv = mem_array((size_t)a->n + 4, sizeof(*argv));
    int n = 0;

    (void)ctx;
    if (path == NULL) {
        free(argv);
        return -1;
    }
    argv[n++] = path;
    argv[n++] = space != NULL ? mem_printf("%.*s", (int)(space - a->command->name), a->command->name)
                              : mem_strdup(a->command->name);
    if (space != NULL)
        argv[n++] = mem_strdup(space + 1);
    memcpy(argv + n, a->at, (size_t)a->n * sizeof(*argv));
    execv(path, argv);
    err_errno(e, ERR_FAILED, "%s", path);
    free(argv[1]);
    if (space != NULL)
        free(argv[2]);
    free(argv);
    free(path);
    return -1;
}
