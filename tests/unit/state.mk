# unit tests of state/ and of the committing thread: check_PROGRAMS += and TESTS +=
state_tests = \
	tests/unit/db_test \
	tests/unit/rows_test \
	tests/unit/writer_test \
	tests/unit/state_full_test
check_PROGRAMS += $(state_tests)
TESTS += $(state_tests)
EXTRA_DIST += %D%/state_test.h %D%/state_hold.h %D%/writer_rig.h

tests_unit_db_test_SOURCES = %D%/db_test.c
tests_unit_db_test_CPPFLAGS = $(STATE_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_unit_db_test_LDADD = $(STATE_LIBS) $(BASE_LIBS) $(CMOCKA_LIBS)

tests_unit_rows_test_SOURCES = %D%/rows_test.c
tests_unit_rows_test_CPPFLAGS = $(STATE_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_unit_rows_test_LDADD = $(STATE_LIBS) $(BASE_LIBS) $(CMOCKA_LIBS)

tests_unit_writer_test_SOURCES = %D%/writer_test.c
tests_unit_writer_test_CPPFLAGS = $(STATE_CPPFLAGS) -I$(srcdir)/scheduler $(CMOCKA_CFLAGS)
tests_unit_writer_test_LDADD = scheduler/libwriter.a $(STATE_LIBS) $(BASE_LIBS) $(EV_LIBS) $(CMOCKA_LIBS)

tests_unit_state_full_test_SOURCES = %D%/state_full_test.c
tests_unit_state_full_test_CPPFLAGS = $(STATE_CPPFLAGS) -I$(srcdir)/scheduler $(CMOCKA_CFLAGS)
tests_unit_state_full_test_LDADD = scheduler/libwriter.a $(STATE_LIBS) $(BASE_LIBS) $(EV_LIBS) $(CMOCKA_LIBS)
