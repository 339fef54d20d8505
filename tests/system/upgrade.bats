#!/usr/bin/env bats
# A farm is brought to the next release and back, program by program, with a run on.
load ../lib
load ../rig

setup() { rig_setup; real_class 30; NEXT=$SLUICE_BUILDDIR/tests/next; export SLUICE_LIBEXEC=$SLUICE_BUILDDIR; }
teardown() { farm_teardown; }

# scheduler PROGRAM, node NAME PROGRAM: started, in place of the one that runs.
scheduler() {
  [[ -z ${PID_sluiced:-} ]] || { kill -"${2:-TERM}" "$PID_sluiced"; wait_until 10 ended "$PID_sluiced"; }
  start sluiced -- "$1" --config "$FARM/conf" --state "$FARM/state" --socket "$SLUICE_SOCKET" --log "$FARM/sluiced.log"
}
node() {
  local pid="PID_$1"
  mkdir -p "$FARM/shm"
  [[ -z ${!pid:-} ]] || { kill -TERM "${!pid}"; wait_until 10 ended "${!pid}"; }
  START_LIMIT=40 start "$1" -- "$2" --server "unix:$SLUICE_SOCKET" --node "$1" --class real --config "$FARM/conf" --run-dir "$FARM/farm/run/$1" \
    --log "$FARM/$1.log" --shm-dir "$FARM/shm" --shm 16M --reco "$SLUICE_BUILDDIR/sluice-reco"
}
# says SLUICED NODE...: the releases, as the farm shows them; all in contact and at work.
says() {
  local want=$1
  shift
  [[ $(sluice ping --json | jq -r '.ping[0].software') == "$want" ]] || { sluice ping; return 1; }
  is '[.nodes[] | select(.usable) | .software] | join(" ")' "$*" sluice nodes
}
step() { wait_until 20 says "$@"; stream_goes_on 12; sluice check >"$FARM/check.txt" || { cat "$FARM/check.txt"; false; }; }

@test "worker N with sluiced N+1, and back: each is replaced with a run and a job on; nothing is lost or done twice" {
  old=$(sluiced --version | sed 's/.* //') new=99.1.0
  scheduler sluiced
  for n in w1 w2 w3; do node "$n" sluice-worker; done
  nodes_real 'w[1-3]'
  sluice move w3 --to async --wait --timeout 20s
  run_start --name rolling
  background replay sluice replay "$(sample 2)" --run "$RUN" --rate 12 --loop "$(scaled 260)"
  background job sluice submit "$(sample 2)" "$(sample 0)" "$(sample 1)" --workflow none --wait
  step "$old" "$old" "$old" "$old"
  node w1 "$NEXT/sluice-worker";            step "$old" "$new" "$old" "$old"
  scheduler "$NEXT/sluiced";                step "$new" "$new" "$old" "$old"
  node w2 "$NEXT/sluice-worker"
  node w3 "$NEXT/sluice-worker";            step "$new" "$new" "$new" "$new"
  scheduler sluiced KILL;                   step "$old" "$new" "$new" "$new"
  node w1 sluice-worker;                    step "$old" "$old" "$new" "$new"
  wait_until 60 ended "$PID_replay"
  wait "$PID_replay" || { cat "$FARM/replay.out"; false; }
  wait "$PID_job" || { cat "$FARM/job.out"; false; }
  run_settled
  is '.runs[0] | [.announced, .done, .failed, .lost, (.dropped | length)] | join(" ")' "$(scaled 260) $(scaled 260) 0 0 0" sluice run show "$RUN"
  # each once, and none by another attempt unless its worker was ended under it
  sluice run tfs "$RUN" --settled --json | jq -e '[.tfs[].id] as $i | ($i | length) == ($i | unique | length) and all(.tfs[]; .state == "done" and .attempt <= 4)'
  is '.jobs[0] | [.done, .failed] | join(" ")' "3 0" sluice jobs --all
}

@test "a worker that speaks another version of the protocol: its node says so, an alarm what to do, until one gets in" {
  daemon
  nodes_add n001
  node_is n001 '.why | join(" ")' NeverRegistered
  [ "$(perl "$SLUICE_SRCDIR/tests/fault/frames.pl" greet "unix:$SLUICE_SOCKET" 9 n001)" = 3 ]
  [ "$(perl "$SLUICE_SRCDIR/tests/fault/frames.pl" greet "unix:$SLUICE_SOCKET" 9 nobody-knows-it)" = 3 ]
  node_is n001 '[.state, .why[]] | join(" ")' "down VersionTooOld NeverRegistered"
  sluice why n001 | grep -F "its worker speaks another version of the protocol"
  [[ $(alarm WorkerRefused) == *"protocol versions do not fit: you speak 9.0 (sluice 9.0.0)"* ]]
  sluice status | grep -F "install this release of Sluice there"
  grep -F "node n001: a worker of that name is refused: protocol versions do not fit" "$FARM/sluiced.log"
  is '.nodes | length' 1 sluice nodes
  workers 1
  wait_until 10 node_is n001 '[.usable, (.why | length)] | join(" ")' "true 0"
  # nobody takes a name from a worker that is in contact
  perl "$SLUICE_SRCDIR/tests/fault/frames.pl" greet "unix:$SLUICE_SOCKET" 9 n001
  node_is n001 '[.usable, (.why | length)] | join(" ")' "true 0"
}
