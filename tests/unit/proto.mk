# unit tests of proto/: check_PROGRAMS += and TESTS +=
proto_tests = \
	tests/unit/frame_test \
	tests/unit/chan_test \
	tests/unit/runkey_test \
	tests/unit/names_test \
	tests/unit/offset_test \
	tests/unit/peer_test
check_PROGRAMS += $(proto_tests)
TESTS += $(proto_tests)
EXTRA_DIST += %D%/loop_help.h %D%/munged_help.h

# Without the TF file, which depends on nothing and is another library.
PROTO_TEST_LIBS = proto/libproto.a $(PROTOBUF_C_LIBS) $(XXHASH_LIBS) $(EV_LIBS) $(NETTLE_LIBS) $(MUNGE_LIBS) -lm $(BASE_LIBS) $(CMOCKA_LIBS)

tests_unit_frame_test_SOURCES = %D%/frame_test.c tests/fuzz/fill.c tests/fuzz/fill.h
tests_unit_frame_test_CPPFLAGS = $(PROTO_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_unit_frame_test_LDADD = $(PROTO_TEST_LIBS)

tests_unit_chan_test_SOURCES = %D%/chan_test.c
tests_unit_chan_test_CPPFLAGS = $(PROTO_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_unit_chan_test_LDADD = $(PROTO_TEST_LIBS)

tests_unit_runkey_test_SOURCES = %D%/runkey_test.c
tests_unit_runkey_test_CPPFLAGS = $(PROTO_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_unit_runkey_test_LDADD = $(PROTO_TEST_LIBS)

tests_unit_names_test_SOURCES = %D%/names_test.c
tests_unit_names_test_CPPFLAGS = $(PROTO_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_unit_names_test_LDADD = $(PROTO_TEST_LIBS)

tests_unit_offset_test_SOURCES = %D%/offset_test.c
tests_unit_offset_test_CPPFLAGS = $(PROTO_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_unit_offset_test_LDADD = $(PROTO_TEST_LIBS)

tests_unit_peer_test_SOURCES = %D%/peer_test.c
tests_unit_peer_test_CPPFLAGS = $(PROTO_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_unit_peer_test_LDADD = $(PROTO_TEST_LIBS)
