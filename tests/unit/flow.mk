# unit tests of flow: check_PROGRAMS += and TESTS +=
flow_tests = \
	tests/unit/dispatch_test \
	tests/unit/ledger_test \
	tests/unit/run_tf_test \
	tests/unit/run_life_test \
	tests/unit/verify_test \
	tests/unit/job_submit_test \
	tests/unit/job_run_test \
	tests/unit/job_control_test \
	tests/unit/job_store_test \
	tests/unit/flow_test \
	tests/unit/words_test \
	tests/unit/ran_test
check_PROGRAMS += $(flow_tests)
TESTS += $(flow_tests)

FLOW_TEST_CPPFLAGS = $(SCHEDULER_CPPFLAGS) $(CMOCKA_CFLAGS)
# the double of the farm half, compiled once for all
check_LIBRARIES += tests/unit/libfarmdouble.a
tests_unit_libfarmdouble_a_SOURCES = %D%/farm_double.c %D%/farm_double.h
tests_unit_libfarmdouble_a_CPPFLAGS = $(FLOW_TEST_CPPFLAGS)
FLOW_TEST_LDADD = tests/unit/libfarmdouble.a scheduler/libflow.a scheduler/libdispatch.a $(STATE_LIBS) $(PROTO_LIBS) $(BASE_LIBS) $(CMOCKA_LIBS) -lm

tests_unit_dispatch_test_SOURCES = %D%/dispatch_test.c
tests_unit_dispatch_test_CPPFLAGS = $(BASE_CPPFLAGS) -I$(srcdir)/scheduler/dispatch $(CMOCKA_CFLAGS)
tests_unit_dispatch_test_LDADD = scheduler/libdispatch.a $(BASE_LIBS) $(CMOCKA_LIBS) -lm

tests_unit_ledger_test_SOURCES = %D%/ledger_test.c %D%/farm_double.h
tests_unit_ledger_test_CPPFLAGS = $(FLOW_TEST_CPPFLAGS)
tests_unit_ledger_test_LDADD = $(FLOW_TEST_LDADD)
tests_unit_ledger_test_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=chan_send

tests_unit_verify_test_SOURCES = %D%/verify_test.c %D%/farm_double.h
tests_unit_verify_test_CPPFLAGS = $(FLOW_TEST_CPPFLAGS)
tests_unit_verify_test_LDADD = $(FLOW_TEST_LDADD)
tests_unit_verify_test_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=chan_send

# the world of a run and that of a job, compiled once for all
check_LIBRARIES += tests/unit/libpairfixture.a
tests_unit_libpairfixture_a_SOURCES = %D%/pair_fixture.c %D%/pair_fixture.h
tests_unit_libpairfixture_a_CPPFLAGS = $(FLOW_TEST_CPPFLAGS)
PAIR_TEST_LDADD = tests/unit/libpairfixture.a $(FLOW_TEST_LDADD)

check_LIBRARIES += tests/unit/librunfixture.a
tests_unit_librunfixture_a_SOURCES = %D%/run_fixture.c %D%/run_fixture.h
tests_unit_librunfixture_a_CPPFLAGS = $(FLOW_TEST_CPPFLAGS)
RUN_TEST_LDADD = tests/unit/librunfixture.a $(PAIR_TEST_LDADD)

tests_unit_run_tf_test_SOURCES = %D%/run_tf_test.c %D%/run_fixture.h
tests_unit_run_tf_test_CPPFLAGS = $(FLOW_TEST_CPPFLAGS)
tests_unit_run_tf_test_LDADD = $(RUN_TEST_LDADD)
tests_unit_run_tf_test_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=chan_send

tests_unit_run_life_test_SOURCES = %D%/run_life_test.c %D%/run_fixture.h
tests_unit_run_life_test_CPPFLAGS = $(FLOW_TEST_CPPFLAGS)
tests_unit_run_life_test_LDADD = $(RUN_TEST_LDADD)
tests_unit_run_life_test_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=chan_send

check_LIBRARIES += tests/unit/libjobfixture.a
tests_unit_libjobfixture_a_SOURCES = %D%/job_fixture.c %D%/job_fixture.h
tests_unit_libjobfixture_a_CPPFLAGS = $(FLOW_TEST_CPPFLAGS)
JOB_TEST_LDADD = tests/unit/libjobfixture.a $(PAIR_TEST_LDADD)

tests_unit_job_submit_test_SOURCES = %D%/job_submit_test.c %D%/job_fixture.h
tests_unit_job_submit_test_CPPFLAGS = $(FLOW_TEST_CPPFLAGS)
tests_unit_job_submit_test_LDADD = $(JOB_TEST_LDADD)
tests_unit_job_submit_test_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=chan_send

tests_unit_job_run_test_SOURCES = %D%/job_run_test.c %D%/job_fixture.h
tests_unit_job_run_test_CPPFLAGS = $(FLOW_TEST_CPPFLAGS)
tests_unit_job_run_test_LDADD = $(JOB_TEST_LDADD)
tests_unit_job_run_test_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=chan_send

tests_unit_job_control_test_SOURCES = %D%/job_control_test.c %D%/job_fixture.h
tests_unit_job_control_test_CPPFLAGS = $(FLOW_TEST_CPPFLAGS)
tests_unit_job_control_test_LDADD = $(JOB_TEST_LDADD)
tests_unit_job_control_test_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=chan_send

tests_unit_job_store_test_SOURCES = %D%/job_store_test.c %D%/job_fixture.h
tests_unit_job_store_test_CPPFLAGS = $(FLOW_TEST_CPPFLAGS)
tests_unit_job_store_test_LDADD = $(JOB_TEST_LDADD)
tests_unit_job_store_test_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=chan_send

tests_unit_flow_test_SOURCES = %D%/flow_test.c %D%/farm_double.h
tests_unit_flow_test_CPPFLAGS = $(FLOW_TEST_CPPFLAGS)
tests_unit_flow_test_LDADD = $(FLOW_TEST_LDADD)
tests_unit_flow_test_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=chan_send

tests_unit_ran_test_SOURCES = %D%/ran_test.c
tests_unit_ran_test_CPPFLAGS = $(FLOW_TEST_CPPFLAGS)
tests_unit_ran_test_LDADD = $(FLOW_TEST_LDADD)

tests_unit_words_test_SOURCES = %D%/words_test.c
tests_unit_words_test_CPPFLAGS = $(KERNELS_CPPFLAGS) $(PROTO_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_unit_words_test_LDADD = proto/libproto.a $(KERNELS_LIBS) $(PROTO_LIBS) $(BASE_LIBS) $(CMOCKA_LIBS)
