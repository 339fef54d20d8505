# unit tests of client/: check_PROGRAMS += and TESTS +=
client_tests = \
	tests/unit/show_test \
	tests/unit/local_farm_test \
	tests/unit/spec_test \
	tests/unit/call_test
check_PROGRAMS += $(client_tests)
TESTS += $(client_tests)

tests_unit_show_test_SOURCES = %D%/show_test.c
tests_unit_show_test_CPPFLAGS = $(CLIENT_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_unit_show_test_LDADD = $(CLIENT_LIBS) $(CMOCKA_LIBS)

tests_unit_local_farm_test_SOURCES = %D%/local_farm_test.c
tests_unit_local_farm_test_CPPFLAGS = $(CLIENT_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_unit_local_farm_test_LDADD = $(CLIENT_LIBS) $(CMOCKA_LIBS)

tests_unit_spec_test_SOURCES = %D%/spec_test.c
tests_unit_spec_test_CPPFLAGS = $(CLIENT_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_unit_spec_test_LDADD = $(CLIENT_LIBS) $(CMOCKA_LIBS)

tests_unit_call_test_SOURCES = %D%/call_test.c
tests_unit_call_test_CPPFLAGS = $(CLIENT_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_unit_call_test_LDADD = $(CLIENT_LIBS) $(CMOCKA_LIBS)
