# unit tests of base/: check_PROGRAMS += and TESTS +=
base_tests = \
	tests/unit/err_test \
	tests/unit/str_test \
	tests/unit/clock_test \
	tests/unit/heap_test \
	tests/unit/hostlist_test \
	tests/unit/file_test \
	tests/unit/log_test \
	tests/unit/conf_test \
	tests/unit/constraint_test
check_PROGRAMS += $(base_tests)
TESTS += $(base_tests)

tests_unit_err_test_SOURCES = %D%/err_test.c
tests_unit_err_test_CPPFLAGS = $(BASE_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_unit_err_test_LDADD = $(BASE_LIBS) $(CMOCKA_LIBS)

tests_unit_str_test_SOURCES = %D%/str_test.c
tests_unit_str_test_CPPFLAGS = $(BASE_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_unit_str_test_LDADD = $(BASE_LIBS) $(CMOCKA_LIBS)

tests_unit_clock_test_SOURCES = %D%/clock_test.c
tests_unit_clock_test_CPPFLAGS = $(BASE_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_unit_clock_test_LDADD = $(BASE_LIBS) $(CMOCKA_LIBS)

tests_unit_heap_test_SOURCES = %D%/heap_test.c
tests_unit_heap_test_CPPFLAGS = $(BASE_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_unit_heap_test_LDADD = $(BASE_LIBS) $(CMOCKA_LIBS)

tests_unit_hostlist_test_SOURCES = %D%/hostlist_test.c
tests_unit_hostlist_test_CPPFLAGS = $(BASE_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_unit_hostlist_test_LDADD = $(BASE_LIBS) $(CMOCKA_LIBS)

tests_unit_file_test_SOURCES = %D%/file_test.c
tests_unit_file_test_CPPFLAGS = $(BASE_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_unit_file_test_LDADD = $(BASE_LIBS) $(CMOCKA_LIBS)

tests_unit_log_test_SOURCES = %D%/log_test.c
tests_unit_log_test_CPPFLAGS = $(BASE_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_unit_log_test_LDADD = $(BASE_LIBS) $(CMOCKA_LIBS)

tests_unit_constraint_test_SOURCES = %D%/constraint_test.c
tests_unit_constraint_test_CPPFLAGS = $(BASE_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_unit_constraint_test_LDADD = $(BASE_LIBS) $(CMOCKA_LIBS)

tests_unit_conf_test_SOURCES = %D%/conf_test.c
tests_unit_conf_test_CPPFLAGS = $(BASE_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_unit_conf_test_LDADD = $(BASE_LIBS) $(CMOCKA_LIBS)
