/* stages.c - what the stages of a run or job ran on, as a column for people */
#include "config.h"

#include "stages.h"

#include "mem.h"

#include <stdlib.h>

json_t *show_stages(const json_t *work)
{
    json_t *list = json_array(), *one;
    size_t i;

    json_array_foreach(json_object_get(work, "stages"), i, one) {
        const char *reason = json_string_value(json_object_get(one, "reason"));
        json_int_t fallbacks = json_integer_value(json_object_get(one, "fallbacks"));
        char *text = mem_printf("%s on %s: %" JSON_INTEGER_FORMAT " TFs", json_string_value(json_object_get(one, "stage")),
                                json_string_value(json_object_get(one, "backend")), json_integer_value(json_object_get(one, "tfs")));
        if (fallbacks > 0)
            json_array_append_new(list, json_sprintf("%s, %" JSON_INTEGER_FORMAT " fall-backs (%s)", text, fallbacks, reason != NULL ? reason : "?"));
        else
            json_array_append_new(list, json_string(text));
        free(text);
    }
    return list;
}
