# unit tests of the source: check_PROGRAMS += and TESTS +=
SOURCE_TESTS = tests/unit/hold_test tests/unit/pace_test tests/unit/reel_test tests/unit/source_test \
	tests/unit/replay_test tests/unit/source_program_test
check_PROGRAMS += $(SOURCE_TESTS)
TESTS += $(SOURCE_TESTS)

tests_unit_hold_test_SOURCES = tests/unit/hold_test.c tests/unit/make_tf.h
tests_unit_hold_test_CPPFLAGS = $(WORKER_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_unit_hold_test_LDADD = $(SOURCE_LIBS) $(CMOCKA_LIBS)
tests_unit_pace_test_SOURCES = tests/unit/pace_test.c
tests_unit_pace_test_CPPFLAGS = $(WORKER_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_unit_pace_test_LDADD = $(SOURCE_LIBS) $(CMOCKA_LIBS)
tests_unit_reel_test_SOURCES = tests/unit/reel_test.c tests/unit/make_tf.h
tests_unit_reel_test_CPPFLAGS = $(WORKER_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_unit_reel_test_LDADD = $(SOURCE_LIBS) $(CMOCKA_LIBS)
tests_unit_source_test_SOURCES = tests/unit/source_test.c tests/unit/source_help.h
tests_unit_source_test_CPPFLAGS = $(WORKER_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_unit_source_test_LDADD = $(SOURCE_LIBS) $(CMOCKA_LIBS)
tests_unit_replay_test_SOURCES = tests/unit/replay_test.c tests/unit/source_help.h
tests_unit_replay_test_CPPFLAGS = $(WORKER_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_unit_replay_test_LDADD = $(SOURCE_LIBS) $(CMOCKA_LIBS)
tests_unit_source_program_test_SOURCES = tests/unit/source_program_test.c tests/unit/source_help.h
tests_unit_source_program_test_CPPFLAGS = $(WORKER_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_unit_source_program_test_LDADD = $(SOURCE_LIBS) $(CMOCKA_LIBS)
EXTRA_tests_unit_source_program_test_DEPENDENCIES = sluice-source$(EXEEXT)
