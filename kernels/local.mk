# kernels/ - the reconstruction; sees proto/tf_file only. Builds alone too: kernels/Makefile.
KERNELS_PLACES   = -DK_LIBEXECDIR='"$(libexecdir)"' -DK_PLUGIN_DIR='"$(pkglibdir)"' -DK_BLOB_DIR='"$(pkgdatadir)"'
KERNELS_CPPFLAGS = -I$(srcdir)/kernels -I$(builddir)/kernels -I$(srcdir)/proto $(XXHASH_CFLAGS)
KERNELS_LIBS     = kernels/libkernels.a proto/libtffile.a -lm -lpthread -ldl

noinst_LIBRARIES += kernels/libkernels.a
kernels_libkernels_a_CPPFLAGS = $(KERNELS_CPPFLAGS) $(KERNELS_PLACES)
# Never slower than -O1 unless it is told to be: it is where the time goes.
kernels_libkernels_a_CFLAGS   = $(AM_CFLAGS) -O1 -ffp-contract=off -fno-fast-math -fno-math-errno
kernels_libkernels_a_SOURCES  = \
	%D%/kerr.c %D%/kerr.h \
	%D%/input.c %D%/input.h %D%/kgeo.h \
	%D%/kdev.c %D%/kdev.h %D%/khost.c %D%/khost.h \
	%D%/stage_decode.c %D%/stage_cluster.c %D%/stage.h %D%/stage_devices.c %D%/stage_devices.h \
	%D%/result.c %D%/result.h \
	%D%/workflow.c %D%/workflow.h \
	%D%/pipeline.c %D%/pipeline.h \
	%D%/cmd.c %D%/cmd.h %D%/cmd_part.h %D%/cmd_reco.c %D%/cmd_tf.c %D%/cmd_list.c %D%/cmd_compare.c \
	%D%/compare.c %D%/compare.h \
	%D%/detect.c %D%/detect.h \
	%D%/simulate/encode.c %D%/simulate/encode.h \
	%D%/simulate/simulate.c %D%/simulate/simulate.h %D%/simulate/truth.c \
	%D%/simulate/event.c %D%/simulate/event.h %D%/simulate/track.c %D%/simulate/track.h \
	%D%/simulate/pads.c %D%/simulate/pads.h %D%/simulate/sim_rng.c %D%/simulate/sim_rng.h \
	%D%/cmd_simulate.c \
	%D%/backend/bk.h %D%/backend/bk_load.c %D%/backend/bk_load.h \
	%D%/backend/bk_place.c %D%/backend/bk_place.h \
	%D%/backend/bk_cpu.c %D%/backend/cpu_kernels.h %D%/backend/cpu_v1.c %D%/backend/cpu_v3.c
nodist_kernels_libkernels_a_SOURCES = kernels/k_source.h

# Backends that need a driver: opened at run time, built everywhere, for they need nothing to build.
PLUGIN_LDFLAGS = $(AM_LDFLAGS) -module -avoid-version -shared -no-undefined
pkglib_LTLIBRARIES = kernels/bk_opencl.la kernels/bk_cuda.la kernels/bk_hip.la
kernels_bk_opencl_la_SOURCES  = %D%/backend/bk_ocl.c %D%/backend/bk.h
kernels_bk_opencl_la_CPPFLAGS = $(KERNELS_CPPFLAGS)
kernels_bk_opencl_la_LDFLAGS  = $(PLUGIN_LDFLAGS)
kernels_bk_opencl_la_LIBADD   = -ldl
kernels_bk_cuda_la_SOURCES    = %D%/backend/bk_gpu.c %D%/backend/bk_place.c %D%/backend/bk.h %D%/backend/bk_place.h
kernels_bk_cuda_la_CPPFLAGS   = $(KERNELS_CPPFLAGS) $(KERNELS_PLACES) -DBK_CUDA
kernels_bk_cuda_la_LDFLAGS    = $(PLUGIN_LDFLAGS)
kernels_bk_cuda_la_LIBADD     = -ldl
kernels_bk_hip_la_SOURCES     = $(kernels_bk_cuda_la_SOURCES)
kernels_bk_hip_la_CPPFLAGS    = $(KERNELS_CPPFLAGS) $(KERNELS_PLACES)
kernels_bk_hip_la_LDFLAGS     = $(PLUGIN_LDFLAGS)
kernels_bk_hip_la_LIBADD      = -ldl

BUILT_SOURCES += kernels/k_source.h
kernels/backend/libkernels_a-bk_load.$(OBJEXT) kernels/backend/bk_opencl_la-bk_ocl.lo \
kernels/backend/bk_cuda_la-bk_gpu.lo kernels/backend/bk_hip_la-bk_gpu.lo: kernels/k_source.h
CLEANFILES += kernels/k_source.h
kernels/k_source.h: $(KERNEL_FILES) %D%/embed.sh
	$(AM_V_GEN)$(MKDIR_P) kernels && $(SHELL) $(srcdir)/kernels/embed.sh $(srcdir)/kernels $@

KERNEL_FILES = \
	%D%/all.k %D%/kdef.h %D%/ksqrt.inc %D%/ktypes.h %D%/klist.def \
	%D%/selftest.inc %D%/scan.inc %D%/decode.inc %D%/cluster.inc

# What the compiler's dependencies do not tell at the first build.
EXTRA_DIST += $(KERNEL_FILES) %D%/Makefile %D%/main.c %D%/main_emu.c %D%/bench.c %D%/embed.sh \
	%D%/backend/bk_emu.c %D%/backend/bk_emu.h

# Device code, where its compiler is there. The last line of a blob says which source it was made from.
BLOB_STAMP = sed -n 's/^\#define K_SOURCE_HASH "\(.*\)"/sluice-blob \1/p' kernels/k_source.h
NVCC_FLAGS = -x cu -std=c++14 -O3 --fmad=false --prec-div=true --prec-sqrt=true --ftz=false
HIPCC_FLAGS = $(HIP_MODE) -O3 -ffp-contract=off -fhip-fp32-correctly-rounded-divide-sqrt -fno-gpu-flush-denormals-to-zero
if HAVE_NVCC
cudablobdir = $(pkgdatadir)/cuda
nodist_cudablob_DATA = cuda/kernels.fatbin
CLEANFILES += cuda/kernels.fatbin
cuda/kernels.fatbin: kernels/k_source.h
	$(AM_V_GEN)$(MKDIR_P) cuda && $(NVCC) $(NVCC_FLAGS) $(NVCC_GENCODE) -I$(srcdir)/kernels -fatbin -o $@.tmp $(srcdir)/kernels/all.k
	$(AM_V_at){ echo; $(BLOB_STAMP); } >>$@.tmp && mv $@.tmp $@
endif
if HAVE_HIPCC
hipblobdir = $(pkgdatadir)/hip
nodist_hipblob_DATA = hip/kernels.hsaco
CLEANFILES += hip/kernels.hsaco
hip/kernels.hsaco: kernels/k_source.h
	$(AM_V_GEN)tmp=`mktemp -d` && $(MKDIR_P) hip && { TMPDIR=$$tmp $(HIPCC) $(HIPCC_FLAGS) $(HIP_OFFLOAD) -I$(srcdir)/kernels -o $@.tmp $(srcdir)/kernels/all.k; rc=$$?; \
	  rm -rf "$$tmp"; exit $$rc; }                  # it leaves a folder in TMPDIR
	$(AM_V_at){ echo; $(BLOB_STAMP); } >>$@.tmp && mv $@.tmp $@
endif
dist_doc_DATA += doc/benchmarks.md
