# kernels/ - the reconstruction; sees proto/tf_file only. Builds alone too: kernels/Makefile.
KERNELS_CPPFLAGS = -I$(srcdir)/kernels -I$(srcdir)/proto $(XXHASH_CFLAGS)
KERNELS_LIBS     = kernels/libkernels.a proto/libtffile.a -lm -lpthread -ldl

noinst_LIBRARIES += kernels/libkernels.a
kernels_libkernels_a_CPPFLAGS = $(KERNELS_CPPFLAGS)
kernels_libkernels_a_CFLAGS   = $(AM_CFLAGS) -ffp-contract=off -fno-fast-math -fno-math-errno
kernels_libkernels_a_SOURCES  = \
	%D%/kerr.c %D%/kerr.h \
	%D%/input.c %D%/input.h %D%/kgeo.h \
	%D%/kdev.c %D%/kdev.h \
	%D%/stage_decode.c %D%/stage_cluster.c %D%/stage.h \
	%D%/result.c %D%/result.h \
	%D%/workflow.c %D%/workflow.h \
	%D%/pipeline.c %D%/pipeline.h \
	%D%/cmd.c %D%/cmd.h %D%/cmd_part.h %D%/cmd_reco.c %D%/cmd_tf.c %D%/cmd_list.c \
	%D%/simulate/encode.c %D%/simulate/encode.h \
	%D%/backend/bk.h %D%/backend/bk_load.c %D%/backend/bk_load.h \
	%D%/backend/bk_cpu.c %D%/backend/cpu_kernels.h %D%/backend/cpu_v1.c %D%/backend/cpu_v3.c

KERNEL_FILES = \
	%D%/all.k %D%/kdef.h %D%/ktypes.h %D%/klist.def \
	%D%/selftest.inc %D%/scan.inc %D%/decode.inc %D%/cluster.inc

# What the compiler's dependencies do not tell at the first build.
EXTRA_DIST += $(KERNEL_FILES) %D%/Makefile %D%/main.c
