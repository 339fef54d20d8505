# proto/ - every format both ends must agree on; sees base
noinst_LIBRARIES += proto/libproto.a proto/libtffile.a

proto_libproto_a_CPPFLAGS = $(PROTO_CPPFLAGS)
proto_libproto_a_SOURCES = \
	%D%/chan.c %D%/chan.h %D%/chan_part.h %D%/chan_read.c \
	%D%/connector.c \
	%D%/frame.c %D%/frame.h \
	%D%/handshake.c %D%/handshake.h \
	%D%/listener.c \
	%D%/names.c %D%/names.h \
	%D%/offset.c %D%/offset.h \
	%D%/peer.c %D%/peer.h \
	%D%/runkey.c %D%/runkey.h \
	%D%/shm_layout.h \
	%D%/workflow_words.c %D%/workflow_words.h
nodist_proto_libproto_a_SOURCES = proto/sluice.pb-c.c proto/sluice.pb-c.h

BUILT_SOURCES += proto/sluice.pb-c.h
CLEANFILES += proto/sluice.pb-c.c proto/sluice.pb-c.h
EXTRA_DIST += %D%/sluice.proto

proto/sluice.pb-c.c proto/sluice.pb-c.h &: $(srcdir)/proto/sluice.proto
	$(AM_V_GEN)$(MKDIR_P) proto && $(PROTOC_C) --proto_path=$(srcdir)/proto --c_out=proto $(srcdir)/proto/sluice.proto

# The TF file depends on nothing, so that kernels/ can stand alone with it.
proto_libtffile_a_CPPFLAGS = -I$(srcdir)/proto
proto_libtffile_a_SOURCES = \
	%D%/tf_file.c %D%/tf_file.h
