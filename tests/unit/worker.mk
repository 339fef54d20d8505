# unit tests of worker/
WORKER_TESTS = tests/unit/range_test tests/unit/room_test tests/unit/buffer_test tests/unit/fence_test tests/unit/outfile_test \
	tests/unit/times_test tests/unit/worker_test tests/unit/pull_test
check_PROGRAMS += $(WORKER_TESTS)
TESTS += $(WORKER_TESTS)

tests_unit_range_test_CPPFLAGS = $(WORKER_CPPFLAGS)
tests_unit_range_test_LDADD = $(WORKER_LIBS) $(CMOCKA_LIBS)
tests_unit_room_test_CPPFLAGS = $(WORKER_CPPFLAGS)
tests_unit_room_test_LDADD = $(WORKER_LIBS) $(CMOCKA_LIBS)
tests_unit_times_test_CPPFLAGS = $(WORKER_CPPFLAGS)
tests_unit_times_test_LDADD = $(WORKER_LIBS) $(CMOCKA_LIBS)
tests_unit_buffer_test_CPPFLAGS = $(WORKER_CPPFLAGS)
tests_unit_buffer_test_LDADD = $(WORKER_LIBS) $(CMOCKA_LIBS)

# The real worker, under a scripted sluiced, with a reconstruction process that misbehaves on demand.
check_PROGRAMS += tests/fake/reco
tests_fake_reco_CPPFLAGS = $(WORKER_CPPFLAGS)
tests_fake_reco_LDADD = $(WORKER_LIBS)
tests_unit_worker_test_SOURCES = tests/unit/worker_test.c tests/unit/worker_help.h tests/unit/loop_help.h
tests_unit_worker_test_CPPFLAGS = $(WORKER_CPPFLAGS)
tests_unit_worker_test_LDADD = $(WORKER_LIBS) $(CMOCKA_LIBS)
tests_unit_pull_test_SOURCES = tests/unit/pull_test.c tests/unit/worker_help.h tests/unit/loop_help.h
tests_unit_pull_test_CPPFLAGS = $(WORKER_CPPFLAGS)
tests_unit_pull_test_LDADD = $(WORKER_LIBS) $(CMOCKA_LIBS)
tests_unit_fence_test_CPPFLAGS = $(WORKER_CPPFLAGS)
tests_unit_fence_test_LDADD = $(WORKER_LIBS) $(CMOCKA_LIBS)
tests_unit_outfile_test_CPPFLAGS = $(WORKER_CPPFLAGS)
tests_unit_outfile_test_LDADD = $(WORKER_LIBS) $(CMOCKA_LIBS)
