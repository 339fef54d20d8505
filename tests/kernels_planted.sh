#!/bin/sh
# kernels_planted.sh - do the nets catch fish? Bugs are planted into copies of the kernels, and each must be seen: contraction and flush-to-zero by
# the self-test, a missing barrier and a plain sum in place of an atomic by ThreadSanitizer on the emulated device, a write past the tile by ASan,
# a shift by too much by UBSan; kernels_oclgrind.sh and kernels_code.sh plant theirs themselves
set -u
case ${LAYER_CC:-} in *fsanitize*) echo "once, in a build without sanitizers, is enough"; exit 77 ;; esac
src=${SLUICE_SRCDIR:?}
dir=$(mktemp -d) || exit 99
trap 'rm -rf "$dir"' EXIT
failed=0
export TSAN_OPTIONS=history_size=7      # a report whose other half is forgotten is not made
input=$src/tests/fuzz/corpus/pages/two-links.tf
ok() { echo "ok   $1"; }
bad() { echo "not ok $1"; failed=1; }

copy() { # NAME: a copy of the source to be spoilt
    mkdir -p "$dir/$1"
    cp -R "$src/kernels" "$src/proto" "$dir/$1/"
    chmod -R u+w "$dir/$1"
    rm -rf "$dir/$1/kernels/gen" "$dir/$1/kernels/standalone" "$dir/$1/kernels/emulated"
}
build() { # NAME TARGET MAKE-ARGS...
    name=$1 target=$2
    shift 2
    make -C "$dir/$name/kernels" "$target" "$@" >"$dir/log" 2>&1 || { bad "$name does not build: $(tail -n 5 "$dir/log")"; return 1; }
}
run() { timeout 120 setarch -R "$@" >"$dir/out" 2>"$dir/err"; }

if grep -qw fma /proc/cpuinfo; then
    copy contract
    if build contract standalone CFLAGS="-O2 -mfma -ffp-contract=fast" KFLAGS="-std=gnu17 -D_GNU_SOURCE -I. -I../proto -Igen"; then
        if run "$dir/contract/kernels/standalone" reco -b cpu "$input"; then bad "contraction passed the self-test"
        elif grep -q "arithmetic self-test" "$dir/err"; then ok "contraction: refused by the self-test"; else bad "contraction: $(cat "$dir/err")"; fi
    fi
else
    echo "ok   contraction # SKIP this processor has no fused operation"
fi

copy flush
sed -i 's/^int main(.*/#include <immintrin.h>\n&/; s/return kernels_cmd/_mm_setcsr(_mm_getcsr() | 0x8040);\n    &/' "$dir/flush/kernels/main.c"
if [ "$(uname -m)" != x86_64 ]; then echo "ok   flush to zero # SKIP not x86-64"
elif build flush standalone CFLAGS=-O1; then
    if run "$dir/flush/kernels/standalone" reco -b cpu -j 1 "$input"; then bad "flush to zero passed the self-test"
    elif grep -q "arithmetic self-test" "$dir/err"; then ok "flush to zero: refused by the self-test"; else bad "flush to zero: $(cat "$dir/err")"; fi
fi

# the barrier behind the search for peaks
copy barrier
awk '/kc_is_peak\(cell, at\)/ { seen = 1 } seen == 1 && /K_END_ITEMS/ { sub(/K_END_ITEMS/, "}"); seen = 2 } { print }' "$src/kernels/cluster.inc" >"$dir/barrier/kernels/cluster.inc"
# group-wide sums without an atomic
copy atomic
sed -i 's/^#define K_ATOMIC_ADD_L(p, v) __atomic_fetch_add.*/#define K_ATOMIC_ADD_L(p, v) (*(p) += (u32)(v), *(p) - (u32)(v))/' "$dir/atomic/kernels/kdef.h"
for name in barrier atomic; do
    cmp -s "$src/kernels/kdef.h" "$dir/$name/kernels/kdef.h" && cmp -s "$src/kernels/cluster.inc" "$dir/$name/kernels/cluster.inc" && { bad "$name: nothing was planted"; continue; }
    build $name emulated CFLAGS="-O1 -g -fsanitize=thread" || continue
    seen=0
    for seed in $(seq 1 30); do
        export SLUICE_EMU_SEED="$seed"
        run "$dir/$name/kernels/emulated" reco -b emu --repeat 3 "$input"
        if grep -q 'ThreadSanitizer: data race' "$dir/err"; then seen=$seed; break; fi
    done
    if [ "$seen" -gt 0 ]; then ok "missing $name: seen by ThreadSanitizer with seed $seen"; else bad "missing $name: not seen: $(tail -n 5 "$dir/err")"; fi
done

copy tile
sed -i 's/cell\[b + time\[j\] + 8u - origin\] = /cell[b + K_TILE + time[j] + 8u - origin] = /' "$dir/tile/kernels/cluster.inc"
if cmp -s "$src/kernels/cluster.inc" "$dir/tile/kernels/cluster.inc"; then bad "tile: nothing was planted"
elif build tile standalone CFLAGS="-O1 -g -fsanitize=address"; then
    run "$dir/tile/kernels/standalone" reco -b cpu -j 1 "$input"
    if grep -q 'ERROR: AddressSanitizer: stack-buffer' "$dir/err"; then ok "write past the tile: seen by AddressSanitizer"; else bad "write past the tile: $(head -n 5 "$dir/err")"; fi
fi

copy shift
sed -i 's/        sum = kt_fold(sum, d \* 0.5f);/        sum ^= 1u << (one > 0.0f ? 40u + i : 0u);/' "$dir/shift/kernels/selftest.inc"
if cmp -s "$src/kernels/selftest.inc" "$dir/shift/kernels/selftest.inc"; then bad "shift: nothing was planted"
elif build shift standalone CFLAGS="-O1 -g -fsanitize=undefined"; then
    run "$dir/shift/kernels/standalone" reco -b cpu -j 1 "$input"
    if grep -q 'runtime error: shift exponent' "$dir/err"; then ok "shift by too much: seen by UndefinedBehaviorSanitizer"; else bad "shift: $(head -n 5 "$dir/err")"; fi
fi
exit $failed
