# unit tests of flow: check_PROGRAMS += and TESTS +=
flow_tests = \
	tests/unit/dispatch_test
check_PROGRAMS += $(flow_tests)
TESTS += $(flow_tests)

tests_unit_dispatch_test_SOURCES = %D%/dispatch_test.c
tests_unit_dispatch_test_CPPFLAGS = $(BASE_CPPFLAGS) -I$(srcdir)/scheduler/dispatch $(CMOCKA_CFLAGS)
tests_unit_dispatch_test_LDADD = scheduler/libdispatch.a $(BASE_LIBS) $(CMOCKA_LIBS) -lm
