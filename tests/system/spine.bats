#!/usr/bin/env bats
# From file to result through the real daemons.
load ../lib

setup() { farm_setup; }
teardown() { farm_teardown; }

@test "up makes the nodes asked for, usable and shown as emulated; down leaves nothing" {
  run --separate-stderr farm_up --nodes mi50:2,mi100:1
  [ "$status" -eq 0 ]
  [ "$output" = "$SLUICE_SOCKET" ]
  sluice nodes --json >"$FARM/n.json"
  [ "$(jq -r '.schema.name' "$FARM/n.json")" = nodes ]
  [ "$(jq -c '[.nodes[] | [.name, .class, .pool, .state, .usable, .emulated]]' "$FARM/n.json")" = \
    '[["mi50-001","mi50","online","idle",true,true],["mi50-002","mi50","online","idle",true,true],["mi100-001","mi100","online","idle",true,true]]' ] ||
    [ "$(jq -c '[.nodes[] | [.name, .usable, .emulated]] | sort' "$FARM/n.json")" = '[["mi100-001",true,true],["mi50-001",true,true],["mi50-002",true,true]]' ]
  run sluice nodes
  [[ $output == *emulated* ]]
  sluice ping
  sluice down --dir "$FARM/farm"
  no_processes
  run sluice ping
  [ "$status" -eq 6 ]
}

@test "up again starts only what is missing" {
  farm_up --nodes mi50:2
  before=$(json '.pid' sluice status 2>/dev/null || json '.status[0].pid' sluice status)
  farm_up --nodes mi50:2
  after=$(json '.pid' sluice status 2>/dev/null || json '.status[0].pid' sluice status)
  [ "$before" = "$after" ]
}

@test "replayed time-frames give the reference digits, whatever the number of sources" {
  farm_up --nodes mi50:1,mi100:1 --nominal mi50=20 --nominal mi100=20
  for s in 1 2 5; do
    id=$(sluice run start --workflow decode --sources "$s" --output "$FARM/out")
    sluice replay "$(samples)" --run "$id" --sources "$s"
    sluice run stop "$id"
    is '.runs[0] | [.state, .announced, .done, .failed, .lost, .in_flight] | join(" ")' 'done 3 3 0 0 0' sluice run show "$id"
    for k in 0 1 2; do
      f=$FARM/out/$id/tf-$((k + 1)).digits
      [ "$(xxh3 "$f")" = "${DIGITS[k]}" ]
      [ "$(jq -r .digest "$f.json")" = "${DIGITS[k]}" ]
    done
    [ -z "$(find "$FARM/out" -name '*.a[0-9]*')" ]
  done
  sluice check
}

@test "a job gives the reference digits, each TF once" {
  farm_up --nodes mi50:1,mi100:1 --nominal mi50=20 --nominal mi100=20
  sluice move mi100-001 --to async --wait --timeout 20s
  id=$(sluice submit "$(samples)" --workflow decode --output "$FARM/out")
  sluice wait job "$id" --timeout 60s
  is '.jobs[0] | [.state, .tasks, .done, .failed] | join(" ")' 'done 3 3 0' sluice job show "$id"
  for k in 0 1 2; do
    [ "$(xxh3 "$FARM/out/samples.$k.digits")" = "${DIGITS[k]}" ]
  done
  [ "$(json '[.tasks[].node] | unique | join(",")' sluice job tfs "$id")" = mi100-001 ]
  sluice check
}

@test "one changed byte of input changes the digest, or is refused by name" {
  farm_up --nodes mi50:1 --nominal mi50=20
  cp "$(sample 2)" "$FARM/changed.tf"
  # a byte in the middle of a page's samples: near the end of the last full page
  printf '\xa5' | dd of="$FARM/changed.tf" bs=1 seek=1000000 conv=notrunc status=none
  cmp -s "$(sample 2)" "$FARM/changed.tf" && printf '\x5a' | dd of="$FARM/changed.tf" bs=1 seek=1000000 conv=notrunc status=none
  id=$(sluice run start --workflow decode --output "$FARM/out")
  sluice replay "$FARM/changed.tf" --run "$id" || true
  sluice run stop "$id"
  if [ -f "$FARM/out/$id/tf-1.digits" ]; then
    [ "$(xxh3 "$FARM/out/$id/tf-1.digits")" != "${DIGITS[2]}" ]
  else
    [ "$(json '.runs[0].failures[0].name' sluice run show "$id")" = BadInput ]
  fi
}

@test "workflow none moves the bytes and delivers nothing" {
  farm_up --nodes mi50:2 --nominal mi50=5
  run sluice replay "$(samples)" --workflow none --loop 20 --rate max --json
  [ "$status" -eq 0 ]
}

@test "run show, run tfs, runs and status agree" {
  farm_up --nodes mi50:1 --nominal mi50=20
  id=$(sluice run start --name x --workflow decode)
  sluice replay "$(sample 2)" --run "$id" --loop 10
  sluice run stop "$id"
  is '.tfs | length' 10 sluice run tfs "$id" --settled
  is '[.tfs[].digest] | unique | join(",")' "${DIGITS[2]}" sluice run tfs "$id" --settled
  is '.runs[0].name' x sluice run show "$id"
  is "[.runs[] | select(.id == $id)] | length" 1 sluice runs
  sluice status
}

@test "a backup can be restored and holds the marks" {
  farm_up --nodes mi50:2
  sluice mark mi50-001 "bad fan"
  sluice backup "$FARM/copy.db"
  sluice clear mi50-001 "fixed"
  sluice down --dir "$FARM/farm"
  sluiced --restore "$FARM/copy.db" --state "$FARM/farm/state"
  farm_up --nodes mi50:2
  is '.nodes[] | select(.name == "mi50-001") | .marks[0].reason' "bad fan" sluice nodes
}

@test "run show and run tfs say which backend ran each stage, and why auto fell back; so after a restart, and so do the counters" {
  [ "$(sluice devices --json | jq '[.devices[] | select(.usable and .class != "cpu" and .backend != "cpu")] | length')" -eq 0 ] || skip "there is a GPU here"
  farm_up --nodes mi50:1 --nominal mi50=10
  run=$(sluice run start --workflow cluster --backend decode=cpu,cluster=auto)
  sluice replay "$(sample 2)" --run "$run" --loop 3 >/dev/null 2>&1
  sluice run stop "$run"
  stages() { is '.runs[0].stages | map([.stage, .backend, .tfs, .fallbacks, (.reason // "-")[:13]] | map(tostring) | join(" ")) | join("; ")' \
    "decode cpu 3 0 -; cluster cpu 3 3 no usable GPU" sluice run show "$run"; }
  tfs() { is '[.tfs[].stages | map([.stage, .backend, (.fallback // "-")[:13]] | join(" ")) | join("; ")] | unique | join(" | ")' \
    "decode cpu -; cluster cpu no usable GPU" sluice run tfs "$run" --settled; }
  stages
  tfs
  sluice run show "$run" | grep 'cluster' | grep -F 'no usable GPU'
  [[ "$(sluice run show "$run" -o ran --parsable -h)" == "decode on cpu: 3 TFs,cluster on cpu: 3 TFs, 3 fall-backs (no usable GPU"* ]]
  [ "$(sluice run tfs "$run" --settled -o ran --parsable -h | sort -u)" = "decode=cpu,cluster=cpu!" ]
  sluice metrics | grep -qx 'sluice_stage_tfs_total{stage="cluster",backend="cpu"} 3'
  sluice metrics | grep -qx 'sluice_stage_fallbacks_total{stage="cluster",backend="cpu"} 3'
  sluice metrics | grep -qx 'sluice_stage_fallbacks_total{stage="decode",backend="cpu"} 0'
  sluice metrics | grep -qx 'sluice_events_total{event="backend_fallbacks"} 3'
  kill -KILL "$(sluice status --json | jq .status[0].pid)"
  farm_up --nodes mi50:1 --nominal mi50=10
  stages
  tfs
}
