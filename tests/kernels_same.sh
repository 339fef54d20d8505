#!/bin/sh
# kernels_same.sh - one answer on every backend: both instruction sets, the emulated device (three seeds, two numbers of threads), OpenCL
set -u
cd "${SLUICE_BUILDDIR:?}" || exit 99
data=${SLUICE_SRCDIR:?}/tests
dir=$(mktemp -d) || exit 99
trap 'rm -rf "$dir"' EXIT
failed=0
export POCL_CACHE_DIR="$dir/pocl"
mkdir "$dir/pocl"

# A TF of two links from the fuzz corpus, and one sector of a simulated TF: small enough for an emulated device.
tests/unit/kernels_alone simulate -o "$dir" --tracks 3 --orbits 1 --seed 4 >/dev/null || exit 99
inputs="$data/fuzz/corpus/pages/two-links.tf $dir/sim-4-1.tf"

digests() { # PROGRAM ARGS...: one line
    prog=$1; shift
    # shellcheck disable=SC2086
    timeout 300 "$prog" reco -w cluster --digest "$@" $inputs 2>"$dir/err" | cut -d ' ' -f 1 | tr '\n' ' '
}
want=$(digests tests/unit/kernels_alone -b cpu -j 1 --isa v1)
[ "$(echo "$want" | wc -w)" -eq 2 ] || { echo "not ok cpu: $(cat "$dir/err")"; exit 1; }
same() { # NAME FOUND: the digests, and no report of a sanitizer
    if grep -q "Sanitizer\|runtime error" "$dir/err"; then echo "not ok $1: $(head -n 30 "$dir/err")"; failed=1
    elif [ "$2" = "$want" ]; then echo "ok   $1"; else echo "not ok $1: $2, want $want; $(cat "$dir/err")"; failed=1; fi
}
if tests/unit/kernels_alone devices | grep -q x86-64-v3; then
    same "cpu x86-64-v3, 3 threads" "$(digests tests/unit/kernels_alone -b cpu -j 3 --isa v3)"
fi
for threads in 1 2; do
    for seed in 0 1 7; do
        SLUICE_EMU_SEED=$seed SLUICE_EMU_THREADS=$threads
        export SLUICE_EMU_SEED SLUICE_EMU_THREADS
        same "emulated device, seed $seed, $threads threads" "$(digests tests/unit/kernels_emulated -b emu)"
    done
done
same "decode on cpu, cluster emulated" "$(digests tests/unit/kernels_emulated -b decode=cpu,cluster=emu)"
same "decode emulated, cluster on cpu" "$(digests tests/unit/kernels_emulated -b cpu,decode=emu)"

# OpenCL: compiled for the host by PoCL. Its address space is its own business: not under sanitizers.
if ! tests/unit/kernels_alone devices | grep -q '^opencl .*opencl'; then
    echo "ok   opencl # SKIP no OpenCL device: $(tests/unit/kernels_alone devices | grep '^opencl')"
elif nm tests/unit/kernels_alone | grep -q '__asan_init\|__tsan_init'; then
    echo "ok   opencl # SKIP built with a sanitizer"
else
    same "opencl" "$(digests tests/unit/kernels_alone -b opencl)"
    same "decode on cpu, cluster on opencl" "$(digests tests/unit/kernels_alone -b decode=cpu,cluster=opencl)"
fi
exit $failed
