# unit tests of kernels/simulate: check_PROGRAMS += and TESTS +=
sim_tests = tests/unit/simulate_test tests/unit/encode_test
check_PROGRAMS += $(sim_tests)
TESTS += $(sim_tests)
EXTRA_DIST += %D%/sim_stats.h %D%/kgeo_help.h tests/data/simulate-reference.txt

tests_unit_simulate_test_SOURCES = %D%/simulate_test.c
tests_unit_simulate_test_CPPFLAGS = $(KERNELS_TEST_CPPFLAGS)
tests_unit_simulate_test_LDADD = $(KERNELS_TEST_LIBS)

tests_unit_encode_test_SOURCES = %D%/encode_test.c
tests_unit_encode_test_CPPFLAGS = $(KERNELS_TEST_CPPFLAGS)
tests_unit_encode_test_LDADD = $(KERNELS_TEST_LIBS)
