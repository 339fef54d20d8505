#!/usr/bin/env bats
# Each daemon stopped and continued in mid-run, below and beyond the time-outs: seen, said, and no TF is lost or done twice.
load ../lib
load ../rig

setup() { rig_setup; real_class 30; printf 'limits {\n  process_timeout = 2\n}\n' >>"$FARM/conf"; }
teardown() { farm_teardown; }

run_begin() {
  daemon
  nodes_real 'n[001-002]'
  worker n001 --; worker n002 --
  wait_until 20 is '[.nodes[] | select(.usable)] | length' 2 sluice nodes
  RUN=$(sluice run start --workflow decode --output "$FARM/out")
  background source sluice-source replay --server "unix:$SLUICE_SOCKET" --run "$RUN" --loop 100000 --rate 10 "$(sample 2)"
  wait_until 20 done_at_least 10
}
# run_end: the source ends, the run too; what is done lies there once, and is what it should be.
run_end() {
  kill -INT "$PID_source"; wait_until 20 ended "$PID_source"
  timeout 60 sluice run stop "$RUN" --data-timeout 1s
  is '.runs[0] | [.state, .failed, .in_flight] | join(" ")' "done 0 0" sluice run show "$RUN"
  [ "$(ls "$FARM/out/$RUN" | grep -c '\.digits$')" -eq "$(run_number done)" ]
  [ -z "$(find "$FARM/out" -name '*.a[0-9]*')" ]
  [ "$(xxh3 "$FARM/out/$RUN/tf-1.digits")" = "${DIGITS[2]}" ]
  wait_until 20 is '[.nodes[] | .tfs + .buffer_charged + .buffer_used] | add' 0 sluice nodes
  sluice check
}
closings() { grep -c 'connection closed' "$FARM/sluiced.log" || true; }
device_pid() { worker_status "$1" '.devices[0].pid'; }
device_is_new() { local now; now=$(device_pid "$1") && [[ $now != null && $now != "$2" ]]; }

@test "sluiced stopped for 2 s: nothing is closed by a stall of its own; for 6 s: all come back, the run goes on" {
  run_begin
  kill -STOP "$PID_sluiced"; sleep 2; kill -CONT "$PID_sluiced"
  stream_goes_on
  [ "$(closings)" -eq 0 ]
  kill -STOP "$PID_sluiced"
  wait_until 8 worker_is n001 '[.state, .word] | join(" ")' "error NoScheduler"
  wait_until 8 worker_is n002 '.state' error
  kill -CONT "$PID_sluiced"
  wait_until 30 is '[.nodes[] | select(.usable)] | length' 2 sluice nodes
  wait_until 20 worker_is n001 .state running
  stream_goes_on 20
  is '.runs[0] | .lost' 0 sluice run show "$RUN"
  run_end
}

@test "a worker stopped for 2 s keeps its work; for 6 s it is down, others do it, and its late answers change nothing" {
  run_begin
  kill -STOP "$PID_n001"; sleep 2; kill -CONT "$PID_n001"
  stream_goes_on
  [ "$(closings)" -eq 0 ]
  kill -STOP "$PID_n001"
  wait_until 8 node_is n001 '[.state, .why[0]] | join(" ")' "down ContactLost"
  stream_goes_on 20
  kill -CONT "$PID_n001"
  wait_until 20 node_is n001 .usable true
  stream_goes_on 20
  is '.runs[0] | .lost' 0 sluice run show "$RUN"
  run_end
}

@test "a reconstruction process stopped: its attempt fails by name, it is replaced, the TF is done elsewhere or there" {
  run_begin
  old=$(device_pid n001)
  kill -STOP "$old"
  wait_until 20 device_is_new n001 "$old"
  wait_until 5 ended "$old"
  stream_goes_on 20
  grep -qE 'TimedOut|did not answer|hangs|no progress' "$FARM/n001.log" "$FARM/sluiced.log"
  wait_until 20 node_is n001 .usable true
  is '.runs[0] | .lost' 0 sluice run show "$RUN"
  run_end
}

@test "sluiced and a worker started twice at the same instant: one each, the other names it" {
  daemon
  nodes_real n001
  local i
  for i in 1 2; do
    background "d$i" timeout 20 sluiced --config "$FARM/conf" --state "$FARM/state" --socket "$SLUICE_SOCKET.$i"
  done
  for i in 1 2; do pid=PID_d$i; wait_until 20 ended "${!pid}"; grep -q "already running, pid $PID_sluiced" "$FARM/d$i.out"; done
  # two workers on folders of their own, one name: the first registers, the other is refused and says by whom
  worker n001 --
  wait_until 20 node_is n001 .usable true
  mkdir -p "$FARM/shm2"
  background second sluice-worker --server "unix:$SLUICE_SOCKET" --node n001 --class real --config "$FARM/conf" --run-dir "$FARM/farm/run/second" \
    --shm-dir "$FARM/shm2" --shm 16M
  wait_until 20 grep -qiE 'another|incarnation|lives' "$FARM/second.out"
  wait_until 10 alarm WorkerRefused
  node_is n001 .usable true
  # the first one ends: the other takes its place
  kill -TERM "$PID_n001"; wait_until 10 ended "$PID_n001"
  ended "$PID_second" || wait_until 30 node_is n001 .usable true
}
