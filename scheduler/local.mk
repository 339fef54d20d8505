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
scheduler_libfarm_a_CPPFLAGS = $(SCHEDULER_CPPFLAGS) -DLIBEXECDIR='"$(libexecdir)"'
scheduler_libfarm_a_SOURCES = \
	%D%/alarms.c \
	%D%/change.c %D%/change.h \
	%D%/clear.c \
	%D%/counters.c %D%/counters.h \
	%D%/events.c %D%/events.h \
	%D%/health.c %D%/health.h %D%/health_devices.c %D%/health_facts.c %D%/health_part.h \
	%D%/health_rules.c %D%/health_rules.h \
	%D%/helper.c %D%/helper.h \
	%D%/alarm.h %D%/hook.c %D%/hook.h \
	%D%/invariants.c \
	%D%/mark.c %D%/mark.h %D%/mark_part.h \
	%D%/metrics.c \
	%D%/move.c %D%/move.h \
	%D%/farm.c \
	%D%/node.c %D%/node.h %D%/node_register.c %D%/node_show.c \
	%D%/nice.c %D%/nice.h \
	%D%/reads.c %D%/reads.h \
	%D%/restore.c %D%/restore.h \
	%D%/rights.c %D%/rights.h \
	%D%/roster.c %D%/roster.h \
	%D%/session.c %D%/session.h \
	%D%/shm.c %D%/shm.h \
	%D%/show.c %D%/show.h \
	%D%/slurm_conf.c %D%/slurm_farm.c %D%/slurm_farm.h %D%/slurm_lease.c %D%/slurm_lend.c %D%/slurm_marks.c %D%/slurm_park.c %D%/slurm_part.h %D%/slurm_undone.c \
	%D%/slurm_link.c %D%/slurm_link.h \
	%D%/slurm_process.c %D%/slurm_process.h \
	%D%/slurm_rules.c %D%/slurm_rules.h \
	%D%/sluiced.c %D%/sluiced.h \
	%D%/watch.c %D%/watch.h

# runs, jobs, the ledger
noinst_LIBRARIES += scheduler/libflow.a
scheduler_libflow_a_CPPFLAGS = $(SCHEDULER_CPPFLAGS)
scheduler_libflow_a_SOURCES = \
	%D%/able.c \
	%D%/assign.c \
	%D%/crash.c %D%/crash.h \
	%D%/flow.c %D%/flow.h %D%/flow_core.h \
	%D%/idset.c %D%/idset.h \
	%D%/job.c %D%/job.h \
	%D%/jobcontrol.c \
	%D%/jobdetail.c \
	%D%/jobnames.c \
	%D%/jobstage.c \
	%D%/jobjunk.c \
	%D%/jobgate.c \
	%D%/joblist.c \
	%D%/jobfull.c \
	%D%/jobload.c \
	%D%/jobpace.c \
	%D%/jobprune.c \
	%D%/jobread.c \
	%D%/jobsubmit.c \
	%D%/jobsweep.c \
	%D%/ledger.c %D%/ledger.h \
	%D%/nice_work.c \
	%D%/outcheck.c \
	%D%/publish.c \
	%D%/ran.c %D%/ran.h \
	%D%/reconcile.c \
	%D%/record.c \
	%D%/run.c %D%/run.h \
	%D%/runlist.c \
	%D%/runload.c \
	%D%/runstart.c \
	%D%/runrows.c \
	%D%/runtf.c \
	%D%/runwatch.c \
	%D%/samples.c \
	%D%/settle.c %D%/settle.h \
	%D%/source.c \
	%D%/straggler.c \
	%D%/task.c \
	%D%/verify.c %D%/verify.h \
	%D%/taskrows.c \
	%D%/tf.c %D%/tf.h \
	%D%/tries.c \
	%D%/wait.c %D%/wait.h \
	%D%/why.c

# the helper's side of what sluiced asks of Slurm
noinst_LIBRARIES += scheduler/libslurmserve.a
scheduler_libslurmserve_a_CPPFLAGS = $(PROTO_CPPFLAGS) -I$(srcdir)/scheduler
scheduler_libslurmserve_a_SOURCES = \
	%D%/slurm_serve.c %D%/slurm_serve.h

# the one program with libslurm
if HAVE_SLURM
libexec_PROGRAMS += sluice-slurm
sluice_slurm_SOURCES = %D%/slurm_helper.c %D%/slurm_rules.c %D%/slurm_rules.h
sluice_slurm_CPPFLAGS = $(PROTO_CPPFLAGS) -I$(srcdir)/scheduler
sluice_slurm_LDADD = scheduler/libslurmserve.a proto/libproto.a $(PROTOBUF_C_LIBS) $(EV_LIBS) $(XXHASH_LIBS) $(NETTLE_LIBS) $(MUNGE_LIBS) -lm $(BASE_LIBS) $(SLURM_LIBS)
endif
EXTRA_DIST += %D%/slurm_helper.c

# the daemon
sbin_PROGRAMS += sluiced
sluiced_SOURCES = %D%/main.c
sluiced_CPPFLAGS = $(SCHEDULER_CPPFLAGS)
# the two halves call each other
sluiced_LIBTOOLFLAGS = --preserve-dup-deps
sluiced_LDADD = scheduler/libfarm.a scheduler/libflow.a scheduler/libfarm.a scheduler/libdispatch.a scheduler/libwriter.a $(STATE_LIBS) $(PROTO_LIBS) $(BASE_LIBS) -lm
