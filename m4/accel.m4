dnl accel.m4 - compilers for device code; neither is required
AC_ARG_WITH([cuda], [AS_HELP_STRING([--with-cuda=DIR], [where nvcc lies (or no)])], [], [with_cuda=auto])
AC_ARG_WITH([hip], [AS_HELP_STRING([--with-hip=DIR], [where hipcc lies (or no)])], [], [with_hip=auto])
AC_ARG_VAR([NVCC_ARCHS], [CUDA architectures, as in "75 80 90"])
AC_ARG_VAR([HIP_ARCHS], [HIP architectures, as in "gfx906 gfx908 gfx90a"])
AS_IF([test "x$NVCC_ARCHS" = x], [NVCC_ARCHS="75 80 90"])
AS_IF([test "x$HIP_ARCHS" = x], [HIP_ARCHS="gfx906 gfx908 gfx90a"])
AC_SUBST([NVCC]) AC_SUBST([HIPCC]) AC_SUBST([NVCC_GENCODE]) AC_SUBST([HIP_OFFLOAD])
NVCC_GENCODE= HIP_OFFLOAD=
for a in $NVCC_ARCHS; do
  NVCC_GENCODE="$NVCC_GENCODE -gencode arch=compute_$a,code=sm_$a"
  last=$a
done
NVCC_GENCODE="$NVCC_GENCODE -gencode arch=compute_$last,code=compute_$last"
for a in $HIP_ARCHS; do HIP_OFFLOAD="$HIP_OFFLOAD --offload-arch=$a"; done
AS_IF([test "x$with_cuda" != xno],
  [AC_PATH_PROG([NVCC], [nvcc], [], [$with_cuda/bin:$PATH:/usr/local/cuda/bin])])
AS_IF([test "x$with_hip" != xno],
  [AC_PATH_PROG([HIPCC], [hipcc], [], [$with_hip/bin:$PATH:/opt/rocm/bin])])
dnl A compiler that cannot make an empty kernel (nvcc without g++) counts as none.
AS_IF([test "x$NVCC" != x],
  [AC_MSG_CHECKING([whether nvcc works])
   echo 'extern "C" __global__ void k(int *p) { *p = 1; }' >conftest.cu
   AS_IF([$NVCC $NVCC_GENCODE -fatbin -o conftest.fatbin conftest.cu >/dev/null 2>&1], [AC_MSG_RESULT([yes])],
     [AC_MSG_RESULT([no]); NVCC=])
   rm -f conftest.cu conftest.fatbin])
AS_IF([test "x$HIPCC" != x],
  [AC_MSG_CHECKING([whether hipcc works])
   echo '#include <hip/hip_runtime.h>' >conftest.hip
   echo 'extern "C" __global__ void k(int *p) { *p = 1; }' >>conftest.hip
   AS_IF([$HIPCC -x hip $HIP_OFFLOAD --genco -o conftest.hsaco conftest.hip >/dev/null 2>&1], [AC_MSG_RESULT([yes])],
     [AC_MSG_RESULT([no]); HIPCC=])
   rm -f conftest.hip conftest.hsaco])
AM_CONDITIONAL([HAVE_NVCC], [test "x$NVCC" != x])
AM_CONDITIONAL([HAVE_HIPCC], [test "x$HIPCC" != x])
AC_MSG_NOTICE([device code: nvcc ${NVCC:-none}, hipcc ${HIPCC:-none}])
