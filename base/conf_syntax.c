/* conf_syntax.c - the grammar of the configuration file: libconfuse reads it, the tables say what may stand there
 *
 * From: conf.c.  To: libconfuse, conf_value.c. libconfuse hands every value over as text; a key or section that has no row is an
 * error, and so is one that is given twice. Values are checked while they are read, so that an error knows its line.
 */
#include "config.h"

#include "conf_part.h"
#include "mem.h"
#include "str.h"

#include <confuse.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What libconfuse's callbacks, which carry no argument, need: the reading that is going on in this thread. */
static _Thread_local struct reading {
    const char *name;           /* of the file, for messages */
    struct err *e;
    bool failed;                /* e holds the first error */
    bool ended;                 /* END_KEY was seen */
    int listen_line;            /* where listen stands */
    struct seen { cfg_opt_t *opt; unsigned n; char *last; bool closed; } *seen;     /* options that were given */
    size_t n_seen;
} reading;

/* Stands behind the text that is read. libconfuse takes an open section, quote or comment at the end of a file in silence;
 * then this key is met inside a section, or not at all. */
#define END_KEY "end of the file"

static void complain(int line, const char *text)
{
    struct str shown = { 0 };

    if (reading.failed)
        return;
    reading.failed = true;
    str_escape(&shown, text, strlen(text));
    err_set(reading.e, ERR_USAGE, "%s:%d: %s", reading.name, line, str_text(&shown));
    str_free(&shown);
}

static void on_error(cfg_t *cfg, const char *fmt, va_list ap)
{
    char text[400];

    vsnprintf(text, sizeof(text), fmt, ap);
    if (strstr(text, END_KEY) != NULL)
        snprintf(text, sizeof(text), "the file ends before a section is closed by '}'");
    complain(cfg != NULL ? cfg->line : 0, text);
}

/* Refuses a key given twice: libconfuse would let the last one win in silence. It calls for a list after each element
 * and once more at its end, then with nothing new. */
static bool first_time(cfg_t *cfg, cfg_opt_t *opt)
{
    unsigned n = cfg_opt_size(opt);
    const char *last = n > 0 ? cfg_opt_getnstr(opt, n - 1) : NULL;
    struct seen *s = NULL;
    char text[120];

    for (size_t i = 0; i < reading.n_seen && s == NULL; i++)
        if (reading.seen[i].opt == opt)
            s = &reading.seen[i];
    if (s == NULL) {
        reading.seen = mem_grow(reading.seen, reading.n_seen + 1, sizeof(*reading.seen));
        reading.seen[reading.n_seen++] = (struct seen){ opt, n, mem_strdup(last), n == 0 };
        return true;
    }
    if (s->closed || !(opt->flags & CFGF_LIST) || n < s->n || (n == s->n && !str_equal(last, s->last))) {
        snprintf(text, sizeof(text), "%s is given twice", opt->name);
        complain(cfg->line, text);
        return false;
    }
    s->closed = n == s->n;
    s->n = n;
    free(s->last);
    s->last = mem_strdup(last);
    return true;
}

static void forget_seen(void)
{
    for (size_t i = 0; i < reading.n_seen; i++)
        free(reading.seen[i].last);
    free(reading.seen);
    reading.seen = NULL;
    reading.n_seen = 0;
}

/* Any other name is the one that libconfuse gives to what stands outside all sections. */
static const struct conf_section *section_of(const char *name)
{
    for (size_t s = 1; s < CONF_SECTIONS; s++)
        if (str_equal(conf_sections[s].name, name))
            return &conf_sections[s];
    return &conf_sections[0];
}

static const struct conf_key *key_of(const cfg_t *cfg, const char *name)
{
    const struct conf_section *s = section_of(cfg->name);

    for (size_t i = 0; i < s->n_keys; i++)
        if (strcmp(s->keys[i].name, name) == 0)
            return &s->keys[i];
    return NULL;
}

/* A value has been read: check it while the line is known. */
static int on_value(cfg_t *cfg, cfg_opt_t *opt)
{
    const struct conf_key *k = key_of(cfg, opt->name);
    struct err why = { 0 };
    union { char *text; uint64_t u; double d; } scratch;

    if (strcmp(opt->name, END_KEY) == 0) {
        reading.ended = true;
        return 0;
    }
    if (k == NULL || !first_time(cfg, opt))
        return -1;
    if (k == key_of(cfg, "listen"))
        reading.listen_line = cfg->line;
    for (unsigned i = 0; i < cfg_opt_size(opt); i++) {
        const char *text = cfg_opt_getnstr(opt, i);

        memset(&scratch, 0, sizeof(scratch));
        if (conf_value_read(k, text != NULL ? text : "", &scratch, &why) < 0) {
            complain(cfg->line, why.text);
            return -1;
        }
        if (conf_is_string(k->kind) || conf_is_list(k->kind))
            free(scratch.text);
    }
    return 0;
}

/* A section has been read: its title, and that one without a title comes once. */
static int on_section(cfg_t *cfg, cfg_opt_t *opt)
{
    const struct conf_section *s = section_of(opt->name);
    unsigned n = cfg_opt_size(opt);
    struct err why = { 0 };

    if (s->check_title == NULL && n > 1)
        err_set(&why, ERR_USAGE, "section %s is given twice", s->name);
    else if (s->check_title == NULL || s->check_title(cfg_title(cfg_opt_getnsec(opt, n - 1)), &why) == 0)
        return 0;
    else
        err_prefix(&why, "%s '%.64s'", s->name, cfg_title(cfg_opt_getnsec(opt, n - 1)));
    complain(cfg->line, why.text);
    return -1;
}

static void fill_options(cfg_opt_t *opts, const struct conf_key *keys, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        cfg_opt_t one = CFG_STR(keys[i].name, NULL, CFGF_NONE);
        cfg_opt_t many = CFG_STR_LIST(keys[i].name, NULL, CFGF_NONE);

        opts[i] = conf_is_list(keys[i].kind) ? many : one;
        opts[i].validcb = on_value;
    }
    opts[n] = (cfg_opt_t)CFG_END();
}

static cfg_t *make_parser(void)
{
    cfg_opt_t top[CONF_KEYS_MAX + CONF_SECTIONS + 1], sub[CONF_SECTIONS][CONF_KEYS_MAX];     /* cfg_init copies them */
    size_t n = conf_sections[0].n_keys;
    cfg_t *cfg;

    fill_options(top, conf_sections[0].keys, n);
    for (size_t i = 1; i < CONF_SECTIONS; i++) {
        const struct conf_section *s = &conf_sections[i];
        cfg_flag_t flags = CFGF_MULTI | (s->check_title != NULL ? CFGF_TITLE | CFGF_NO_TITLE_DUPES : 0);
        cfg_opt_t section = CFG_SEC(s->name, sub[i], flags);

        fill_options(sub[i], s->keys, s->n_keys);
        section.validcb = on_section;
        top[n++] = section;
    }
    top[n] = (cfg_opt_t)CFG_STR(END_KEY, NULL, CFGF_NONE);
    top[n++].validcb = on_value;
    top[n] = (cfg_opt_t)CFG_END();
    cfg = cfg_init(top, CFGF_NONE);
    if (cfg != NULL)
        cfg_set_error_function(cfg, on_error);
    return cfg;
}

cfg_t *conf_syntax(const char *text, const char *name, int *listen_line, struct err *e)
{
    cfg_t *cfg = make_parser();
    char *whole;
    int r;

    if (cfg == NULL)
        return err_null(e, ERR_FAILED, "%s: libconfuse has no memory", name);
    reading = (struct reading){ .name = name, .e = e };
    whole = mem_printf("%s\n'" END_KEY "' = yes\n", text);
    r = cfg_parse_buf(cfg, whole);
    free(whole);
    forget_seen();
    if (r != CFG_SUCCESS)
        complain(cfg->line, "syntax error");
    else if (!reading.ended)
        complain(cfg->line, "the file ends before a quote or comment is closed");
    *listen_line = reading.listen_line;
    if (!reading.failed)
        return cfg;
    cfg_free(cfg);
    return NULL;
}
