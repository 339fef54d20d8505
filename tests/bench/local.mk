# tests/bench/ - figures as ratios; each runs for less than 15 s. `make bench` builds and runs what is in BENCHES
include $(srcdir)/tests/bench/flow.mk
include $(srcdir)/tests/bench/source.mk
include $(srcdir)/tests/bench/state.mk

BENCHES += tests/bench/bench_transport
tests_bench_bench_transport_SOURCES = %D%/bench_transport.c
tests_bench_bench_transport_CPPFLAGS = $(WORKER_CPPFLAGS)
tests_bench_bench_transport_LDADD = worker/libsource.a worker/libworker.a $(PROTO_LIBS) $(BASE_LIBS)

BENCHES += tests/bench/bench_sluiced
BENCH_RIG = %D%/bench_rig.c %D%/bench_rig.h
tests_bench_bench_sluiced_SOURCES = %D%/bench_sluiced.c $(BENCH_RIG)
tests_bench_bench_sluiced_CPPFLAGS = $(BASE_CPPFLAGS)
tests_bench_bench_sluiced_LDADD = $(BASE_LIBS)
EXTRA_tests_bench_bench_sluiced_DEPENDENCIES = tests/fake/fake-worker$(EXEEXT) tests/fake/fake-source$(EXEEXT) sluiced$(EXEEXT) sluice$(EXEEXT)

# Takes a file of TFs, so it is built but not run: tests/bench/bench_kernels FILE.tf
tests_bench_bench_kernels_SOURCES = kernels/bench.c
tests_bench_bench_kernels_CPPFLAGS = $(KERNELS_CPPFLAGS)
tests_bench_bench_kernels_LDADD = $(KERNELS_LIBS)

BENCHES += tests/bench/bench_people
tests_bench_bench_people_SOURCES = %D%/bench_people.c $(BENCH_RIG)
tests_bench_bench_people_CPPFLAGS = $(PROTO_CPPFLAGS)
tests_bench_bench_people_LDADD = $(PROTO_LIBS) $(BASE_LIBS)
EXTRA_tests_bench_bench_people_DEPENDENCIES = $(EXTRA_tests_bench_bench_sluiced_DEPENDENCIES)

BENCHES += tests/bench/bench_jobs
tests_bench_bench_jobs_SOURCES = %D%/bench_jobs.c $(BENCH_RIG)
tests_bench_bench_jobs_CPPFLAGS = $(PROTO_CPPFLAGS)
tests_bench_bench_jobs_LDADD = $(PROTO_LIBS) $(BASE_LIBS)
EXTRA_tests_bench_bench_jobs_DEPENDENCIES = $(EXTRA_tests_bench_bench_sluiced_DEPENDENCIES)
