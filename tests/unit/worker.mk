# unit tests of worker/
WORKER_TESTS = tests/unit/pool_test tests/unit/range_test tests/unit/room_test tests/unit/buffer_test tests/unit/fence_test tests/unit/outfile_test \
	tests/unit/times_test tests/unit/gpus_test tests/unit/place_test tests/unit/worker_test tests/unit/pull_test tests/unit/attach_test
check_PROGRAMS += $(WORKER_TESTS)
TESTS += $(WORKER_TESTS)

tests_unit_pool_test_CPPFLAGS = $(WORKER_CPPFLAGS)
tests_unit_pool_test_LDADD = $(WORKER_LIBS) $(CMOCKA_LIBS)
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
tests_unit_gpus_test_SOURCES = tests/unit/gpus_test.c tests/unit/worker_help.h tests/unit/loop_help.h
tests_unit_gpus_test_CPPFLAGS = $(WORKER_CPPFLAGS)
tests_unit_gpus_test_LDADD = $(WORKER_LIBS) $(CMOCKA_LIBS)
tests_unit_place_test_SOURCES = tests/unit/place_test.c tests/unit/worker_help.h tests/unit/loop_help.h
tests_unit_place_test_CPPFLAGS = $(WORKER_CPPFLAGS)
tests_unit_place_test_LDADD = $(WORKER_LIBS) $(CMOCKA_LIBS)
tests_unit_pull_test_SOURCES = tests/unit/pull_test.c tests/unit/worker_help.h tests/unit/loop_help.h
tests_unit_pull_test_CPPFLAGS = $(WORKER_CPPFLAGS)
tests_unit_pull_test_LDADD = $(WORKER_LIBS) $(CMOCKA_LIBS)
tests_unit_fence_test_CPPFLAGS = $(WORKER_CPPFLAGS)
tests_unit_fence_test_LDADD = $(WORKER_LIBS) $(CMOCKA_LIBS)
tests_unit_outfile_test_CPPFLAGS = $(WORKER_CPPFLAGS)
tests_unit_outfile_test_LDADD = $(WORKER_LIBS) $(CMOCKA_LIBS)
# The reconstruction process itself, with the emulated device beside its backends.
tests_unit_attach_test_SOURCES = tests/unit/attach_test.c tests/unit/device_fake.h tests/unit/kernels_help.h worker/attach.c kernels/backend/bk_emu.c
tests_unit_attach_test_CPPFLAGS = $(WORKER_CPPFLAGS) $(KERNELS_TEST_CPPFLAGS)
tests_unit_attach_test_CFLAGS = $(AM_CFLAGS) -O1 -ffp-contract=off -fno-fast-math -fno-math-errno
tests_unit_attach_test_LDADD = $(WORKER_LIBS) $(KERNELS_TEST_LIBS)
