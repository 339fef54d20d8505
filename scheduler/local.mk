# scheduler/ - sluiced; dispatch/ is a pure library of its own; sees state, proto, base
SCHEDULER_CPPFLAGS = $(PROTO_CPPFLAGS) $(STATE_CPPFLAGS) -I$(srcdir)/scheduler -I$(srcdir)/scheduler/dispatch

# dispatch/: nothing but base
noinst_LIBRARIES += scheduler/libdispatch.a
scheduler_libdispatch_a_CPPFLAGS = $(BASE_CPPFLAGS) -I$(srcdir)/scheduler/dispatch
scheduler_libdispatch_a_SOURCES = \
	%D%/dispatch/dispatch.c %D%/dispatch/dispatch.h

# the committing thread
noinst_LIBRARIES += scheduler/libwriter.a
scheduler_libwriter_a_CPPFLAGS = $(STATE_CPPFLAGS) -I$(srcdir)/scheduler
scheduler_libwriter_a_SOURCES = \
	%D%/writer.c %D%/writer.h

# who is connected, nodes, marks, moves, what people see
noinst_LIBRARIES += scheduler/libfarm.a
scheduler_libfarm_a_CPPFLAGS = $(SCHEDULER_CPPFLAGS)
scheduler_libfarm_a_SOURCES = \
	%D%/counters.h \
	%D%/node.h \
	%D%/session.h \
	%D%/sluiced.h

# runs, jobs, the ledger
noinst_LIBRARIES += scheduler/libflow.a
scheduler_libflow_a_CPPFLAGS = $(SCHEDULER_CPPFLAGS)
scheduler_libflow_a_SOURCES = \
	%D%/flow.h
