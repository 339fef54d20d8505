#!/bin/sh
# kernels_mock.sh - the host code of the backends cuda and hip against look-alikes of their drivers (this proves host code only, no device code)
set -u
cd "${SLUICE_BUILDDIR:?}" || exit 99
src=${SLUICE_SRCDIR:?}
dir=$(mktemp -d) || exit 99
trap 'rm -rf "$dir"' EXIT
failed=0
prog=tests/unit/kernels_alone
input=$src/tests/fuzz/corpus/pages/two-links.tf
ok() { echo "ok   $1"; }
bad() { echo "not ok $1"; failed=1; }

hash=$(sed -n 's/^#define K_SOURCE_HASH "\(.*\)"/\1/p' kernels/k_source.h)
mkdir "$dir/cuda" "$dir/hip"
for f in cuda/kernels.fatbin hip/kernels.hsaco; do printf 'image\nsluice-blob %s\n' "$hash" >"$dir/$f"; done
cc=${LAYER_CC:-cc}
# shellcheck disable=SC2086
$cc -std=gnu17 -O1 -g -ffp-contract=off -shared -fPIC -DMOCK_CUDA -I"$src/kernels" "$src/tests/mock/mock_gpu.c" -o "$dir/libcuda.so.1" -lpthread -lm &&
$cc -std=gnu17 -O1 -g -ffp-contract=off -shared -fPIC -I"$src/kernels" "$src/tests/mock/mock_gpu.c" -o "$dir/libamdhip64.so.5" -lpthread -lm || exit 99
mock() { LD_LIBRARY_PATH="$dir${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" SLUICE_BLOBS="$dir" timeout 120 "$@"; }

want=$($prog reco -w cluster -b cpu --digest "$input" | cut -d ' ' -f 1)
for b in cuda hip gpu decode=cuda,cluster=hip decode=cpu,cluster=gpu; do
    found=$(mock $prog reco -w cluster -b $b --digest --repeat 3 "$input" 2>"$dir/err" | cut -d ' ' -f 1)
    if [ -n "$found" ] && [ "$found" = "$want" ] && ! grep -q Sanitizer "$dir/err"; then ok "host code, -b $b"
    else bad "host code, -b $b: $found, want $want: $(cat "$dir/err")"; fi
done

# auto takes what is there and says so
mock $prog reco -w cluster -b auto --json "$input" >"$dir/json" 2>"$dir/err"
if grep -q '"backend": "cuda", "device": "0000:40:00.0"' "$dir/json"; then ok "auto takes the GPU and says so"; else bad "auto: $(cat "$dir/json" "$dir/err")"; fi

# B71: devices are named by their address; by number they come in the opposite order
if MOCK_GPU_DEVICES=3 mock $prog devices | grep -c '^cuda  *0000:' | grep -q 3; then ok "B71: three devices by address"; else bad "B71 devices"; fi
MOCK_GPU_DEVICES=3 mock $prog reco -w cluster -b cuda --device 0000:3f:00.0 --json "$input" >"$dir/json" 2>"$dir/err"
if grep -q '"device": "0000:3f:00.0"' "$dir/json" && grep -q "$want" "$dir/json"; then ok "B71: the device asked for is the one used"; else bad "B71: $(cat "$dir/json" "$dir/err")"; fi
if MOCK_GPU_DEVICES=2 mock $prog reco -b cuda --device 0000:3e:00.0 "$input" >/dev/null 2>"$dir/err"; then bad "B71: a device that is not there"
elif grep -q "no device 0000:3e:00.0" "$dir/err"; then ok "B71: a device that is not there is refused"; else bad "B71: $(cat "$dir/err")"; fi

# too little memory: smaller pieces, and in the end an error that says so
found=$(MOCK_GPU_MEMORY=300000 mock $prog reco -w cluster -b cuda --digest "$input" 2>"$dir/err" | cut -d ' ' -f 1)
if [ "$found" = "$want" ]; then ok "300 kB of device memory: in pieces"; else bad "300 kB: $found $(cat "$dir/err")"; fi
if MOCK_GPU_MEMORY=20000 mock $prog reco -w cluster -b cuda "$input" >/dev/null 2>"$dir/err"; then bad "20 kB of memory did"
elif grep -q "no device memory for" "$dir/err"; then ok "20 kB of device memory: refused"; else bad "20 kB: $(cat "$dir/err")"; fi

# device code of another source is not taken
printf 'image\nsluice-blob 0123456789abcdef\n' >"$dir/cuda/kernels.fatbin"
if mock $prog reco -b cuda "$input" >/dev/null 2>"$dir/err"; then bad "a blob of another source was taken"
elif grep -q "was not made from this program's kernels" "$dir/err"; then ok "a blob of another source is refused"; else bad "blob: $(cat "$dir/err")"; fi

exit $failed
