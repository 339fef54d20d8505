# unit tests of kernels/: check_PROGRAMS += and TESTS +=
