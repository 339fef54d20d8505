# unit tests of worker/
WORKER_TESTS = tests/unit/range_test tests/unit/room_test tests/unit/buffer_test
check_PROGRAMS += $(WORKER_TESTS)
TESTS += $(WORKER_TESTS)

tests_unit_range_test_CPPFLAGS = $(WORKER_CPPFLAGS)
tests_unit_range_test_LDADD = $(WORKER_LIBS) $(CMOCKA_LIBS)
tests_unit_room_test_CPPFLAGS = $(WORKER_CPPFLAGS)
tests_unit_room_test_LDADD = $(WORKER_LIBS) $(CMOCKA_LIBS)
tests_unit_buffer_test_CPPFLAGS = $(WORKER_CPPFLAGS)
tests_unit_buffer_test_LDADD = $(WORKER_LIBS) $(CMOCKA_LIBS)
