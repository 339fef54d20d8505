#!/bin/sh
# kernels_same.sh - one answer, digits and clusters, on every backend: both instruction sets as two compilers make them with and without optimisation,
# the emulated device (three seeds, two numbers of threads), OpenCL
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

digests() { # PROGRAM ARGS...: those of digits and clusters, on one line
    prog=$1; shift
    # shellcheck disable=SC2086
    timeout 300 "$prog" reco -w cluster "$@" $inputs 2>"$dir/err" | awk '$1 == "digits" || $1 == "clusters" { print $3 }' | tr '\n' ' '
}
want=$(digests tests/unit/kernels_alone -b cpu -j 1 --isa v1)
[ "$(echo "$want" | wc -w)" -eq 4 ] || { echo "not ok cpu: $(cat "$dir/err")"; exit 1; }
same() { # NAME FOUND: the digests, and no report of a sanitizer
    if grep -q "Sanitizer\|runtime error" "$dir/err"; then echo "not ok $1: $(head -n 30 "$dir/err")"; failed=1
    elif [ "$2" = "$want" ]; then echo "ok   $1"; else echo "not ok $1: $2, want $want; $(cat "$dir/err")"; failed=1; fi
}
isas=v1
if tests/unit/kernels_alone devices | grep -q x86-64-v3; then
    isas="v1 v3"
    same "cpu x86-64-v3, 3 threads" "$(digests tests/unit/kernels_alone -b cpu -j 3 --isa v3)"
fi

# The kernels alone, made anew; everything else is the tree's.
for cc in gcc clang; do
    for level in 0 3; do
        if ! command -v $cc >/dev/null; then echo "ok   $cc -O$level # SKIP no $cc"; continue; fi
        case ${LAYER_CC:-} in *fsanitize*) echo "ok   $cc -O$level # SKIP built with a sanitizer"; continue ;; esac
        $cc -std=gnu17 -O$level -ffp-contract=off -fno-math-errno -I"$data/../kernels" -Ikernels "$data"/../kernels/main.c "$data"/../kernels/backend/cpu_v[13].c \
            kernels/libkernels.a proto/libtffile.a -lm -lpthread -ldl -o "$dir/made" || { echo "not ok $cc -O$level: does not build"; failed=1; continue; }
        for isa in $isas; do same "kernels by $cc -O$level, $isa" "$(digests "$dir/made" -b cpu -j 1 --isa "$isa")"; done
    done
done
for threads in 1 2; do
    for seed in 0 1 7; do
        SLUICE_EMU_SEED=$seed SLUICE_EMU_THREADS=$threads
        export SLUICE_EMU_SEED SLUICE_EMU_THREADS
        same "emulated device, seed $seed, $threads threads" "$(digests tests/unit/kernels_emulated -b emu)"
    done
done
same "decode on cpu, cluster emulated" "$(digests tests/unit/kernels_emulated -b decode=cpu,cluster=emu)"
same "decode emulated, cluster on cpu" "$(digests tests/unit/kernels_emulated -b cpu,decode=emu)"

# With -j 1 one thread does the work: no other has more than a fifth of its time.
one_thread() {
    [ "$(nproc)" -ge 2 ] || { echo "ok   opencl -j 1 # SKIP one processor"; return; }
    tests/unit/kernels_alone reco -w cluster -b opencl -j 1 --repeat 100000 --digest "$dir/sim-4-1.tf" >/dev/null 2>"$dir/err" &
    pid=$! until=$(($(date +%s) + 60)) ticks="0 0"
    while [ "${ticks#* }" -lt 60 ] && kill -0 $pid 2>/dev/null && [ "$(date +%s)" -lt $until ]; do
        ticks=$(sed 's/.*) //' /proc/$pid/task/*/stat 2>/dev/null | awk '{ print $12 }' | sort -n | tail -n 2 | tr '\n' ' ' | sed 's/ $//')
        sleep 0.1
    done
    kill $pid
    wait $pid 2>/dev/null
    if [ "${ticks#* }" -ge 60 ] && [ $((${ticks% *} * 5)) -le "${ticks#* }" ]; then echo "ok   opencl -j 1: one thread works"
    else echo "not ok opencl -j 1: $ticks hundredths of a second of its two busiest threads; $(cat "$dir/err")"; failed=1; fi
}

# OpenCL: compiled for the host by PoCL. Its address space is its own business: not under sanitizers.
if ! tests/unit/kernels_alone devices | grep -q '^opencl .*opencl'; then
    echo "ok   opencl # SKIP no OpenCL device: $(tests/unit/kernels_alone devices | grep '^opencl')"
elif nm tests/unit/kernels_alone | grep -q '__asan_init\|__tsan_init'; then
    echo "ok   opencl # SKIP built with a sanitizer"
else
    same "opencl" "$(digests tests/unit/kernels_alone -b opencl)"
    same "opencl, 1 thread" "$(digests tests/unit/kernels_alone -b opencl -j 1)"
    ${CC:-cc} -O1 -shared -fPIC -DBK_OCL_NARROW -I"$data/../kernels" -I"$data/../kernels/backend" -Ikernels "$data/../kernels/backend/bk_ocl.c" -o "$dir/bk_opencl.so" -ldl || failed=1
    same "opencl, in pieces as on a GPU" "$(SLUICE_BACKENDS=$dir digests tests/unit/kernels_alone -b opencl)"
    same "decode on cpu, cluster on opencl" "$(digests tests/unit/kernels_alone -b decode=cpu,cluster=opencl)"
    one_thread
fi
exit $failed
