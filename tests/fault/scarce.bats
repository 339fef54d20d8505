#!/usr/bin/env bats
# Few descriptors, little processor time, a log that hangs, clocks that are wrong: the daemons go on and say what is the matter.
load ../lib
load ../rig

setup() { rig_setup; }
teardown() { local rc=0; farm_teardown || rc=1; faketime_clean; return $rc; }

# faketime_clean: what libfaketime leaves in /dev/shm of processes that were killed.
faketime_clean() {
  local f
  for f in /dev/shm/faketime_shm_* /dev/shm/sem.faketime_sem_*; do
    [[ ! -e $f || -e /proc/${f##*_} ]] || rm -f "$f"
  done
}

@test "B42 a worker with 64 descriptors, 5 000 short TFs of 20 runs at once and a watcher: each waits its turn, nothing is lost, the limit is said once" {
  real_class 1
  daemon
  nodes_real n001
  worker n001 prlimit -n64 --
  wait_until 20 node_is n001 .usable true
  # 300 TFs, 5 000 in soak; 20 sources of their own are more connections than it may have open
  local each=15 i ids=()
  [ -z "${SLUICE_SOAK:-}" ] || each=250
  for i in {1..20}; do ids+=("$(sluice run start --workflow none)"); done
  background watcher bash -c "while sluice run show ${ids[0]} --json | jq .runs[0].done; do :; done"
  for i in "${ids[@]}"; do background "s$i" sluice-source replay --server "unix:$SLUICE_SOCKET" --run "$i" --loop "$each" --rate max "$(sample 2)"; done
  for i in "${ids[@]}"; do pid=PID_s$i; wait_until "$(scaled 120)" ended "${!pid}"; done
  kill "$PID_watcher"; wait_until 10 ended "$PID_watcher"
  for i in "${ids[@]}"; do sluice run stop "$i" >/dev/null; done
  is '[.runs[] | [.announced, .done, .failed, .lost]] | transpose | map(add) | join(" ")' "$((20 * each)) $((20 * each)) 0 0" sluice runs --all
  [ "$(grep -c . "$FARM/watcher.out")" -gt 2 ]
  ! ended "$PID_n001"
  # connections that were idle made room: nothing failed for want of a descriptor, and what is said of the limit is said once
  ! grep -q 'Too many open files' "$FARM/n001.log"
  [ "$(grep -c 'limit of descriptors' "$FARM/n001.log")" -le 1 ]
  # idle again it costs nothing
  wait_until 20 node_is n001 .state idle
  local before after
  before=$(ticks "$PID_n001"); sleep 2; after=$(ticks "$PID_n001")
  echo "$((after - before)) ticks in 2 s"
  [ $((after - before)) -lt 60 ]
  sluice check
}

@test "a worker and a source with 40 descriptors each do their work or say at the start what they need" {
  real_class 5
  daemon
  nodes_real n001
  mkdir -p "$FARM/shm"
  worker n001 prlimit -n40 --
  wait_until 20 node_is n001 .usable true
  RUN=$(sluice run start --workflow decode --output "$FARM/out" --sources 3)
  run timeout 60 prlimit -n40 sluice-source replay --server "unix:$SLUICE_SOCKET" --run "$RUN" --sources 3 --loop 10 "$(samples)"
  echo "$status $output"
  [ "$status" -eq 0 ]
  sluice run stop "$RUN"
  is '.runs[0] | [.done, .failed, .lost] | join(" ")' "30 0 0" sluice run show "$RUN"
  [ "$(xxh3 "$FARM/out/$RUN/tf-1.digits")" = "${DIGITS[0]}" ]
  ! ended "$PID_n001"
}

@test "B50 a worker whose clock is off by -1 h, -5 s, +5 s, +1 h, +10 y: shown, said, and harmless" {
  real_class 5
  daemon
  nodes_real 'n[001-005]'
  local shift i=0 lib preload
  lib=$(find /usr/lib -name libfaketimeMT.so.1 | head -n 1)
  preload=$lib
  ! ldd "$SLUICE_BUILDDIR/sluice-worker" | grep -q libasan || preload=$(ldd "$SLUICE_BUILDDIR/sluice-worker" | awk '/libasan/ { print $3 }'):$lib
  for shift in -3600 -5 +5 +3600 +315360000; do
    i=$((i + 1))
    worker "n00$i" env LD_PRELOAD="$preload" FAKETIME="$shift" FAKETIME_DONT_FAKE_MONOTONIC=1 DONT_FAKE_MONOTONIC=1 --
    wait_until 20 node_is "n00$i" .usable true
    sluice node show "n00$i" --json | jq -e "((.nodes[0].clock_offset - (${shift#+})) | fabs) < 2"
  done
  grep -q 'its clock is 3600.[0-9] s behind ours' "$FARM/sluiced.log"
  [[ $(alarm ClockOffset) == *n001* && $(alarm ClockOffset) == *n005* ]]
  RUN=$(sluice run start --workflow decode --output "$FARM/out")
  sluice replay "$(sample 2)" --run "$RUN" --loop 50 --rate max
  sluice run stop "$RUN"
  is '.runs[0] | [.done, .failed, .lost] | join(" ")' "50 0 0" sluice run show "$RUN"
  is '[.nodes[] | select(.done > 2 and .usable and .contact == "up" and .last_contact_s < 3)] | length' 5 sluice nodes
  # liveness by sluiced's own clock: a worker that stops is seen as soon as any other
  kill -STOP "$PID_n005"
  wait_until 8 node_is n005 .state down
  kill -CONT "$PID_n005"
  wait_until 20 node_is n005 .usable true
  # times that are listed are sluiced's
  sluice node history n005 --json | jq -e --arg y "$(date +%Y)" '[.events[].time | startswith($y)] | all'
  sluice check
}

@test "B52 data path full, nice 19 beside busy loops, a log that hangs: no false death; lateness is exported" {
  real_class 1
  mkfifo "$FARM/hung.log"
  # a log nobody reads: the pipe fills up, and then every write to it hangs
  background reader perl -e 'open my $f, "<", $ARGV[0]; open my $g, ">", $ARGV[1]; close $g; sleep 3600' "$FARM/hung.log" "$FARM/reading"
  exec 8<>"$FARM/hung.log"
  dd if=/dev/zero bs=4096 count=16 status=none >&8
  daemon
  nodes_real 'n[001-002]'
  mkdir -p "$FARM/shm"
  for n in n001 n002; do
    START_LIMIT=60 start $n nice -n 19 -- sluice-worker --server "unix:$SLUICE_SOCKET" --node $n --class real --config "$FARM/conf" \
      --run-dir "$FARM/farm/run/$n" --log "$FARM/hung.log" --log-level debug --shm-dir "$FARM/shm" --shm 64M 8>&-
  done
  local loops=() i
  for ((i = 0; i < 4 * $(nproc); i++)); do background "busy$i" sh -c 'while :; do :; done'; loops+=($!); done
  background disk sh -c 'while :; do dd if=/dev/zero of="$0" bs=1M count=32 oflag=dsync 2>/dev/null; done' "$FARM/farm/run/load"
  loops+=("$!")
  background metronome nice -n 19 perl -e 'sub now { open my $f, "<", "/proc/uptime"; (split " ", <$f>)[0] } my ($last, $worst) = (now(), 0);
    for (;;) { select undef, undef, undef, 0.05; my $t = now(); if ($t - $last > $worst) { $worst = $t - $last; open my $f, ">", "$ARGV[0].new"; print $f $worst; close $f; rename "$ARGV[0].new", $ARGV[0] } $last = $t }' "$FARM/gap"
  wait_until 60 test -s "$FARM/gap"
  RUN=$(sluice run start --workflow none)
  sluice replay "$(samples)" --run "$RUN" --loop 1000000 --rate max >"$FARM/replay.out" 2>&1 3>&- 8>&- &
  replay=$!
  STARTED+=("$replay")
  wait_until 60 done_at_least 5
  # two and a half times the time-out of 4 s
  local dead=0 gap
  for ((i = 0; i < $(scaled 5); i++)); do
    sleep 2
    sluice nodes --json | jq -e '[.nodes[] | select(.state != "down")] | length == 2' || dead=1
  done
  ! grep -q 'connection closed' "$FARM/sluiced.log" || dead=1
  # a machine that gives nothing at nice 19 any time for seconds says nothing about us: the metronome tells
  gap=$(cat "$FARM/gap")
  echo "the metronome at nice 19 stood still for $gap s at most; dead: $dead"
  starved() { awk -v g="$(cat "$FARM/gap")" 'BEGIN { exit !(g > 0.8) }'; }        # a pull has 1 s, contact 4 s
  [ "$dead" -eq 0 ] || starved
  [ "$(sluice metrics | grep -c '^sluice_node_late_seconds')" -eq 2 ]
  [ "$(sluice metrics | grep -c '^sluice_node_last_contact_seconds')" -eq 2 ]
  sluice metrics | grep -E '^sluice_(node_late|node_last_contact|loop_stalled)'
  for i in "${loops[@]}"; do kill "$i"; done
  stream_goes_on
  is '.runs[0] | [.failed, .lost] | join(" ")' "0 0" sluice run show "$RUN" || starved
  kill -INT "$replay"; wait "$replay" || [ "$?" -eq 130 ]
  exec 8>&-
  kill "$PID_reader"
  # a daemon with a hanging log ends in its time all the same
  for n in n001 n002; do pid=PID_$n; kill -TERM "${!pid}"; done
  for n in n001 n002; do pid=PID_$n; wait_until 8 ended "${!pid}"; done
}
