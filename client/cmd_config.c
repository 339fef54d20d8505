/* cmd_config.c - config show: the file as it stands, with its defaults, or what sluiced uses */
#include "config.h"

#include "command.h"

#include "call.h"
#include "conf.h"
#include "farm.h"
#include "file.h"
#include "mem.h"
#include "show.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct column columns[] = { { "path" }, { "text" }, { 0 } };
static const struct listing listing = { "config", columns, "path,text" };

char *config_here(const struct args *a)
{
    const char *given = args_text(a, "config", getenv("SLUICE_CONF"));
    char *farm, *path;

    if (given != NULL && given[0] != '\0')
        return args_path(given);
    farm = farm_search(".");
    if (farm != NULL) {
        path = mem_printf("%s/sluice.conf", farm);
        free(farm);
        return path;
    }
    return access("/etc/sluice/sluice.conf", F_OK) == 0 ? mem_strdup("/etc/sluice/sluice.conf") : NULL;
}

static int show(const struct context *ctx, const char *path, const char *text, struct err *e)
{
    json_t *object;

    if (ctx->mode == SHOW_TABLE && ctx->fields == NULL) {
        fputs(text, stdout);
        return 0;
    }
    object = json_pack("{s:s?,s:s}", "path", path, "text", text);
    if (object == NULL)
        return err_set(e, ERR_FAILED, "%s: not UTF-8", path != NULL ? path : "configuration");
    return show_one(ctx, &listing, object, e);
}

static int show_running(struct context *ctx, struct err *e)
{
    Sluice__GetConfig question = SLUICE__GET_CONFIG__INIT;
    Sluice__Config *answer = call(ctx, &question.base, SLUICE__TYPE__CONFIG, CALL_LIMIT_S, e);
    int r;

    if (answer == NULL)
        return -1;
    r = show(ctx, answer->path, answer->text != NULL ? answer->text : "", e);
    call_free(answer);
    return r;
}

int cmd_config_show(struct context *ctx, const struct args *a, struct err *e)
{
    struct conf *c;
    char *path, *text = NULL;
    int r = -1;

    if (show_columns_help(ctx, &listing))
        return 0;
    if (args_has(a, "running"))
        return show_running(ctx, e);
    path = config_here(a);
    c = conf_read(path, e);
    if (c != NULL && (args_has(a, "effective") || path == NULL))
        text = conf_show(c);
    else if (c != NULL)
        text = file_read(path, 16 << 20, NULL, e);
    if (text != NULL)
        r = show(ctx, path, text, e);
    conf_destroy(c);
    free(text);
    free(path);
    return r;
}
