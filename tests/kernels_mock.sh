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
if jq -e '.tfs[0].stages | map(.wanted == "auto" and .backend == "cuda" and .fallback == null and .device == "0000:40:00.0") | all' "$dir/json" >/dev/null; then ok "auto takes the GPU and says so"; else bad "auto: $(cat "$dir/json" "$dir/err")"; fi

# B68: a driver that hangs, or that kills who asks it, is named in time; the others answer
for how in "HANGS|did not answer within 2 s; process [0-9]*, which asked it, is ended" "KILLS|ended the process that asked it"; do
    begun=$(date +%s)
    export "MOCK_GPU_${how%%|*}=1"
    mock $prog devices --timeout 2 >"$dir/found" 2>&1
    rc=$?
    mock $prog devices --timeout 2 --json >"$dir/json" 2>&1
    unset "MOCK_GPU_${how%%|*}"
    if [ $rc -eq 0 ] && [ $(($(date +%s) - begun)) -lt 30 ] && grep -q "^cuda  *-  the driver ${how#*|}" "$dir/found" && grep -q "^hip  *-  the driver ${how#*|}" "$dir/found" &&
        grep -q '^opencl ' "$dir/found" && grep -q '^cpu .*GiB' "$dir/found" && jq -e '.devices | map(select(.backend == "cuda" and .usable == false and .id == null)) | length == 1' "$dir/json" >/dev/null
    then ok "B68, MOCK_GPU_${how%%|*}: named in time, the others answer"; else bad "B68, $how: $rc, $(($(date +%s) - begun)) s: $(cat "$dir/found" "$dir/json")"; fi
done
if mock $prog devices --timeout 601 >/dev/null 2>"$dir/err"; then bad "601 s were taken"
elif grep -q "0 to 600 seconds are wanted" "$dir/err"; then ok "a limit that is none"; else bad "601 s: $(cat "$dir/err")"; fi

# B71: eight cards of two classes, whose order by number is not that by address; card 2 is the bad one. Under every mask a device is what its address says,
# a card that the mask hides is not used in place of another, and a number is no name
export MOCK_GPU_DEVICES=8
card() { printf '0000:%02x:00.0' $((0x40 - $1)); }
class() { if [ $(($1 % 2)) -eq 1 ]; then echo sm_80; else echo sm_90; fi; }
for mask in 7,6,5,4,3,2,1,0 3,6,5,4; do
    export CUDA_VISIBLE_DEVICES=$mask
    want_list=$(for n in $(echo $mask | tr , ' '); do echo "$(card "$n") $(class "$n")"; done | sort)
    found_list=$(mock $prog devices --json | jq -r '.devices[] | select(.backend == "cuda") | .id + " " + .class' | sort)
    if [ "$found_list" = "$want_list" ]; then ok "B71, mask $mask: devices by address, each with its class"; else bad "B71, mask $mask: $found_list"; fi
    wrong=
    for n in 0 1 2 3 4 5 6 7; do
        used=$(mock $prog reco -w cluster -b cuda --device "$(card $n)" --json "$input" 2>"$dir/err" | jq -r '.tfs[0].stages[].device' | sort -u)
        case ,$mask, in
        *,$n,*) [ "$used" = "$(card $n)" ] || wrong="$wrong, $n: $used" ;;
        *) [ -z "$used" ] && grep -q "no device $(card $n)" "$dir/err" || wrong="$wrong, hidden $n: $used $(cat "$dir/err")" ;;
        esac
    done
    if [ -z "$wrong" ]; then ok "B71, mask $mask: the card asked for or none"; else bad "B71, mask $mask$wrong"; fi
done
unset CUDA_VISIBLE_DEVICES
for b in cuda gpu; do
    if mock $prog reco -b $b --device 2 "$input" >/dev/null 2>"$dir/err"; then bad "B71: -b $b took a number for a device"
    elif grep -q "no device 2" "$dir/err"; then ok "B71: a number names no device, -b $b"; else bad "B71: $(cat "$dir/err")"; fi
done
unset MOCK_GPU_DEVICES

# too little memory: smaller pieces, and in the end an error that says so
found=$(MOCK_GPU_MEMORY=300000 mock $prog reco -w cluster -b cuda --digest "$input" 2>"$dir/err" | cut -d ' ' -f 1)
if [ "$found" = "$want" ]; then ok "300 kB of device memory: in pieces"; else bad "300 kB: $found $(cat "$dir/err")"; fi
if MOCK_GPU_MEMORY=20000 mock $prog reco -w cluster -b cuda "$input" >/dev/null 2>"$dir/err"; then bad "20 kB of memory did"
elif grep -q "no device memory for" "$dir/err"; then ok "20 kB of device memory: refused"; else bad "20 kB: $(cat "$dir/err")"; fi

# two queues: what the drivers were asked for, in order, and what was done when
many=$dir/sim-9-1.tf
$prog simulate -o "$dir" --tracks 5 --orbits 1 --seed 9 >/dev/null || exit 99
want_many=$($prog reco -w cluster -b cpu --digest "$many" | cut -d ' ' -f 1)
for b in cuda hip; do
    rm -f "$dir/log"
    found=$(MOCK_GPU_LOG="$dir/log" mock $prog reco -w cluster -b $b --digest --set decode.batch=4K "$many" 2>"$dir/err" | cut -d ' ' -f 1)
    # between the counting of a batch and the filling of the same the next batch's pages are queued elsewhere, and the next count waits for them
    order=$(awk '$1 == "queued" && /k_decode_count/ { main = $2; counts++; if (counts > 1 && !waited) bad++; ahead = waited = 0 }
        $1 == "queued" && $3 == "copy-in" && counts && $2 != main { ahead++ }
        $1 == "queued" && $3 == "wait" && $2 == main { waited = 1 }
        $1 == "queued" && /k_decode_fill/ { if (ahead) overlapped++ } END { print counts, overlapped, bad + 0 }' "$dir/log")
    if [ "$found" = "$want_many" ] && echo "$order" | awk '{ exit !($1 > 20 && $2 == $1 - 1 && $3 == 0) }'; then ok "two queues, $b: $order (batches, copied ahead, not waited for)"
    else bad "two queues, $b: $order; $found, want $want_many; $(cat "$dir/err")"; fi
done
# without pinned memory of the driver's the copies go without the ring
found=$(MOCK_GPU_NO_HOST=1 mock $prog reco -w cluster -b cuda --digest --set decode.batch=4K "$many" 2>"$dir/err" | cut -d ' ' -f 1)
if [ "$found" = "$want_many" ]; then ok "no memory for a ring"; else bad "no memory for a ring: $found $(cat "$dir/err")"; fi
# larger than the device: in fragments
size=$(wc -c <"$many")
found=$(MOCK_GPU_MEMORY=$size mock $prog reco -w cluster -b cuda --digest "$many" 2>"$dir/err" | cut -d ' ' -f 1)
if [ "$found" = "$want_many" ]; then ok "a TF of $size bytes on a device of as many"; else bad "a TF larger than the device: $found $(cat "$dir/err")"; fi

# device code of another source is not taken
printf 'image\nsluice-blob 0123456789abcdef\n' >"$dir/cuda/kernels.fatbin"
if mock $prog reco -b cuda "$input" >/dev/null 2>"$dir/err"; then bad "a blob of another source was taken"
elif grep -q "was not made from this program's kernels" "$dir/err"; then ok "a blob of another source is refused"; else bad "blob: $(cat "$dir/err")"; fi

exit $failed
