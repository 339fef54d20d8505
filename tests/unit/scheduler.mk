# unit tests of scheduler/: check_PROGRAMS += and TESTS +=
