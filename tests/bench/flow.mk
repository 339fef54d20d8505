BENCHES += tests/bench/bench_dispatch
tests_bench_bench_dispatch_SOURCES = %D%/bench_dispatch.c
tests_bench_bench_dispatch_CPPFLAGS = $(BASE_CPPFLAGS) -I$(srcdir)/scheduler/dispatch
tests_bench_bench_dispatch_LDADD = scheduler/libdispatch.a $(BASE_LIBS) -lm
