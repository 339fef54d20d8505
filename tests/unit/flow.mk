# unit tests of flow: check_PROGRAMS += and TESTS +=
