# unit tests of state/: check_PROGRAMS += and TESTS +=
