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
