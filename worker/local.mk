# worker/ - the data path; sees kernels (the reconstruction program only), proto, base

# ---- worker and reconstruction process ----
WORKER_CPPFLAGS = $(PROTO_CPPFLAGS) $(HWLOC_CFLAGS) -I$(srcdir)/worker -DLIBEXECDIR='"$(libexecdir)"'
WORKER_LIBS     = worker/libworker.a $(PROTO_LIBS) $(HWLOC_LIBS) $(BASE_LIBS)

noinst_LIBRARIES += worker/libworker.a
worker_libworker_a_CPPFLAGS = $(WORKER_CPPFLAGS)
worker_libworker_a_SOURCES = \
	%D%/buffer.c %D%/buffer.h \
	%D%/check.c %D%/check.h \
	%D%/crash.c %D%/crash.h \
	%D%/deliver.c %D%/deliver.h %D%/outfile.c %D%/outplace.c %D%/outplace.h %D%/outpublish.c %D%/outname.c %D%/outname.h %D%/outsweep.c \
	%D%/device.c %D%/device.h %D%/device_part.h %D%/device_talk.c %D%/device_show.c %D%/device_nice.c %D%/device_park.c \
	%D%/fence.c %D%/fence.h \
	%D%/gpus.c %D%/gpus.h \
	%D%/held.c %D%/held.h \
	%D%/intake.c %D%/intake.h \
	%D%/link.c %D%/link.h \
	%D%/maps.c %D%/maps.h \
	%D%/marked.c %D%/marked.h \
	%D%/outcheck.c %D%/outcheck.h \
	%D%/place.c %D%/place.h \
	%D%/pool.c %D%/pool.h \
	%D%/priority.c %D%/priority.h \
	%D%/pull.c %D%/pull.h \
	%D%/query.c %D%/query.h \
	%D%/range.c %D%/range.h \
	%D%/report.c %D%/report.h \
	%D%/resize.c %D%/resize.h \
	%D%/room.c %D%/room.h %D%/hugetlb.c %D%/hugetlb.h \
	%D%/segments.c %D%/segments.h \
	%D%/times.c %D%/times.h \
	%D%/userio.c %D%/userio.h \
	%D%/watch.c %D%/watch.h \
	%D%/wire.c %D%/wire.h \
	%D%/work.c %D%/work.h \
	%D%/worker.c %D%/worker.h

sbin_PROGRAMS += sluice-worker
sluice_worker_CPPFLAGS = $(WORKER_CPPFLAGS)
sluice_worker_SOURCES = %D%/main.c
sluice_worker_LDADD = $(WORKER_LIBS)

libexec_PROGRAMS += sluice-reco
sluice_reco_CPPFLAGS = $(WORKER_CPPFLAGS) $(KERNELS_CPPFLAGS)
sluice_reco_SOURCES = %D%/reco_main.c %D%/attach.c %D%/attach.h %D%/usage.c %D%/usage.h
sluice_reco_LDADD = $(WORKER_LIBS) $(KERNELS_LIBS)

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
