# unit tests of scheduler/: check_PROGRAMS += and TESTS +=
farm_tests = tests/unit/farm_test tests/unit/farm_restart_test tests/unit/farm_trouble_test tests/unit/marks_test tests/unit/reads_test tests/unit/health_rules_test tests/unit/health_test
check_PROGRAMS += $(farm_tests)
TESTS += $(farm_tests)

# the farm half of sluiced with a double of flow.h
FARM_TEST_CPPFLAGS = $(SCHEDULER_CPPFLAGS) $(CMOCKA_CFLAGS) -I$(srcdir)/tests/unit
FARM_TEST_LIBS = tests/unit/libfarmfixture.a scheduler/libfarm.a scheduler/libwriter.a $(STATE_LIBS) $(PROTO_LIBS) $(BASE_LIBS) $(CMOCKA_LIBS)
# compiled once for all
check_LIBRARIES += tests/unit/libfarmfixture.a
tests_unit_libfarmfixture_a_SOURCES = %D%/farm_fixture.c %D%/farm_fixture.h %D%/flow_double.c %D%/flow_double.h
tests_unit_libfarmfixture_a_CPPFLAGS = $(FARM_TEST_CPPFLAGS)
farm_test_common = %D%/farm_fixture.h %D%/flow_double.h

tests_unit_farm_test_SOURCES = %D%/farm_test.c $(farm_test_common)
tests_unit_farm_test_CPPFLAGS = $(FARM_TEST_CPPFLAGS)
tests_unit_farm_test_LDADD = $(FARM_TEST_LIBS)

tests_unit_farm_restart_test_SOURCES = %D%/farm_restart_test.c $(farm_test_common)
tests_unit_farm_restart_test_CPPFLAGS = $(FARM_TEST_CPPFLAGS)
tests_unit_farm_restart_test_LDADD = $(FARM_TEST_LIBS)

tests_unit_farm_trouble_test_SOURCES = %D%/farm_trouble_test.c $(farm_test_common)
tests_unit_farm_trouble_test_CPPFLAGS = $(FARM_TEST_CPPFLAGS)
tests_unit_farm_trouble_test_LDADD = $(FARM_TEST_LIBS)

tests_unit_marks_test_SOURCES = %D%/marks_test.c $(farm_test_common)
tests_unit_marks_test_CPPFLAGS = $(FARM_TEST_CPPFLAGS)
tests_unit_marks_test_LDADD = $(FARM_TEST_LIBS)

tests_unit_reads_test_SOURCES = %D%/reads_test.c
tests_unit_reads_test_CPPFLAGS = $(FARM_TEST_CPPFLAGS)
tests_unit_reads_test_LDADD = scheduler/libfarm.a $(BASE_LIBS) $(CMOCKA_LIBS)

tests_unit_health_rules_test_SOURCES = %D%/health_rules_test.c
tests_unit_health_rules_test_CPPFLAGS = $(FARM_TEST_CPPFLAGS)
tests_unit_health_rules_test_LDADD = scheduler/libfarm.a $(BASE_LIBS) $(CMOCKA_LIBS)

tests_unit_health_test_SOURCES = %D%/health_test.c $(farm_test_common)
tests_unit_health_test_CPPFLAGS = $(FARM_TEST_CPPFLAGS)
tests_unit_health_test_LDADD = $(FARM_TEST_LIBS)

# the link to the Slurm helper, with tests/fake/fake-slurm
check_PROGRAMS += tests/unit/slurm_link_test
TESTS += tests/unit/slurm_link_test
tests_unit_slurm_link_test_SOURCES = %D%/slurm_link_test.c
tests_unit_slurm_link_test_CPPFLAGS = $(FARM_TEST_CPPFLAGS)
tests_unit_slurm_link_test_LDADD = scheduler/libfarm.a $(PROTO_LIBS) $(BASE_LIBS) $(CMOCKA_LIBS)

check_PROGRAMS += tests/unit/slurm_test
TESTS += tests/unit/slurm_test
tests_unit_slurm_test_SOURCES = %D%/slurm_test.c $(farm_test_common)
tests_unit_slurm_test_CPPFLAGS = $(FARM_TEST_CPPFLAGS)
tests_unit_slurm_test_LDADD = $(FARM_TEST_LIBS)
