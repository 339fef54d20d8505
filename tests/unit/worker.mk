# unit tests of worker/: check_PROGRAMS += and TESTS +=
