# unit tests of client/: check_PROGRAMS += and TESTS +=
