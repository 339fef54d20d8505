BENCHES += tests/bench/bench_state
tests_bench_bench_state_SOURCES = %D%/bench_state.c
tests_bench_bench_state_CPPFLAGS = $(STATE_CPPFLAGS)
tests_bench_bench_state_LDADD = $(STATE_LIBS) $(BASE_LIBS)
