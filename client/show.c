/* show.c - renders lists of JSON objects as a table, a document, or lines for programs
 *
 * From: message.c, or objects a command made itself.  To: standard output, nothing else.
 * The machine modes know neither locale nor terminal: the same answer gives the same bytes everywhere.
 */
#include "config.h"

#include "show.h"

#include "clock.h"
#include "mem.h"
#include "str.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char *show_text(const char *text)
{
    struct str s = { 0 };

    str_escape(&s, text, strlen(text));
    return str_take(&s);
}

char *show_sentence(const char *text)
{
    struct str s = { 0 };

    str_show(&s, text, strlen(text));
    return str_take(&s);
}

/* --- documents ------------------------------------------------------------------------------ */

static int dump(const json_t *j, size_t flags, struct err *e)
{
    char *text = json_dumps(j, flags | SHOW_DUMP_FLAGS);

    if (text == NULL)
        return err_set(e, ERR_FAILED, "the answer could not be written as JSON");
    puts(text);
    free(text);
    return 0;
}

static int show_document(const struct context *ctx, const struct listing *l, json_t *objects, struct err *e)
{
    char now[CLOCK_TEXT];
    json_t *meta = json_pack("{s:s}", "time", clock_rfc3339(clock_wall_ns(), now));
    json_t *doc;
    int r;

    json_object_set_new(meta, "seq", ctx->seq >= 0 ? json_integer(ctx->seq) : json_null());
    doc = json_pack("{s:{s:s,s:i},s:o,s:O}", "schema", "name", l->plural, "version", SHOW_SCHEMA_NEWEST, "meta", meta, l->plural, objects);
    r = dump(doc, JSON_INDENT(2), e);
    json_decref(doc);
    return r;
}

static int show_lines(json_t *objects, struct err *e)
{
    size_t i;
    json_t *object;

    json_array_foreach(objects, i, object)
        if (dump(object, JSON_COMPACT, e) < 0)
            return -1;
    return 0;
}

/* --- picking values ------------------------------------------------------------------------- */

/* The value at path; over a list, the list of the values in its elements. A new reference, or NULL. */
static json_t *pick(const json_t *from, const char *path)
{
    const char *dot = strchr(path, '.');
    json_t *value, *list;
    char *key;
    size_t i;

    if (json_is_array(from)) {
        list = json_array();
        json_array_foreach((json_t *)from, i, value) {
            json_t *one = pick(value, path);

            if (one != NULL)
                json_array_append_new(list, one);
        }
        return list;
    }
    key = dot != NULL ? mem_printf("%.*s", (int)(dot - path), path) : mem_strdup(path);
    value = json_object_get(from, key);
    free(key);
    if (value == NULL)
        return NULL;
    return dot != NULL ? pick(value, dot + 1) : json_incref(value);
}

static json_t *column_value(const struct column *c, const json_t *object)
{
    return c->make != NULL ? c->make(object) : pick(object, c->path != NULL ? c->path : c->name);
}

/* --- cells ---------------------------------------------------------------------------------- */

static void add_plain(struct str *s, const json_t *v)
{
    char *text;

    switch (json_typeof(v)) {
    case JSON_STRING:
        str_escape(s, json_string_value(v), json_string_length(v));
        break;
    case JSON_INTEGER:
        str_addf(s, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
        break;
    case JSON_REAL:
        text = json_dumps(v, JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
        str_add(s, text != NULL ? text : "");
        free(text);
        break;
    case JSON_TRUE:
        str_add(s, "yes");
        break;
    case JSON_FALSE:
        str_add(s, "no");
        break;
    case JSON_OBJECT:
        text = json_dumps(v, JSON_COMPACT | SHOW_DUMP_FLAGS);
        if (text != NULL)
            str_escape(s, text, strlen(text));
        free(text);
        break;
    default:
        break;
    }
}

static void add_list(struct str *s, const json_t *list, const char *between)
{
    size_t i;
    json_t *v;

    json_array_foreach((json_t *)list, i, v) {
        str_add(s, i > 0 ? between : "");
        if (json_is_array(v))
            add_list(s, v, between);
        else
            add_plain(s, v);
    }
}

static void add_counters(struct str *s, const json_t *list)
{
    size_t i;
    json_t *v;

    json_array_foreach((json_t *)list, i, v) {
        str_add(s, i > 0 ? ", " : "");
        add_plain(s, json_object_get(v, "name"));
        str_add(s, " ");
        add_plain(s, json_object_get(v, "value"));
    }
}

/* A number for people; false when the value is none. */
static bool add_number(struct str *s, const json_t *v, enum column_format format)
{
    char text[CLOCK_TEXT];
    double x = json_number_value(v);

    if (!json_is_number(v))
        return false;
    switch (format) {
    case AS_SIZE:
        str_add(s, str_size_text((uint64_t)json_integer_value(v), text));
        return true;
    case AS_SECONDS:
        str_add(s, fabs(x) < 3e8 ? clock_duration_text((int64_t)(x * 1e9), text) : "?");
        return true;
    case AS_SHARE:
        str_addf(s, "%.0f%%", 100 * x);
        return true;
    case AS_IS:
        if (json_is_real(v))
            str_addf(s, fabs(x) < 1000 ? "%.4g" : "%.0f", x);
        return json_is_real(v);
    default:
        return false;
    }
}

/* A time as people read it; false when the value is none. */
static bool add_time(struct str *s, const json_t *v, enum column_format format)
{
    char text[CLOCK_TEXT];
    int64_t ns;

    if (!json_is_string(v) || clock_parse_time(json_string_value(v), 0, &ns, NULL) < 0)
        return false;
    if (format == AS_AGE)
        str_add(s, clock_duration_text((clock_wall_ns() - ns) / CLOCK_SECOND * CLOCK_SECOND, text));
    else
        str_addf(s, "%.19s", json_string_value(v));
    return true;
}

static void add_for_people(struct str *s, const json_t *v, enum column_format format)
{
    size_t i;
    json_t *one;

    if (json_is_array(v)) {
        json_array_foreach((json_t *)v, i, one) {
            str_add(s, i > 0 ? "," : "");
            add_for_people(s, one, format);
        }
    } else if (!((format == AS_TIME || format == AS_AGE) && add_time(s, v, format)) && !add_number(s, v, format)) {
        add_plain(s, v);
    }
}

/* One cell of a table, or of a parsable line, where numbers and times stay as they are. */
static char *cell(const struct column *c, const json_t *object, bool people)
{
    json_t *v = column_value(c, object);
    struct str s = { 0 };

    if (v == NULL || json_is_null(v))
        str_add(&s, people ? "-" : "");
    else if (c->format == AS_COUNT && json_is_array(v))
        str_addf(&s, "%zu", json_array_size(v));
    else if (c->format == AS_COUNTERS && json_is_array(v) && people)
        add_counters(&s, v);
    else if (people)
        add_for_people(&s, v, c->format);
    else if (json_is_array(v))
        add_list(&s, v, ",");
    else
        add_plain(&s, v);
    if (people && s.len == 0)
        str_add(&s, "-");
    json_decref(v);
    return str_take(&s);
}

/* --- choosing columns ----------------------------------------------------------------------- */

struct chosen { struct column c; char *name; };

static const struct column *column_find(const struct listing *l, const char *name)
{
    for (const struct column *c = l->columns; c != NULL && c->name != NULL; c++)
        if (strcmp(c->name, name) == 0)
            return c;
    return NULL;
}

static int unknown_column(const struct listing *l, const char *name, struct err *e)
{
    struct str all = { 0 };
    char *shown = show_text(name);

    for (const struct column *c = l->columns; c != NULL && c->name != NULL; c++)
        str_addf(&all, " %s", c->name);
    err_set(e, ERR_USAGE, "-o '%.40s': there is no such column; there are:%s", shown, str_text(&all));
    free(shown);
    str_free(&all);
    return -1;
}

static bool is_field(const struct listing *l, const char *name, const json_t *first)
{
    if (l->element != NULL)
        return protobuf_c_message_descriptor_get_field_by_name(l->element, name) != NULL;
    return json_object_get(first, name) != NULL;
}

/* Takes the list of names apart. A name that is no column must be a field of the objects. */
static int choose(const struct listing *l, const char *names, const json_t *objects, struct chosen **out, size_t *n, struct err *e)
{
    char *copy = mem_strdup(names), *rest = copy, *name;
    const json_t *first = json_array_get(objects, 0);
    int r = 0;

    *out = NULL;
    *n = 0;
    while (r == 0 && (name = strsep(&rest, ",")) != NULL) {
        const struct column *known = column_find(l, name);
        struct chosen one = { .name = mem_strdup(name) };

        one.c = known != NULL ? *known : (struct column){ .name = one.name };
        if (known == NULL && !is_field(l, name, first))
            r = unknown_column(l, name, e);
        *out = mem_grow(*out, *n + 1, sizeof(**out));
        (*out)[(*n)++] = one;
    }
    free(copy);
    return r;
}

static void chosen_free(struct chosen *columns, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free(columns[i].name);
    free(columns);
}

bool show_columns_help(const struct context *ctx, const struct listing *l)
{
    if (ctx->fields == NULL || strcmp(ctx->fields, "help") != 0)
        return false;
    for (const struct column *c = l->columns; c != NULL && c->name != NULL; c++)
        printf("%s\n", c->name);
    return true;
}

static int show_names_check(const struct context *ctx, const struct listing *l, const json_t *objects, struct err *e)
{
    struct chosen *columns = NULL;
    size_t n = 0;
    int r = 0;

    if (ctx->fields != NULL)
        r = choose(l, ctx->fields, objects, &columns, &n, e);
    chosen_free(columns, n);
    return r;
}

int show_columns_check(const struct context *ctx, const struct listing *l, struct err *e)
{
    return show_names_check(ctx, l, NULL, e);
}

/* --- lines ---------------------------------------------------------------------------------- */

/* Characters, not bytes: the text is valid UTF-8 once it went through str_escape. */
static size_t width(const char *text)
{
    size_t n = 0;

    for (; *text != '\0'; text++)
        n += ((unsigned char)*text & 0xc0) != 0x80;
    return n;
}

static char *heading(const char *name)
{
    char *h = mem_strdup(name);

    for (char *p = h; *p != '\0'; p++)
        *p = (char)toupper((unsigned char)*p);
    return h;
}

static void print_table_line(char *const *cells, const size_t *widths, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (i + 1 == n)
            printf("%s\n", cells[i]);
        else
            printf("%s%*s", cells[i], (int)(widths[i] - width(cells[i]) + 2), "");
    }
}

static void print_parsable_line(char *const *cells, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        for (const char *p = cells[i]; *p != '\0'; p++) {
            if (*p == '|')
                putchar('\\');
            putchar(*p);
        }
        putchar(i + 1 == n ? '\n' : '|');
    }
}

/* All cells first, then their widths, then the lines. Row 0 is the heading. */
static void print_rows(const struct context *ctx, const struct chosen *columns, size_t n, const json_t *objects)
{
    size_t rows = json_array_size(objects) + 1;
    char **cells = mem_array(rows * n, sizeof(*cells));
    size_t *widths = mem_array(n, sizeof(*widths));

    for (size_t r = 0; r < rows; r++) {
        for (size_t i = 0; i < n; i++) {
            const json_t *object = r > 0 ? json_array_get(objects, r - 1) : NULL;
            bool people = ctx->mode == SHOW_TABLE;
            char *text = r > 0 ? cell(&columns[i].c, object, people) : people ? heading(columns[i].name) : mem_strdup(columns[i].name);

            cells[r * n + i] = text;
            if ((r > 0 || !ctx->no_header) && width(text) > widths[i])
                widths[i] = width(text);
        }
    }
    for (size_t r = ctx->no_header ? 1 : 0; r < rows; r++) {
        if (ctx->mode == SHOW_TABLE)
            print_table_line(cells + r * n, widths, n);
        else
            print_parsable_line(cells + r * n, n);
    }
    for (size_t i = 0; i < rows * n; i++)
        free(cells[i]);
    free(cells);
    free(widths);
}

static int show_rows(const struct context *ctx, const struct listing *l, const char *usual, const json_t *objects, struct err *e)
{
    const char *names = ctx->fields != NULL ? ctx->fields : usual != NULL ? usual : l->usual;
    struct chosen *columns;
    size_t n;
    int r = choose(l, names, objects, &columns, &n, e);

    if (r == 0)
        print_rows(ctx, columns, n, objects);
    chosen_free(columns, n);
    return r;
}

int show_list(const struct context *ctx, const struct listing *l, const char *usual, json_t *objects, struct err *e)
{
    int r = 0;

    if (show_columns_help(ctx, l))
        ;
    else if (ctx->fields != NULL && ctx->mode != SHOW_TABLE && ctx->mode != SHOW_PARSABLE && show_names_check(ctx, l, objects, e) < 0)
        r = -1;                          /* JSON has all fields; a slip is none the better for that */
    else if (ctx->mode == SHOW_JSON)
        r = show_document(ctx, l, objects, e);
    else if (ctx->mode == SHOW_JSONL)
        r = show_lines(objects, e);
    else
        r = show_rows(ctx, l, usual, objects, e);
    json_decref(objects);
    return r;
}

/* --- one object ----------------------------------------------------------------------------- */

static const struct column *column_of_field(const struct listing *l, const char *field)
{
    for (const struct column *c = l->columns; c != NULL && c->name != NULL; c++)
        if (c->make == NULL && strcmp(c->path != NULL ? c->path : c->name, field) == 0)
            return c;
    return NULL;
}

static bool is_empty(const json_t *v)
{
    return json_is_null(v) || (json_is_array(v) && json_array_size(v) == 0);
}

/* The fields of a nested object on one line: "id 3, reason fan is loud". */
static char *nested_line(const json_t *object)
{
    struct str s = { 0 };
    const char *key;
    json_t *v;

    json_object_foreach((json_t *)object, key, v) {
        if (is_empty(v))
            continue;
        str_addf(&s, "%s%s ", s.len > 0 ? ", " : "", key);
        if (json_is_array(v))
            add_list(&s, v, " ");
        else
            add_for_people(&s, v, AS_IS);
    }
    return str_take(&s);
}

static void print_field(const struct listing *l, const char *key, const json_t *object, const json_t *v)
{
    const struct column *c = column_of_field(l, key);
    struct column plain = { .name = key };
    size_t i;
    json_t *element;
    char *text;

    if (json_is_array(v) && json_is_object(json_array_get(v, 0)) && (c == NULL || c->format != AS_COUNTERS)) {
        json_array_foreach((json_t *)v, i, element) {
            text = nested_line(element);
            printf("%-16s  %s\n", i == 0 ? key : "", text);
            free(text);
        }
        return;
    }
    text = json_is_object(v) ? nested_line(v) : cell(c != NULL ? c : &plain, object, true);
    printf("%-16s  %s\n", key, text);
    free(text);
}

int show_one(const struct context *ctx, const struct listing *l, json_t *object, struct err *e)
{
    const char *key;
    json_t *v, *list;

    if (ctx->mode != SHOW_TABLE || ctx->fields != NULL) {
        list = json_array();
        json_array_append_new(list, object);
        return show_list(ctx, l, NULL, list, e);
    }
    json_object_foreach(object, key, v)
        if (!is_empty(v))
            print_field(l, key, object, v);
    json_decref(object);
    return 0;
}
