#!/usr/bin/env bats
# A mark on one device of a node takes that device out and no other.
load ../lib

setup() {
  farm_setup
  mkdir -p "$FARM/farm" "$FARM/shm"
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
