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
  background watcher bash -c "while sluice run show ${ids[0]} --json | jq .runs[0].done; do sleep 0.2; done"
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
  grep -q 'its clock is off by -3600.[0-9] s' "$FARM/sluiced.log"
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

# metronome FILE COMMAND...: how long at most a process started by this was not run when it wanted to, in $FARM/FILE, s.
metronome() {
  local file=$1
  shift
  background "metronome_$file" "$@" perl -e 'sub now { open my $f, "<", "/proc/uptime"; (split " ", <$f>)[0] } my ($last, $worst) = (now(), 0);
    for (;;) { select undef, undef, undef, 0.05; my $t = now(); if ($t - $last > $worst) { $worst = $t - $last; open my $f, ">", "$ARGV[0].new"; print $f $worst; close $f; rename "$ARGV[0].new", $ARGV[0] } $last = $t }' "$FARM/$file"
}
# stood_still FILE LIMIT: it was more than that.
stood_still() { awk -v g="$(cat "$FARM/$1")" -v limit="$2" 'BEGIN { exit !(g > limit) }'; }

# nice_of PID [NAME...]: of its first thread, or of all its threads of these names, each value once.
nice_of() {
  local pid=$1 task
  shift
  for task in "/proc/$pid/task/"*; do
    [[ ${task##*/} == "$pid" && $# -eq 0 || $# -gt 0 && " $* " == *" $(cat "$task/comm") "* ]] || continue
    sed 's/.*) //' "$task/stat" | cut -d' ' -f17
  done | sort -un | paste -sd' '
}

@test "B52 the loop comes before the threads and processes of its node; where the kernel refuses, these step back and the log says it" {
  real_class 1
  daemon
  nodes_real 'n[001-003]'
  local reco base
  base=$(nice)
  # refused
  worker n001 setpriv --bounding-set=-sys_nice --
  wait_until 20 node_is n001 .usable true
  [ "$(nice_of "$PID_n001")" = "$base" ]
  [ "$(nice_of "$PID_n001" io deliver slow buffer)" = $((base + 5)) ]
  reco=$(json '.nodes[] | select(.name == "n001") | .devices[0].pid' sluice nodes)
  [ "$(nice_of "$reco")" = $((base + 5)) ]
  node_is n001 .nice_actual $((base + 5))
  grep -q 'nice -5 wanted for the loop, it stays at '"$base: .*; threads and processes get $((base + 5))" "$FARM/n001.log"
  # no further back than there is
  worker n002 nice -n $((17 - base)) setpriv --bounding-set=-sys_nice --
  wait_until 20 node_is n002 .usable true
  [ "$(nice_of "$PID_n002") $(nice_of "$PID_n002" io deliver slow buffer)" = "17 19" ]
  [[ $EUID -eq 0 ]] || skip "the rest wants the right to raise a priority"
  # granted: what it was started with stays with the threads
  worker n003 nice -n 19 --
  wait_until 20 node_is n003 .usable true
  [ "$(nice_of "$PID_n003") $(nice_of "$PID_n003" io deliver slow buffer)" = "-5 19" ]
  node_is n003 .nice_actual 0
}

# hang ROOM FOLDER...: over each folder lies a file system that never answers, until `hang_ends`.
hang() {
  local in="IN_$1[@]"
  shift
  background hang "${!in}" bash -c 'for d; do exec 7<>/dev/fuse; mount -i -t fuse -o fd=7,rootmode=40000,user_id=0,group_id=0 hang "$d"; exec {keep}>&7; done; echo hangs; exec sleep 1000' - "$@"
  wait_until 10 grep -q hangs "$FARM/hang.out"
}

@test "B52 run folder and output folder hang: heartbeats and status go on, nothing is lost, and the worker ends in its time" {
  need_root "mount a file system"
  [[ -w /dev/fuse ]] || skip "no /dev/fuse here"
  real_class 1
  printf 'limits {\n  deliver_timeout = 1\n}\n' >>"$FARM/conf"
  room disk -- "mkdir -p $FARM/out $FARM/farm/run/n001"
  daemon
  nodes_real n001
  worker n001 "${IN_disk[@]}" --
  wait_until 20 node_is n001 .usable true
  RUN=$(sluice run start --workflow decode --output "$FARM/out")
  background replay sluice replay "$(sample 2)" --run "$RUN" --loop 60 --rate 20
  wait_until 30 done_at_least 5
  metronome loop_gap "${ON_ONE[@]}" nice -n "$([[ $EUID -eq 0 ]] && echo -5 || echo 0)"
  metronome own_gap env
  hang disk "$FARM/out" "$FARM/farm/run/n001"
  wait_until 20 node_is n001 '(.trouble // "") | contains("a delivery hangs: to '"$FARM/out"'")' true
  local i dead=0
  for ((i = 0; i < $(scaled 8); i++)); do
    sleep 1
    node_is n001 '[.contact, .last_contact_s < 3] | join(" ")' "up true" || dead=1
  done
  echo "a metronome stood still for $(cat "$FARM/loop_gap") s at most"
  [ "$dead" -eq 0 ] || stood_still loop_gap 1 || stood_still own_gap 1
  ! grep -q 'stood still' "$FARM/n001.log" || stood_still loop_gap 0.3
  # who served it dies: that is waited for too
  kill "$PID_hang"; wait_until 10 ended "$PID_hang"
  wait_until 20 node_is n001 '(.trouble // "") | contains("Transport endpoint is not connected")' true
  # it is over: what waited is written
  "${IN_disk[@]}" umount "$FARM/out" "$FARM/farm/run/n001"
  wait_until 60 is '.runs[0] | [.done, .failed, .lost] | join(" ")' "60 0 0" sluice run show "$RUN"
  wait_until 10 ended "$PID_replay"
  # and it ends with both hanging
  : >"$FARM/hang.out"
  hang disk "$FARM/out" "$FARM/farm/run/n001"
  kill -TERM "$PID_n001"
  wait_until 4 ended "$PID_n001"
}

@test "B78 five at the nodes, no result comes through for more than 10 s, a worker is killed meanwhile: an alarm says that nothing moves, then all goes on, every credit is back" {
  need_root "mount a file system"
  [[ -w /dev/fuse ]] || skip "no /dev/fuse here"
  real_class 1
  room disk -- "mkdir -p $FARM/out"
  daemon
  nodes_real 'n[001-003]'
  for n in n001 n002 n003; do worker $n "${IN_disk[@]}" --; done
  wait_until 20 is '[.nodes[] | select(.usable)] | length' 3 sluice nodes
  RUN=$(sluice run start --workflow decode --output "$FARM/out" --in-flight 5 --keep until-done)
  background replay sluice replay "$(sample 2)" --run "$RUN" --loop 120 --rate 30
  wait_until 30 done_at_least 5
  hang disk "$FARM/out"
  wait_until 20 is '[.runs[0].nodes[].in_flight] | add' 5 sluice run show "$RUN"
  no_alarm RunStalled
  local victim pid hung=$SECONDS
  wait_until 30 alarm RunStalled
  [ $((SECONDS - hung)) -ge 8 ]
  [[ $(alarm RunStalled) == "run $RUN is full and nothing came back for "* ]]
  is '[.runs[0].nodes[].in_flight] | add' 5 sluice run show "$RUN"
  # one that has some of them is killed: what it had is done by others
  victim=$(json '[.nodes[] | select(.tfs > 0)][0].name' sluice nodes)
  pid=PID_$victim
  kill -KILL "${!pid}"
  kill "$PID_hang"; wait_until 10 ended "$PID_hang"
  "${IN_disk[@]}" umount "$FARM/out"
  wait_until 10 ended "${!pid}"
  wait_until 60 ended "$PID_replay"
  no_alarm RunStalled
  wait_until 10 is '.runs[0].in_flight' 0 sluice run show "$RUN"
  sluice run stop "$RUN"
  is '.runs[0] | [.announced, .done, .failed, .lost] | join(" ")' "120 120 0 0" sluice run show "$RUN"
  is '[.nodes[] | .tfs + .buffer_charged] | add' 0 sluice nodes
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
    START_LIMIT=60 start $n "${ON_ONE[@]}" nice -n 19 -- sluice-worker --server "unix:$SLUICE_SOCKET" --node $n --class real --config "$FARM/conf" \
      --run-dir "$FARM/farm/run/$n" --log "$FARM/hung.log" --log-level debug --shm-dir "$FARM/shm" --shm 64M 8>&-
  done
  local loops=() i
  for i in {1..4}; do background "busy$i" "${ON_ONE[@]}" sh -c 'while :; do :; done'; loops+=($!); done
  background disk sh -c 'while :; do dd if=/dev/zero of="$0" bs=1M count=32 oflag=dsync 2>/dev/null; done' "$FARM/farm/run/load"
  loops+=("$!")
  # what the machine gives a process of the loop's nice value, and one of the reading threads
  local loop_nice=19
  [[ $EUID -ne 0 ]] || loop_nice=-5
  metronome loop_gap "${ON_ONE[@]}" nice -n "$loop_nice"
  metronome thread_gap "${ON_ONE[@]}" nice -n 19
  # and sluiced, and the command that asks it
  metronome own_gap env
  wait_until 60 test -s "$FARM/own_gap"
  wait_until 60 test -s "$FARM/loop_gap"
  wait_until 60 test -s "$FARM/thread_gap"
  RUN=$(sluice run start --workflow none)
  sluice replay "$(samples)" --run "$RUN" --loop 1000000 --rate max >"$FARM/replay.out" 2>&1 3>&- 8>&- &
  replay=$!
  STARTED+=("$replay")
  wait_until 60 done_at_least 5
  # two and a half times the time-out of 4 s
  local dead=0 late
  for ((i = 0; i < $(scaled 5); i++)); do
    sleep 2
    sluice nodes --json | jq -e '[.nodes[] | select(.state != "down")] | length == 2' || dead=1
  done
  ! grep -q 'connection closed' "$FARM/sluiced.log" || dead=1
  late=$(sluice metrics | awk '/^sluice_node_late_seconds/ && $NF > m { m = $NF } END { print m + 0 }')
  echo "stood still at most: a metronome of the loops' nice value $(cat "$FARM/loop_gap") s, one of the threads' $(cat "$FARM/thread_gap") s, one of sluiced's $(cat "$FARM/own_gap") s; beats late by $late s; dead: $dead"
  # contact has 4 s for a beat a second: only a machine that gave such a process nothing for 3 s excuses a death
  [ "$dead" -eq 0 ] || stood_still loop_gap 3 || stood_still own_gap 3
  # a beat is sent late by the one, or heard late by the other
  awk -v l="$late" -v g="$(cat "$FARM/loop_gap")" -v o="$(cat "$FARM/own_gap")" 'BEGIN { exit !(l <= g + o + 1) }'
  [ "$(sluice metrics | grep -c '^sluice_node_late_seconds')" -eq 2 ]
  [ "$(sluice metrics | grep -c '^sluice_node_last_contact_seconds')" -eq 2 ]
  sluice metrics | grep -E '^sluice_(node_late|node_last_contact|loop_stalled)'
  for i in "${loops[@]}"; do kill "$i"; done
  stream_goes_on
  is '.runs[0] | [.failed, .lost] | join(" ")' "0 0" sluice run show "$RUN" || stood_still thread_gap 0.8       # a pull has 1 s
  kill -INT "$replay"; wait "$replay" || [ "$?" -eq 130 ]
  exec 8>&-
  kill "$PID_reader"
  # a daemon with a hanging log ends in its time all the same
  for n in n001 n002; do pid=PID_$n; kill -TERM "${!pid}"; done
  for n in n001 n002; do pid=PID_$n; wait_until 8 ended "${!pid}"; done
}
