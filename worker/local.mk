# worker/ - the data path; sees kernels (the reconstruction program only), proto, base

# ---- worker and reconstruction process ----
WORKER_CPPFLAGS = $(PROTO_CPPFLAGS) -I$(srcdir)/worker
WORKER_LIBS     = worker/libworker.a $(PROTO_LIBS) $(BASE_LIBS)

noinst_LIBRARIES += worker/libworker.a
worker_libworker_a_CPPFLAGS = $(WORKER_CPPFLAGS)
worker_libworker_a_SOURCES = \
	%D%/buffer.c %D%/buffer.h \
	%D%/pool.c %D%/pool.h \
	%D%/range.c %D%/range.h \
	%D%/room.c %D%/room.h \
	%D%/segments.c %D%/segments.h

# ---- source ----
noinst_LIBRARIES += worker/libsource.a
worker_libsource_a_CPPFLAGS = $(WORKER_CPPFLAGS)
worker_libsource_a_SOURCES = \
	%D%/arena.c %D%/arena.h \
	%D%/hold.c %D%/hold.h \
	%D%/outlet.c %D%/outlet.h \
	%D%/pace.c %D%/pace.h \
	%D%/page.c %D%/page.h \
	%D%/reel.c %D%/reel.h \
	%D%/replay.c %D%/replay.h \
	%D%/source.c %D%/source.h
SOURCE_LIBS = worker/libsource.a $(WORKER_LIBS)

sbin_PROGRAMS += sluice-source
sluice_source_CPPFLAGS = $(WORKER_CPPFLAGS)
sluice_source_SOURCES  = %D%/source_main.c
sluice_source_LDADD    = $(SOURCE_LIBS)
