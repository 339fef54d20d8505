/* pair_fixture.c - a world of two nodes and one client, on which the tests of runs and those of jobs stand */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "pair_fixture.h"

#include <string.h>

struct session *client;
struct node *n1, *n2;

void open_pair(int pool, const char *class1, const char *class2)
{
    world_open();
    client = world_peer("client");
    n1 = world_node("n1", class1, pool, 1000 * MB);
    n2 = world_node("n2", class2, pool, 1000 * MB);
}

int close_world(void **state)
{
    (void)state;
    world_check();
    world_close();
    return 0;
}

Sluice__Assign *assigned(struct node *n)
{
    return TAKE(n->session, sluice__assign);
}

Sluice__Assign *assigned_somewhere(struct node **n)
{
    Sluice__Assign *a = assigned(n1);

    *n = n1;
    if (a == NULL) {
        a = assigned(n2);
        *n = n2;
    }
    return a;
}

void error_of(struct session *s, uint32_t code, const char *text)
{
    Sluice__Error *e = TAKE(s, sluice__error);

    assert_non_null(e);
    assert_int_equal(e->code, code);
    if (strstr(e->text, text) == NULL)
        fail_msg("\"%s\" is not in \"%s\"", text, e->text);
    FREE(e);
}
