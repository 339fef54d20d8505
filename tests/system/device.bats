#!/usr/bin/env bats
# A mark on one device of a node takes that device out and no other.
load ../lib

setup() {
  farm_setup
  mkdir -p "$FARM/farm" "$FARM/shm"
  [[ $BATS_TEST_DESCRIPTION != *driver* ]] || return 0
  cat >"$FARM/sluice.conf" <<CONF
class pair { devices = 2  shm = 32M  nominal_ms = 40 }
node "n1" { class = pair }
CONF
  start sluiced -- sluiced --config "$FARM/sluice.conf" --state "$FARM/state" --socket "$SLUICE_SOCKET" --log "$FARM/sluiced.log"
  start worker -- sluice-worker --server "unix:$SLUICE_SOCKET" --node n1 --class pair --config "$FARM/sluice.conf" \
    --run-dir "$FARM/run" --shm-dir "$FARM/shm" --shm 32M
  wait_until 10 is '.nodes[] | select(.name == "n1") | .usable' true sluice nodes
}
teardown() { farm_teardown; }

devices_of() { sluice run tfs "$1" --settled --json | jq -r '[.tfs[].device] | unique | join(",")'; }

@test "a marked device gets nothing new, the node works on with the other; cleared, it works again" {
  first=$(sluice nodes --json | jq -r '.nodes[0].devices[0].serial')
  other=$(sluice nodes --json | jq -r '.nodes[0].devices[1].serial')
  sluice mark n1 "ECC errors" --gpu "$first"
  [ "$(sluice nodes --json | jq -r '.nodes[0] | [.usable, .state, .why[0]] | join(" ")')" = "true idle MarkedByOperator" ]
  sluice node show n1 >"$FARM/page"
  grep -qE '^n1 +idle, takes work \(1 of 2 devices: MarkedByOperator\)$' "$FARM/page"
  grep -qE '^device +[^ ]+: marked,' "$FARM/page"
  [ "$(grep -cE '^device +[^ ]+: free,' "$FARM/page")" -eq 1 ]
  sluice check
  sluice replay "$(sample 2)" --loop 8 --name marked
  [ "$(devices_of 1)" = "$other" ]
  sluice clear n1 "swapped"
  sluice replay "$(sample 2)" --loop 8 --name cleared
  [ "$(devices_of 2)" = "$first,$other" ]
}

@test "with both devices marked the node takes no work" {
  mapfile -t serials < <(sluice nodes --json | jq -r '.nodes[0].devices[].serial')
  sluice mark n1 "the first is bad" --gpu "${serials[0]}"
  sluice mark n1 "the other, too" --gpu "${serials[1]}"
  [ "$(sluice nodes --json | jq -r '.nodes[0] | [.usable, .state] | join(" ")')" = "false bad" ]
  run sluice mark n1 "no such device" --gpu GPU-none
  [ "$status" -eq 3 ]
}

# mock_driver: a look-alike of NVIDIA's driver and device code for it in $FARM/driver.
mock_driver() {
  local hash
  hash=$(sed -n 's/^#define K_SOURCE_HASH "\(.*\)"/\1/p' "$SLUICE_BUILDDIR/kernels/k_source.h")
  mkdir -p "$FARM/driver/cuda"
  printf 'image\nsluice-blob %s\n' "$hash" >"$FARM/driver/cuda/kernels.fatbin"
  # shellcheck disable=SC2086
  ${LAYER_CC:-cc} -std=gnu17 -O1 -g -ffp-contract=off -shared -fPIC -DMOCK_CUDA -I"$SLUICE_SRCDIR/kernels" "$SLUICE_SRCDIR/tests/mock/mock_gpu.c" \
    -o "$FARM/driver/libcuda.so.1" -lpthread -lm
}

# farm_on_mock CONF [VARIABLE=VALUE...]: node n1 with a GPU of that driver; CONF is its worker section.
farm_on_mock() {
  printf 'class card { devices = 1 shm = 32M gpu_arch = sm_90 }\nnode "n1" { class = card }\nworker { %s }\n' "$1" >"$FARM/sluice.conf"
  start sluiced -- sluiced --config "$FARM/sluice.conf" --state "$FARM/state" --socket "$SLUICE_SOCKET" --log "$FARM/sluiced.log"
  start worker env "LD_LIBRARY_PATH=$FARM/driver${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" "SLUICE_BLOBS=$FARM/driver" "${@:2}" -- sluice-worker \
    --server "unix:$SLUICE_SOCKET" --node n1 --class card --config "$FARM/sluice.conf" --run-dir "$FARM/run" --shm-dir "$FARM/shm" --shm 32M
  wait_until 20 is '.nodes[0].devices | map([.serial, .state] | join(" ")) | join(",")' "0000:40:00.0 free" sluice nodes
}

@test "B64 a driver that cannot pin the buffer: the node goes on, and node show says what was wanted and what is" {
  mock_driver
  farm_on_mock "" MOCK_GPU_PIN_COUNT=0
  sluice replay "$(sample 2)" --loop 2 --workflow cluster --backend cuda
  is '.runs[0] | [.done, .failed] | join(" ")' "2 0" sluice run show 1
  wait_until 5 is '.nodes[0].devices[0].pinned | [.wanted, .actual, .chunks] | join(" ")' "$((32 * 1048576 + 4096)) 0 0" sluice node show n1
  json '.nodes[0].devices[0].pinned.text' sluice node show n1 | grep -q 'vm.max_map_count'
}

@test "B64 pin_must: a driver that cannot pin the buffer is refused with the reason and the limit" {
  mock_driver
  farm_on_mock "pin_must = yes" MOCK_GPU_PIN_COUNT=0
  sluice replay "$(sample 2)" --workflow cluster --backend cuda || true
  is '.runs[0] | [.done, .failed] | join(" ")' "0 1" sluice run show 1
  is '.tfs[0].reason' BackendUnavailable sluice run tfs 1 --settled
  json '.tfs[0].text' sluice run tfs 1 --settled | grep "stage decode: $((32 * 1048576 + 4096)) bytes are to be pinned for device 0000:40:00.0: .*vm.max_map_count"
  # the CPU needs nothing pinned
  sluice replay "$(sample 2)" --workflow cluster --backend cpu
  is '.runs[0] | [.done, .failed] | join(" ")' "1 0" sluice run show 2
}

@test "B64 pin_must: with a driver that pins the buffer nothing changes" {
  mock_driver
  farm_on_mock "pin_must = yes"
  sluice replay "$(sample 2)" --workflow cluster --backend cuda
  is '.runs[0] | [.done, .failed] | join(" ")' "1 0" sluice run show 1
  wait_until 5 is '.nodes[0].devices[0].pinned | .actual == .wanted' true sluice node show n1
}
