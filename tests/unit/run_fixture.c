/* run_fixture.c - the world of a run: two nodes of the online pool and somebody who starts it */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "run_fixture.h"

int open_world(void **state)
{
    (void)state;
    open_pair(POOL_ONLINE, "mi50", "mi50");
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
