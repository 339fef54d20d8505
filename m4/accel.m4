dnl accel.m4 - compilers for device code; neither is required
AC_ARG_WITH([cuda], [AS_HELP_STRING([--with-cuda=DIR], [where nvcc lies (or no)])], [], [with_cuda=auto])
AC_ARG_WITH([hip], [AS_HELP_STRING([--with-hip=DIR], [where hipcc or a clang for amdgcn lies (or no)])], [], [with_hip=auto])
AC_ARG_VAR([NVCC_ARCHS], [CUDA architectures, as in "75 80 90"])
AC_ARG_VAR([HIP_ARCHS], [HIP architectures, as in "gfx906 gfx908 gfx90a"])
AS_IF([test "x$NVCC_ARCHS" = x], [NVCC_ARCHS="75 80 90"])
AS_IF([test "x$HIP_ARCHS" = x], [HIP_ARCHS="gfx906 gfx908 gfx90a"])
AC_ARG_VAR([HIPCC], [compiler of AMD device code: hipcc, or a clang with the target amdgcn])
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
dnl A compiler that cannot make an empty kernel (nvcc without g++) counts as none.
AS_IF([test "x$NVCC" != x],
  [AC_MSG_CHECKING([whether nvcc works])
   echo 'extern "C" __global__ void k(int *p) { *p = 1; }' >conftest.cu
   AS_IF([$NVCC $NVCC_GENCODE -fatbin -o conftest.fatbin conftest.cu >/dev/null 2>&1], [AC_MSG_RESULT([yes])],
     [AC_MSG_RESULT([no]); NVCC=])
   rm -f conftest.cu conftest.fatbin])
dnl For AMD any clang that has the target, its linker and its bundler is enough; hipcc is one.
HIP_MODE="-x hip -std=c++14 --cuda-device-only -nogpuinc -nogpulib -Wno-unused-command-line-argument"
AC_SUBST([HIP_MODE])
AS_IF([test "x$with_hip" != xno],
  [AC_MSG_CHECKING([for a compiler of AMD device code])
   echo 'extern "C" __attribute__((global)) void k(int *p) { *p = 1; }' >conftest.hip
   mkdir conftest.tmp; dnl clang leaves a folder there
   hip_path=$with_hip/bin:$PATH:/opt/rocm/bin:/opt/rocm/llvm/bin
   for c in ${HIPCC:-hipcc amdclang++ clang clang-19 clang-18 clang-17 clang-16 clang-15 clang-14}; do
     AS_IF([TMPDIR=`pwd`/conftest.tmp PATH=$hip_path $c $HIP_MODE $HIP_OFFLOAD -o conftest.hsaco conftest.hip >/dev/null 2>&1],
       [HIPCC=`PATH=$hip_path command -v $c`; break], [HIPCC=])
   done
   AC_MSG_RESULT([${HIPCC:-none}])
   rm -rf conftest.hip conftest.hsaco conftest.tmp])
AM_CONDITIONAL([HAVE_NVCC], [test "x$NVCC" != x])
AM_CONDITIONAL([HAVE_HIPCC], [test "x$HIPCC" != x])
AC_MSG_NOTICE([device code: CUDA by ${NVCC:-none}, HIP by ${HIPCC:-none}])
