# tests/bench/ - figures as ratios; each runs for less than 15 s. `make bench` builds and runs what is in BENCHES
include $(srcdir)/tests/bench/flow.mk

BENCHES += tests/bench/bench_transport
tests_bench_bench_transport_SOURCES = %D%/bench_transport.c
tests_bench_bench_transport_CPPFLAGS = $(WORKER_CPPFLAGS)
tests_bench_bench_transport_LDADD = worker/libsource.a worker/libworker.a $(PROTO_LIBS) $(BASE_LIBS)
