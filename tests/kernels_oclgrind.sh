#!/bin/sh
# kernels_oclgrind.sh - the OpenCL kernels, item by item in a checker: no race, no access out of bounds, and the result is the cpu's; a missing barrier, a
# plain sum in place of an atomic and a write past the tile are seen. The input is tiny: the checker is ten thousand times slower than a device.
set -u
case ${LAYER_CC:-} in *fsanitize*) echo "once, in a build without sanitizers, is enough"; exit 77 ;; esac
rt=$(find /usr/lib -name liboclgrind-rt-icd.so 2>/dev/null | head -n 1)
[ -n "$rt" ] || { echo "no oclgrind"; exit 77; }
cd "${SLUICE_BUILDDIR:?}" || exit 99
src=${SLUICE_SRCDIR:?}
dir=$(mktemp -d) || exit 99
trap 'rm -rf "$dir"' EXIT
failed=0
ok() { echo "ok   $1"; }
bad() { echo "not ok $1"; failed=1; }
prog=tests/unit/kernels_alone
input=$src/tests/fuzz/corpus/pages/two-links.tf
hash=$(sed -n 's/^#define K_SOURCE_HASH "\(.*\)"/\1/p' kernels/k_source.h)
want=$($prog reco -w cluster -b cpu --digest "$input" | cut -d ' ' -f 1)
mkdir "$dir/icd"
echo "$rt" >"$dir/icd/oclgrind.icd"

copy() { # NAME: the kernels, to be spoilt
    mkdir -p "$dir/$1"
    cp "$src"/kernels/*.h "$src"/kernels/*.inc "$dir/$1"
    chmod u+w "$dir/$1"/*
}
check() { # NAME: runs them in the checker; what it says is in $dir/said
    sh "$src/kernels/embed.sh" "$dir/$1" "$dir/$1/k_source.h"
    sed -i "s/^#define K_SOURCE_HASH .*/#define K_SOURCE_HASH \"$hash\"/" "$dir/$1/k_source.h"
    # the checker does not know what the compiler's optimisation makes of a rotation
    ${CC:-cc} -O1 -shared -fPIC -DBK_OCL_OCLGRIND -DBUILD_OPTIONS='"-cl-std=CL1.2 -cl-opt-disable"' -I"$dir/$1" -I"$src/kernels" "$src/kernels/backend/bk_ocl.c" \
        -o "$dir/$1/bk_opencl.so" -ldl || exit 99
    : >"$dir/said"
    found=$(OCL_ICD_VENDORS="$dir/icd" OCLGRIND_DATA_RACES=1 OCLGRIND_LOG="$dir/said" SLUICE_BACKENDS="$dir/$1" \
        timeout "${2:-120}" "$prog" reco -w cluster -b opencl --digest "$input" 2>"$dir/err" | cut -d ' ' -f 1)
}
seen() { # NAME WORDS
    check "$1" 120
    if grep -q -e "$2" "$dir/said"; then ok "planted $1: seen"; else bad "planted $1: not seen; $found, $(head -n 5 "$dir/said" "$dir/err")"; fi
}

copy clean
check clean
if [ -n "$found" ] && [ "$found" = "$want" ] && [ ! -s "$dir/said" ]; then ok "no race, nothing out of bounds, the result of the cpu"
else bad "clean kernels: $found, want $want; $(head -n 20 "$dir/said" "$dir/err")"; fi

# the barrier behind the search for peaks
copy barrier
awk '/kc_is_peak\(cell, at\)/ { seen = 1 } seen == 1 && /K_END_ITEMS/ { sub(/K_END_ITEMS/, "} while (0); }"); seen = 2 } { print }' "$src/kernels/cluster.inc" >"$dir/barrier/cluster.inc"
seen barrier 'data race'
copy atomic
sed -i '/if defined(K_ON_OCL)/,/CUDA and HIP/s/^#define K_ATOMIC_ADD_L(p, v) .*/#define K_ATOMIC_ADD_L(p, v) (*(p) += (u32)(v), *(p) - (u32)(v))/' "$dir/atomic/kdef.h"
seen atomic 'data race'
copy tile
sed -i 's/cell\[b + time\[j\] + 8u - origin\] = /cell[b + 2u * K_TILE + time[j] + 8u - origin] = /' "$dir/tile/cluster.inc"
seen tile 'Invalid write'
exit $failed
