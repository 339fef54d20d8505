# unit tests of the source: check_PROGRAMS += and TESTS +=
check_PROGRAMS += tests/unit/hold_test tests/unit/reel_test tests/unit/pace_test
TESTS          += tests/unit/hold_test tests/unit/reel_test tests/unit/pace_test

tests_unit_hold_test_SOURCES  = tests/unit/hold_test.c
tests_unit_hold_test_CPPFLAGS = $(WORKER_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_unit_hold_test_LDADD    = $(SOURCE_LIBS) $(CMOCKA_LIBS)

tests_unit_pace_test_SOURCES  = tests/unit/pace_test.c
tests_unit_pace_test_CPPFLAGS = $(WORKER_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_unit_pace_test_LDADD    = $(SOURCE_LIBS) $(CMOCKA_LIBS)

tests_unit_reel_test_SOURCES  = tests/unit/reel_test.c tests/unit/make_tf.h
tests_unit_reel_test_CPPFLAGS = $(WORKER_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_unit_reel_test_LDADD    = $(SOURCE_LIBS) $(CMOCKA_LIBS)
