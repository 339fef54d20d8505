#!/usr/bin/env bats
# Nonsense on every socket: closed with a counted reason; the daemons live and go on working.
load ../lib
load ../rig

setup() { rig_setup; cd "$FARM"; }
teardown() { cd /; farm_teardown; }

CORPUS=$SLUICE_SRCDIR/tests/fuzz/corpus/frame
nonsense() { perl "$SLUICE_SRCDIR/tests/fault/frames.pl" "$@"; }
handshakes() { metric "sluice_handshakes_total{end=\"$1\"}"; }
memory_kb() { awk '/^VmRSS/ { print $2 }' "/proc/$1/status"; }
closed() { sed -n 's/^closed \([0-9]*\) .*/\1/p' <<<"$output"; }

@test "B40 garbage and mutated frames before the handshake and after it, as anybody, as a worker, as a source: counted; the run does not notice" {
  daemon
  nodes_add 'n[001-003]'
  workers 3 --seconds-per-tf 0.01
  run_start --sources 1
  source_start --count 1 --hold --rate 50 --tfs 100000 --size 64K
  wait_until 20 done_at_least 10
  before=$(memory_kb "$PID_sluiced")
  n=$(scaled 130)
  run nonsense send "unix:$SLUICE_SOCKET" raw "$n" "$SEED" "$CORPUS"
  echo "$output"; [ "$status" -eq 0 ]; [ "$(closed)" -gt $((n / 2)) ]
  # every one that was closed for what it said was counted
  [ "$(handshakes malformed)" -ge $((n / 2)) ]
  grep -q 'not a frame of Sluice' "$FARM/sluiced.log"
  sluice ping
  stream_goes_on
  for role in worker source; do
    was=$(event protocol_errors)
    run nonsense send "unix:$SLUICE_SOCKET" $role "$n" "$SEED" "$CORPUS"
    echo "$role: $output"; [ "$status" -eq 0 ]; [ "$(closed)" -gt $((n / 2)) ]
    [ "$(event protocol_errors)" -ge $((was + n / 2)) ]
    sluice ping
    stream_goes_on
  done
  # as a person without rights: what is well formed is refused by role
  was=$(event protocol_errors)
  cp "$SLUICE_SRCDIR/tests/fault/frames.pl" "$FARM/"; cp -r "$CORPUS" "$FARM/corpus"; chmod -R a+rX "$FARM/corpus" "$FARM/frames.pl"
  run as_nobody perl "$FARM/frames.pl" send "unix:$SLUICE_SOCKET" client "$n" "$SEED" "$FARM/corpus"
  echo "client: $output"; [ "$status" -eq 0 ]; [ "$(closed)" -gt $((n / 3)) ]
  [ "$(event protocol_errors)" -gt "$was" ]
  [ "$EUID" -ne 0 ] || [ "$(event refused_permission)" -gt 0 ]
  ! ended "$PID_sluiced"
  is '[.nodes[] | select(.contact == "up" and .usable)] | length' 3 sluice nodes
  # no frame took memory for what it only promised
  [ "${SLUICE_BUILDDIR##*/}" = asan ] || [ $(($(memory_kb "$PID_sluiced") - before)) -lt 65536 ]
  stream_goes_on
  kill -TERM "$PID_source"; wait_until 10 ended "$PID_source"
  timeout 60 sluice run stop "$RUN" --data-timeout 1s
  sluice check
  sluice backup "$FARM/b.db"
}

@test "B40 nonsense at a source's socket: closed, counted, logged; its run ends with every TF done" {
  farm_up --nodes mi50:1 --nominal mi50=20
  sluice replay "$(sample 2)" --workflow none --loop 1000000 --rate 20 --json >"$FARM/replay.json" 2>"$FARM/replay.out" 3>&- &
  replay=$!
  RUN=1
  wait_until 20 done_at_least 5
  address=unix:$(find "$FARM/farm" -name 'source-*.sock')
  pid=$(basename "$address" .sock); pid=${pid#source-}
  run nonsense send "$address" raw "$(scaled 130)" "$SEED" "$CORPUS"
  echo "$output"; [ "$status" -eq 0 ]; [ "$(closed)" -gt 65 ]
  run nonsense send "$address" raw "$(scaled 60)" "$SEED" "$CORPUS" PULL
  echo "$output"; [ "$status" -eq 0 ]; [ "$(closed)" -gt 30 ]
  ! ended "$pid"
  stream_goes_on
  kill -INT "$replay"; wait "$replay" || [ "$?" -eq 130 ]
  is '.runs[0] | [.lost, .failed, .in_flight] | join(" ")' "0 0 0" sluice run show 1
  [ "$(jq -r '.replay[0] | .turned_away' "$FARM/replay.json")" -ge 160 ]
  sluice check
}

@test "B40 a scheduler that talks nonsense: the worker says what is wrong, lives, and registers when a real one comes; commands end with a status" {
  mkdir "$FARM/shm"
  background liar perl "$SLUICE_SRCDIR/tests/fault/frames.pl" serve "$SLUICE_SOCKET" "$SEED"
  wait_until 10 test -S "$SLUICE_SOCKET"
  background worker sluice-worker --server "unix:$SLUICE_SOCKET" --node n001 --class fake --config "$FARM/conf" --run-dir "$FARM/farm/run/n001" --shm-dir "$FARM/shm" --shm 16M
  wait_until 20 worker_is n001 .state error
  wait_until 20 worker_is n001 '.word' NoScheduler
  for _ in {1..26}; do
    run timeout 20 sluice status
    [[ $status -eq 9 || $status -eq 6 || $status -eq 1 ]] || { echo "$status $output"; false; }
    [ -n "$output" ]
  done
  kill "$PID_liar"; wait_until 10 ended "$PID_liar"; rm -f "$SLUICE_SOCKET"
  ! ended "$PID_worker"
  daemon
  nodes_add n001
  wait_until 30 is '.nodes[0].usable' true sluice nodes
}

@test "B40 nonsense at the TCP port: small limits before anybody is known, all counted" {
  need_root "make a network of its own"
  room net --net -- "$(munge_script); ip link set lo up"
  munge_start net
  printf 'listen = 127.0.0.1:7447\nauth = munge\n' >>"$FARM/conf"
  daemon "${IN_net[@]}"
  run "${IN_net[@]}" perl "$SLUICE_SRCDIR/tests/fault/frames.pl" send 127.0.0.1:7447 raw "$(scaled 130)" "$SEED" "$CORPUS"
  echo "$output"; [ "$status" -eq 0 ]; [ "$(closed)" -gt 65 ]
  [ "$(handshakes malformed)" -ge 65 ]
  run "${IN_net[@]}" timeout 20 sluice --server 127.0.0.1:7447 ping
  echo "$output"; [ "$status" -eq 0 ]
  ! ended "$PID_sluiced"
}
