# unit tests of proto/: check_PROGRAMS += and TESTS +=
