/* conf_value.c - one value of the configuration file: its text checked and put where its row says, and written back
 *
 * From: conf_syntax.c (checks while the line is known), conf.c.  To: str.c, hostlist.c.
 */
#include "config.h"

#include "conf_part.h"
#include "constraint.h"
#include "mem.h"
#include "str.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool has_word(const char *words, const char *text)
{
    size_t n = strlen(text);

    for (const char *p = words; n > 0 && (p = strstr(p, text)) != NULL; p += n)
        if ((p == words || p[-1] == ' ') && (p[n] == ' ' || p[n] == '\0'))
            return true;
    return false;
}

static bool has_control(const char *text)
{
    for (const unsigned char *p = (const unsigned char *)text; *p != '\0'; p++)
        if (*p < 0x20 || *p == 0x7f)
            return true;
    return false;
}

static int wrong(const struct conf_key *k, const char *text, const char *wanted, struct err *e)
{
    struct str shown = { 0 };

    str_escape(&shown, text, strnlen(text, 200));
    err_set(e, ERR_USAGE, "%s '%s': %s is wanted", k->name, str_text(&shown), wanted);
    str_free(&shown);
    return -1;
}

static int check_path(const struct conf_key *k, const char *text, struct err *e)
{
    if (text[0] != '/' || has_control(text) || strlen(text) >= 4096)
        return wrong(k, text, "an absolute path", e);
    return 0;
}

static int check_text(const struct conf_key *k, const char *text, struct err *e)
{
    if (text[0] == '\0' || has_control(text))
        return wrong(k, text, "a text without control characters", e);
    return 0;
}

int conf_class_size(const char *text, uint64_t *size, struct err *e)
{
    const char *equals = strchr(text, '=');
    char class[64];

    if (equals == NULL || equals == text || equals - text >= (int)sizeof(class))
        return err_set(e, ERR_USAGE, "CLASS=SIZE is wanted");
    snprintf(class, sizeof(class), "%.*s", (int)(equals - text), text);
    if (!str_is_name(class))
        return err_set(e, ERR_USAGE, "'%s' is no name of a class", class);
    return str_parse_size(equals + 1, size, e);
}

static int check_class_size(const struct conf_key *k, const char *text, struct err *e)
{
    uint64_t size;

    if (conf_class_size(text, &size, e) < 0)
        return err_prefix(e, "%s '%.100s'", k->name, text);
    return size >= 65536 ? 0 : wrong(k, text, "a size of 64K at least", e);
}

static int check_listen(const struct conf_key *k, const char *text, struct err *e)
{
    const char *colon = strrchr(text, ':');
    uint64_t port;

    if (colon == NULL || colon == text || has_control(text) || strchr(text, ' ') != NULL)
        return wrong(k, text, "HOST:PORT", e);
    return str_parse_u64("port in listen", colon + 1, 1, 65535, &port, e);
}

static int check_method(const struct conf_key *k, const char *text, struct err *e)
{
    if (has_word("none munge", text) || (strncmp(text, "munge:/", 7) == 0 && !has_control(text)))
        return 0;
    return wrong(k, text, "none, munge or munge:SOCKET", e);
}

static int check_features(const struct conf_key *k, const char *text, struct err *e)
{
    struct err why;

    return constraint_check(text, &why) == 0 ? 0 : wrong(k, text, why.text, e);
}

static int read_bool(const struct conf_key *k, const char *text, bool *value, struct err *e)
{
    if (has_word("yes true on", text))
        *value = true;
    else if (has_word("no false off", text))
        *value = false;
    else
        return wrong(k, text, "yes or no", e);
    return 0;
}

static int keep_string(int checked, const char *text, void *to)
{
    if (checked < 0)
        return -1;
    free(*(char **)to);
    *(char **)to = mem_strdup(text);
    return 0;
}

int conf_value_read(const struct conf_key *k, const char *text, void *to, struct err *e)
{
    char wanted[80];
    uint64_t u;
    int64_t i;

    switch (k->kind) {
    case CONF_PATH:
    case CONF_PATHS:
        return keep_string(check_path(k, text, e), text, to);
    case CONF_TEXTS:
        return keep_string(check_text(k, text, e), text, to);
    case CONF_SIZES:
        return keep_string(check_class_size(k, text, e), text, to);
    case CONF_LISTEN:
        return keep_string(check_listen(k, text, e), text, to);
    case CONF_METHOD:
        return keep_string(check_method(k, text, e), text, to);
    case CONF_FEATURES:
        return keep_string(check_features(k, text, e), text, to);
    case CONF_NAME:
        return keep_string(str_is_name(text) ? 0 : wrong(k, text, "a name", e), text, to);
    case CONF_WORD:
        snprintf(wanted, sizeof(wanted), "one of: %s", k->words);
        return keep_string(has_word(k->words, text) ? 0 : wrong(k, text, wanted, e), text, to);
    case CONF_SIZE:
        return str_parse_size(text, to, e) < 0 ? err_prefix(e, "%s", k->name) : 0;
    case CONF_COUNT:
        return str_parse_u64(k->name, text, (uint64_t)k->min, (uint64_t)k->max, to, e);
    case CONF_UINT:
        if (str_parse_u64(k->name, text, (uint64_t)k->min, (uint64_t)k->max, &u, e) < 0)
            return -1;
        *(unsigned *)to = (unsigned)u;
        return 0;
    case CONF_INT:
        if (str_parse_i64(k->name, text, (int64_t)k->min, (int64_t)k->max, &i, e) < 0)
            return -1;
        *(int *)to = (int)i;
        return 0;
    case CONF_REAL:
        return str_parse_f64(k->name, text, k->min, k->max, to, e);
    case CONF_BOOL:
        return read_bool(k, text, to, e);
    }
    return err_set(e, ERR_FAILED, "%s: no such kind of key", k->name);
}

bool conf_is_string(enum conf_kind kind)
{
    return kind == CONF_PATH || kind == CONF_WORD || kind == CONF_NAME || kind == CONF_LISTEN || kind == CONF_METHOD || kind == CONF_FEATURES;
}

bool conf_is_list(enum conf_kind kind)
{
    return kind == CONF_PATHS || kind == CONF_TEXTS || kind == CONF_SIZES;
}

/* --- showing -------------------------------------------------------------------------------- */

/* In single quotes, where libconfuse expands nothing but \\ and \'. */
void conf_text_show(struct str *s, const char *text)
{
    str_add(s, "'");
    for (; *text != '\0'; text++) {
        if (*text == '\\' || *text == '\'')
            str_add(s, "\\");
        str_addn(s, text, 1);
    }
    str_add(s, "'");
}

static void show_size(struct str *s, uint64_t bytes)
{
    char out[32];

    if (strchr(str_size_text(bytes, out), ' ') != NULL)
        str_addf(s, "%" PRIu64, bytes);
    else
        str_add(s, out);
}

static void show_real(struct str *s, double v)
{
    char text[40];

    snprintf(text, sizeof(text), "%.15g", v);
    if (strtod(text, NULL) != v)
        snprintf(text, sizeof(text), "%.17g", v);
    str_add(s, text);
}

static void show_list(struct str *s, const void *at)
{
    char **list = *(char **const *)at;

    str_add(s, "{ ");
    for (unsigned i = 0; i < *conf_count(at); i++) {
        str_add(s, i > 0 ? ", " : "");
        conf_text_show(s, list[i]);
    }
    str_add(s, " }");
}

void conf_value_show(struct str *s, const struct conf_key *k, const void *at)
{
    switch (k->kind) {
    case CONF_SIZE:  show_size(s, *(const uint64_t *)at); break;
    case CONF_COUNT: str_addf(s, "%" PRIu64, *(const uint64_t *)at); break;
    case CONF_UINT:  str_addf(s, "%u", *(const unsigned *)at); break;
    case CONF_INT:   str_addf(s, "%d", *(const int *)at); break;
    case CONF_REAL:  show_real(s, *(const double *)at); break;
    case CONF_BOOL:  str_add(s, *(const bool *)at ? "yes" : "no"); break;
    case CONF_PATHS:
    case CONF_TEXTS:
    case CONF_SIZES: show_list(s, at); break;
    default:         conf_text_show(s, *(char *const *)at); break;
    }
}

bool conf_value_absent(const struct conf_key *k, const void *at)
{
    if (conf_is_string(k->kind))
        return *(char *const *)at == NULL;
    if (conf_is_list(k->kind))
        return *conf_count(at) == 0;
    return k->kind == CONF_SIZE && *(const uint64_t *)at == 0;
}

void conf_value_free(const struct conf_key *k, void *at)
{
    if (conf_is_list(k->kind)) {
        char **list = *(char ***)at;

        for (unsigned i = 0; list != NULL && i < *conf_count(at); i++)
            free(list[i]);
    }
    if (conf_is_string(k->kind) || conf_is_list(k->kind))
        free(*(void **)at);
}
