/* shares.c - what the nodes did for a run, for people: those that look alike on one line
 *
 * From: cmd_run.c.  To: show.c.
 * A farm has hundreds of nodes, and hardly two have the same numbers: alike are those of one class that had work, or none, and were too full at times, or never.
 */
#include "config.h"

#include "shares.h"

#include "mem.h"
#include "nodelist.h"

#include <math.h>
#include <stdlib.h>

static double number(const json_t *node, const char *field)
{
    return json_number_value(json_object_get(node, field));
}

static char *likeness(const json_t *node)
{
    const char *class = json_string_value(json_object_get(node, "class"));

    return mem_printf("%d %d %s", number(node, "done") + number(node, "in_flight") > 0, number(node, "fill_high") > 0, class != NULL ? class : "");
}

struct spread { double sum, least, most; };

static struct spread spread_of(const json_t *group, const char *field)
{
    struct spread s = { 0, INFINITY, -INFINITY };
    json_t *node;
    size_t i;

    json_array_foreach((json_t *)group, i, node) {
        s.sum += number(node, field);
        s.least = fmin(s.least, number(node, field));
        s.most = fmax(s.most, number(node, field));
    }
    return s;
}

/* "3504 (9 to 12 each)". */
static json_t *count_text(const json_t *group, const char *field)
{
    struct spread s = spread_of(group, field);

    if (json_array_size(group) == 1 || s.most == 0)
        return json_sprintf("%.0f", s.sum);
    return s.least == s.most ? json_sprintf("%.0f (%.0f each)", s.sum, s.least) : json_sprintf("%.0f (%.0f to %.0f each)", s.sum, s.least, s.most);
}

/* "31% to 40%"; null while nobody knows. */
static json_t *share_text(const json_t *group, const char *field)
{
    struct spread s = spread_of(group, field);
    double least = round(100 * s.least), most = round(100 * s.most);

    if (!json_is_number(json_object_get(json_array_get(group, 0), field)))
        return json_null();
    return least == most ? json_sprintf("%.0f%%", least) : json_sprintf("%.0f%% to %.0f%%", least, most);
}

static json_t *line_of(const json_t *group)
{
    json_t *names = json_array(), *node, *line;
    char *folded;
    size_t i;

    json_array_foreach((json_t *)group, i, node)
        json_array_append(names, json_object_get(node, "node"));
    folded = nodelist_fold(names);
    line = json_pack("{s:s,s:i,s:O?,s:o,s:o,s:o,s:o}", "node", folded, "count", (int)json_array_size(group), "class", json_object_get(json_array_get(group, 0), "class"),
                     "done", count_text(group, "done"), "in_flight", count_text(group, "in_flight"), "fill_mean", share_text(group, "fill_mean"),
                     "fill_high", share_text(group, "fill_high"));
    free(folded);
    json_decref(names);
    return line;
}

json_t *shares_grouped(const json_t *nodes)
{
    json_t *groups = json_object(), *lines = json_array(), *node, *group;
    const char *key;
    size_t i;

    json_array_foreach((json_t *)nodes, i, node) {
        char *like = likeness(node);

        if (json_object_get(groups, like) == NULL)
            json_object_set_new(groups, like, json_array());
        json_array_append(json_object_get(groups, like), node);
        free(like);
    }
    json_object_foreach(groups, key, group)
        json_array_append_new(lines, line_of(group));
    json_decref(groups);
    return lines;
}
