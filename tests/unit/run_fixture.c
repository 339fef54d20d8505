/* run_fixture.c - the world of a run: two nodes of the online pool and somebody who starts it */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "run_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct session *client;
struct node *n1, *n2;

int open_world(void **state)
{
    (void)state;
    world_open();
    client = world_peer("client");
    n1 = world_node("n1", "mi50", POOL_ONLINE, 1000 * MB);
    n2 = world_node("n2", "mi50", POOL_ONLINE, 1000 * MB);
    return 0;
}

int close_world(void **state)
{
    (void)state;
    world_check();
    world_close();
    return 0;
}

uint64_t begin_run(unsigned sources)
{
    Sluice__StartRun m = SLUICE__START_RUN__INIT;

    m.workflow = "decode";
    m.output = "/tmp/out";
    m.has_sources = true;
    m.sources = sources;
    uint64_t id = start_run(client, &m);
    assert_true(id > 0);
    return id;
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
