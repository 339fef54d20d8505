# tests/fuzz/ - a target is fuzz_NAME.c with LLVMFuzzerTestOneInput; its corpus (and mutants of it) replay in `make check`, `make fuzz` lets
# clang's libFuzzer loose on it
fuzz_targets = frame chan hostlist config tf_file pages
fuzz_programs = tests/fuzz/fuzz_frame tests/fuzz/fuzz_chan tests/fuzz/fuzz_hostlist tests/fuzz/fuzz_config tests/fuzz/fuzz_tf_file tests/fuzz/fuzz_pages
check_PROGRAMS += $(fuzz_programs)
TESTS += $(fuzz_programs)
check_PROGRAMS += tests/fuzz/make_corpus
EXTRA_DIST += %D%/corpus
dist_noinst_SCRIPTS += %D%/soak

FUZZ_LIBS = proto/libproto.a $(PROTOBUF_C_LIBS) $(XXHASH_LIBS) $(EV_LIBS) $(NETTLE_LIBS) $(MUNGE_LIBS) -lm $(BASE_LIBS)

tests_fuzz_fuzz_frame_SOURCES = %D%/fuzz_frame.c %D%/replay.c
tests_fuzz_fuzz_frame_CPPFLAGS = $(PROTO_CPPFLAGS)
tests_fuzz_fuzz_frame_LDADD = $(FUZZ_LIBS)

tests_fuzz_fuzz_chan_SOURCES = %D%/fuzz_chan.c %D%/replay.c
tests_fuzz_fuzz_chan_CPPFLAGS = $(PROTO_CPPFLAGS)
tests_fuzz_fuzz_chan_LDADD = $(FUZZ_LIBS)

tests_fuzz_fuzz_hostlist_SOURCES = %D%/fuzz_hostlist.c %D%/replay.c
tests_fuzz_fuzz_hostlist_CPPFLAGS = $(BASE_CPPFLAGS)
tests_fuzz_fuzz_hostlist_LDADD = $(BASE_LIBS)

tests_fuzz_fuzz_config_SOURCES = %D%/fuzz_config.c %D%/replay.c
tests_fuzz_fuzz_config_CPPFLAGS = $(BASE_CPPFLAGS)
tests_fuzz_fuzz_config_LDADD = $(BASE_LIBS)

tests_fuzz_fuzz_tf_file_SOURCES = %D%/fuzz_tf_file.c %D%/replay.c
tests_fuzz_fuzz_tf_file_CPPFLAGS = $(BASE_CPPFLAGS) -I$(srcdir)/proto
tests_fuzz_fuzz_tf_file_LDADD = proto/libtffile.a $(BASE_LIBS)

tests_fuzz_fuzz_pages_SOURCES = %D%/fuzz_pages.c %D%/replay.c
tests_fuzz_fuzz_pages_CPPFLAGS = $(BASE_CPPFLAGS) $(KERNELS_CPPFLAGS)
tests_fuzz_fuzz_pages_LDADD = $(KERNELS_LIBS) $(XXHASH_LIBS) $(BASE_LIBS)

tests_fuzz_make_corpus_SOURCES = %D%/make_corpus.c %D%/fill.c %D%/fill.h
tests_fuzz_make_corpus_CPPFLAGS = $(PROTO_CPPFLAGS)
tests_fuzz_make_corpus_LDADD = $(FUZZ_LIBS)

corpus: tests/fuzz/make_corpus
	tests/fuzz/make_corpus $(srcdir)/tests/fuzz/corpus
fuzz: $(BUILT_SOURCES)
	$(srcdir)/tests/fuzz/soak $(abs_srcdir) $(abs_builddir) \
	  '-D_GNU_SOURCE -I$(abs_builddir) $(PROTO_CPPFLAGS) $(KERNELS_CPPFLAGS)' \
	  '$(PROTOBUF_C_LIBS) $(XXHASH_LIBS) $(EV_LIBS) $(NETTLE_LIBS) $(MUNGE_LIBS) $(CONFUSE_LIBS) $(JANSSON_LIBS) -lm -lpthread -ldl' $(fuzz_targets)
soak: fuzz
.PHONY: corpus fuzz
