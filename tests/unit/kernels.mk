# unit tests of kernels/ and proto/tf_file: check_PROGRAMS += and TESTS +=
kernels_tests = \
	tests/unit/tf_file_test \
	tests/unit/pages_test \
	tests/unit/cluster_test \
	tests/unit/device_test \
	tests/unit/kmath_test \
	tests/unit/workflow_cpu_test \
	tests/unit/workflow_test
check_PROGRAMS += $(kernels_tests) tests/unit/kernels_alone tests/unit/kernels_emulated
kernels_scripts = tests/kernels_reference.sh tests/kernels_same.sh tests/kernels_mock.sh tests/kernels_planted.sh tests/kernels_plugins.sh tests/kernels_code.sh tests/kernels_oclgrind.sh
TESTS += $(kernels_tests) $(kernels_scripts)

dist_noinst_SCRIPTS += $(kernels_scripts)

# Of what was installed, wherever it went.
installcheck-local:
	$(srcdir)/tests/kernels_plugins.sh $(DESTDIR)$(libexecdir)/sluice-reco

EXTRA_DIST += tests/gpu/run %D%/kernels_help.h %D%/device_fake.h tests/mock/mock_gpu.c tests/data/README.md tests/data/reference.txt tests/data/tpc-3tf.tf.zst \
	tests/data/tpc-c.digits.zst tests/data/tpc-c.clusters.zst

KERNELS_TEST_CPPFLAGS = $(KERNELS_CPPFLAGS) $(CMOCKA_CFLAGS) -D_GNU_SOURCE
KERNELS_TEST_LIBS = $(KERNELS_LIBS) $(CMOCKA_LIBS)

tests_unit_tf_file_test_SOURCES = %D%/tf_file_test.c
tests_unit_tf_file_test_CPPFLAGS = $(KERNELS_TEST_CPPFLAGS)
tests_unit_tf_file_test_LDADD = proto/libtffile.a $(CMOCKA_LIBS)

tests_unit_pages_test_SOURCES = %D%/pages_test.c
tests_unit_pages_test_CPPFLAGS = $(KERNELS_TEST_CPPFLAGS)
tests_unit_pages_test_LDADD = $(KERNELS_TEST_LIBS)

tests_unit_cluster_test_SOURCES = %D%/cluster_test.c
tests_unit_cluster_test_CPPFLAGS = $(KERNELS_TEST_CPPFLAGS)
tests_unit_cluster_test_LDADD = $(KERNELS_TEST_LIBS)

tests_unit_kmath_test_SOURCES = %D%/kmath_test.c
tests_unit_kmath_test_CPPFLAGS = $(KERNELS_TEST_CPPFLAGS)
tests_unit_kmath_test_CFLAGS = $(AM_CFLAGS) -ffp-contract=off -fno-fast-math
tests_unit_kmath_test_LDADD = $(CMOCKA_LIBS) -lm

tests_unit_device_test_SOURCES = %D%/device_test.c
tests_unit_device_test_CPPFLAGS = $(KERNELS_TEST_CPPFLAGS)
tests_unit_device_test_LDADD = $(KERNELS_TEST_LIBS)

# The commands of kernels/ without the rest of the tree.
tests_unit_kernels_alone_SOURCES = kernels/main.c
tests_unit_kernels_alone_CPPFLAGS = $(KERNELS_CPPFLAGS)
tests_unit_kernels_alone_LDADD = $(KERNELS_LIBS)

# The same with the emulated device.
tests_unit_kernels_emulated_SOURCES = kernels/main_emu.c kernels/backend/bk_emu.c
tests_unit_kernels_emulated_CPPFLAGS = $(KERNELS_CPPFLAGS)
tests_unit_kernels_emulated_CFLAGS = $(AM_CFLAGS) -O1 -ffp-contract=off -fno-fast-math -fno-math-errno
tests_unit_kernels_emulated_LDADD = $(KERNELS_LIBS)

tests_unit_workflow_cpu_test_SOURCES = %D%/workflow_cpu_test.c
tests_unit_workflow_cpu_test_CPPFLAGS = $(KERNELS_TEST_CPPFLAGS)
tests_unit_workflow_cpu_test_LDADD = $(KERNELS_TEST_LIBS)

tests_unit_workflow_test_SOURCES = %D%/workflow_test.c
tests_unit_workflow_test_CPPFLAGS = $(KERNELS_TEST_CPPFLAGS)
tests_unit_workflow_test_LDADD = $(KERNELS_TEST_LIBS)
