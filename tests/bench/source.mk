BENCHES += tests/bench/bench_reel
tests_bench_bench_reel_SOURCES = %D%/bench_reel.c
tests_bench_bench_reel_CPPFLAGS = $(WORKER_CPPFLAGS)
tests_bench_bench_reel_LDADD = $(SOURCE_LIBS)
