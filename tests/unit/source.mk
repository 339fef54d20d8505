# unit tests of source: check_PROGRAMS += and TESTS +=
