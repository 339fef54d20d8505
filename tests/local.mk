# tests/ - a folder's unit tests are listed in tests/unit/FOLDER.mk; ./check runs these and the bats files
if HAVE_CMOCKA
include $(srcdir)/tests/unit/base.mk
include $(srcdir)/tests/unit/proto.mk
include $(srcdir)/tests/unit/state.mk
include $(srcdir)/tests/unit/kernels.mk
include $(srcdir)/tests/unit/sim.mk
include $(srcdir)/tests/unit/worker.mk
include $(srcdir)/tests/unit/source.mk
include $(srcdir)/tests/unit/scheduler.mk
include $(srcdir)/tests/unit/flow.mk
include $(srcdir)/tests/unit/client.mk
endif
include $(srcdir)/tests/fake/local.mk
include $(srcdir)/tests/next/local.mk
include $(srcdir)/tests/fuzz/local.mk
include $(srcdir)/tests/bench/local.mk

TESTS += tests/layers.sh
dist_noinst_SCRIPTS += %D%/layers.sh

# Each library with only what its row names, for tests/layers.sh: "LIBRARY : WHAT IT MAY LINK".
LAYERS = \
	base/libbase.a : $(CONFUSE_LIBS) $(JANSSON_LIBS) -lpthread ; \
	proto/libtffile.a : ; \
	proto/libproto.a : base/libbase.a $(CONFUSE_LIBS) $(JANSSON_LIBS) $(PROTOBUF_C_LIBS) $(XXHASH_LIBS) $(EV_LIBS) $(NETTLE_LIBS) $(MUNGE_LIBS) -lm -lpthread ; \
	state/libstate.a : base/libbase.a $(CONFUSE_LIBS) $(JANSSON_LIBS) $(SQLITE_LIBS) -lpthread ; \
	kernels/libkernels.a : proto/libtffile.a -lm -lpthread -ldl ; \
	worker/libworker.a : $(PROTO_LIBS) $(HWLOC_LIBS) $(BASE_LIBS) ; \
	worker/libsource.a : worker/libworker.a $(PROTO_LIBS) $(HWLOC_LIBS) $(BASE_LIBS) ; \
	scheduler/libdispatch.a : base/libbase.a -lm ; \
	scheduler/libwriter.a : $(STATE_LIBS) $(BASE_LIBS) $(EV_LIBS)

AM_TESTS_ENVIRONMENT = \
	SLUICE_SRCDIR='$(abs_srcdir)'; SLUICE_BUILDDIR='$(abs_builddir)'; LAYERS='$(LAYERS)'; LAYER_CC='$(CC) $(SAN_CFLAGS)'; \
	test -n "$$SLUICE_TEST_SEED$$SLUICE_SOAK" || { SLUICE_TEST_SEED=1; export SLUICE_TEST_SEED; }; \
	export SLUICE_SRCDIR SLUICE_BUILDDIR LAYERS LAYER_CC;
# What is random comes the same every time, afresh in soak. tests/again: see there.
LOG_COMPILER = $(srcdir)/tests/again
SH_LOG_COMPILER = $(LOG_COMPILER)

# Tests without a second thread, in which ThreadSanitizer has nothing to see, though they take longest under it. Those of kernels/ have one but for
# the threads of backend cpu, which cluster_test and kernels_same.sh put to work; writer_test has the thread that uses state/. Whatever is not named
# here runs under it.
UNTHREADED = $(fuzz_programs) $(patsubst %,tests/unit/%_test,err str clock heap hostlist conf file spec show runkey offset frame pace hold range reads times \
	health_rules dispatch ledger verify run_tf run_life job_submit job_run job_control job_store db rows words tf_file \
	kmath pages encode simulate device workflow_cpu) \
	$(patsubst %,tests/kernels_%.sh,reference mock planted plugins code oclgrind) tests/layers.sh
THREADED = $(filter-out $(UNTHREADED),$(TESTS))
THREADED_NEEDS = sluice sluiced sluice-worker sluice-source sluice-reco tests/fake/reco tests/fake/fake-slurm tests/unit/kernels_alone tests/unit/kernels_emulated

# make soak: the whole length of every loop; make bench: figures, as ratios. Neither is a test of a clock.
soak: check-build
	$(srcdir)/tests/run --soak $(abs_builddir)
bench: all $(BENCHES)
	@SLUICE_SRCDIR='$(abs_srcdir)'; export SLUICE_SRCDIR; for b in $(BENCHES); do echo "== $$b"; ./$$b || exit 1; done
check-build: all
	$(MAKE) $(AM_MAKEFLAGS) $(check_PROGRAMS)
# For ThreadSanitizer: what has threads, and the programs that it starts.
build-threads: $(BUILT_SOURCES)
	$(MAKE) $(AM_MAKEFLAGS) $(THREADED_NEEDS) $(filter-out %.sh,$(THREADED))
check-threads: build-threads
	$(MAKE) $(AM_MAKEFLAGS) check-TESTS TESTS='$(THREADED)'
# For tests/run --only: what there is.
list-tests list-threads:
	@echo $(if $(filter %threads,$@),$(THREADED),$(TESTS))
.PHONY: soak bench check-build build-threads check-threads list-tests list-threads
EXTRA_PROGRAMS = $(BENCHES) tests/bench/bench_kernels
dist_noinst_SCRIPTS += %D%/run %D%/again
