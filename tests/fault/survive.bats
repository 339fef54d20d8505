#!/usr/bin/env bats
# Jobs while everything dies, hangs and fills up: each TF is done once, what cannot be is said with its reason.
load ../lib
load ../rig

setup() { rig_setup; }
teardown() { farm_teardown; }

# async LIST: nodes of class real in the async pool.
async() { sluice node add "$1" --class real --pool async >/dev/null; }
# fake_worker NODE [WRAPPER...]: a worker whose reconstruction process does what $FARM/does-NODE says.
fake_worker() { local node=$1; shift; worker "$node" env "FAKE_RECO_DOES=as:$FARM/does-$node" "$@" -- --reco "$FAKES/reco"; }
job_is() { is ".jobs[0] | $2" "$3" sluice job show "$1"; }
task() { json ".tasks[0].$2 // \"\"" sluice job tfs "$1"; }
device_pid() { pgrep -P "$(worker_status "$1" .pid)" -x reco; }

@test "B26 a child that ignores SIGTERM, one in D state: TERM, KILL, then released as unkillable with node, pid, since and where; the node is marked, the slot blocked" {
  need_root "mount a file system"
  [[ -w /dev/fuse ]] || skip "no /dev/fuse here"
  real_class 1
  room stall -- "mkdir -p $FARM/stall; exec 7<>/dev/fuse; mount -i -t fuse -o fd=7,rootmode=40000,user_id=0,group_id=0 stall $FARM/stall
                 perl $SLUICE_SRCDIR/tests/fault/stall.pl 9>&- & echo \$! >$FARM/stall.pid; exec 7>&-"
  daemon
  async 'n[001-002]'
  fake_worker n001 "${IN_stall[@]}"
  wait_until 20 node_is n001 .usable true
  # TERM is ignored: KILL ends it, the TF fails by the job's limit, the device goes on
  echo deaf >"$FARM/does-n001"
  old=$(device_pid n001)
  id=$(sluice submit "$(sample 2)" --workflow decode --output "$FARM/out" --time 00:01 --attempts 1)
  wait_until 20 job_is "$id" .state failed
  [ "$(task "$id" code)" = TimedOut ]
  [[ $(task "$id" text) == *"time limit of 1 s is over"* ]]
  [ "$(task "$id" node)" = n001 ]
  wait_until 5 ended "$old"
  wait_until 20 node_is n001 '[.usable, .devices[0].state] | join(" ")' "true free"
  # it waits in the kernel: nothing ends it
  echo "stall:$FARM/stall/x" >"$FARM/does-n001"
  old=$(device_pid n001)
  id=$(sluice submit "$(sample 2)" --workflow decode --output "$FARM/out" --time 00:01 --attempts 1)
  wait_until 30 job_is "$id" .state failed
  [ "$(task "$id" code)" = Unkillable ]
  echo "$(task "$id" text)"
  [[ $(task "$id" text) =~ ^"unkillable on n001, pid $old, since "20..-..-..T.*", waiting in "[a-z_]+$ ]]
  ! ended "$old"
  wait_until 20 node_is n001 '[.usable, (.marks | length > 0), .devices[0].state] | join(" ")' "false true broken"
  node_is n001 '.marks[0].owner_kind' health
  [[ $(json '.nodes[] | select(.name == "n001") | .marks[0].reason' sluice nodes) == *"unkillable on n001, pid $old"* ]]
  # its slot stays blocked: others do the work
  rm "$FARM/does-n001"
  fake_worker n002
  id=$(sluice submit "$(samples)" --workflow decode --output "$FARM/out")
  sluice wait job "$id" --timeout 60s
  [ "$(json '[.tasks[].node] | unique | join(" ")' sluice job tfs "$id")" = n002 ]
  node_is n001 '[.usable, .devices[0].state] | join(" ")' "false broken"
  # the kernel lets it go: the device works again
  kill "$(cat "$FARM/stall.pid")"
  wait_until 20 ended "$old"
  wait_until 20 node_is n001 '.devices[0].state' free
  [ -z "$(json '.nodes[] | select(.name == "n001") | .marks[] | select(.cleared == null) | .id' sluice nodes 2>/dev/null)" ] || sluice clear n001 "it is gone" --any-owner
  wait_until 20 node_is n001 .usable true
  sluice check
}

# ---- everything dies ----

reco_pids() { local n p; for n in n001 n002 n003; do p=$(worker_status "$n" .pid 2>/dev/null) && pgrep -P "$p" -f 'sluice-reco|reco attach'; done; }
any_of() { local all=("$@"); [[ $# -gt 0 ]] && echo "${all[RANDOM % $#]}"; }
again_worker() { worker "$1" "${IN_disk[@]}" -- >/dev/null; }

# What happens to the farm, one thing at a time; each ends with all programs there again.
harm_sluiced_killed() { daemon_kill; daemon; }
harm_sluiced_stopped() { kill -STOP "$PID_sluiced"; sleep 5.5; kill -CONT "$PID_sluiced"; }     # all connections are cut
harm_worker_killed() { local n pid; n=$(any_of n001 n002 n003); pid=PID_$n; kill -KILL "${!pid}"; wait_until 10 ended "${!pid}"; again_worker "$n"; }
harm_worker_stopped() { local n pid; n=$(any_of n001 n002 n003); pid=PID_$n; kill -STOP "${!pid}"; sleep 5.5; kill -CONT "${!pid}"; }
harm_reco_killed() { local pid; pid=$(any_of $(reco_pids)) && kill -KILL "$pid" 2>/dev/null || true; }
harm_reco_stopped() { local pid; pid=$(any_of $(reco_pids)) && kill -STOP "$pid" 2>/dev/null && sleep 0.7 && kill -CONT "$pid" 2>/dev/null || true; }      # and comes back
harm_reco_hangs() { local pid; pid=$(any_of $(reco_pids)) && kill -STOP "$pid" 2>/dev/null || true; }                                                   # until it is ended
harm_disk_full() { dd if=/dev/zero of="$DISK/filler" bs=64k 2>/dev/null || true; sleep 1.5; rm "$DISK/filler"; }
HARMS=(sluiced_killed worker_killed reco_killed reco_killed reco_killed reco_stopped reco_hangs disk_full)
SLOW_HARMS=(sluiced_stopped worker_stopped)

@test "a job of hundreds of TFs while everything is killed, stopped, cut off and filled up: each TF done once, results bit for bit those of an undisturbed run" {
  need_rooms
  local tfs harm id state n=0 counts=() settled=-1 now moved_s
  tfs=300; [[ -z ${SLUICE_SOAK:-} ]] || tfs=10000
  RANDOM=$SEED
  sluice simulate -o "$FARM/in" --frames 50 --tracks 2 --bins 200 --seed "$SEED" >/dev/null 2>&1
  cat "$FARM"/in/sim-*.tf >"$FARM/in/all.tf"; rm "$FARM"/in/sim-*
  for ((i = 0; i < tfs / 50; i++)); do ln "$FARM/in/all.tf" "$FARM/in/part-$i.tf"; echo "$FARM/in/part-$i.tf"; done >"$FARM/list"
  sluice reco "$FARM/in/part-0.tf" --workflow decode --output "$FARM/undisturbed" >/dev/null 2>&1
  # what dies here is chosen by lot: one of thousands may be met again and again and is none the worse for it
  printf 'limits {\n  process_timeout = 2\n  deaths = 100\n}\n' >>"$FARM/conf"
  real_class 100
  room disk -- "mkdir -p $FARM/out && mount -t tmpfs -o size=$((16 + tfs / 8))M,mode=1777 tmpfs $FARM/out"
  DISK=$ROOM_disk$FARM/out
  daemon
  async 'n[001-003]'
  for node in n001 n002 n003; do again_worker "$node"; done
  start_s=$SECONDS moved_s=$SECONDS
  id=$(sluice submit --input "$FARM/list" --workflow decode --output "$FARM/out" --attempts 100)
  for ((;;)); do
    read -r state now < <(sluice job show "$id" --json 2>/dev/null | jq -r '.jobs[0] | "\(.state) \(.done + .failed)"') || state= now=$settled
    [[ $state != done && $state != failed ]] || break
    # however long it takes on a busy machine, it gets on
    [[ $now == "$settled" ]] || settled=$now moved_s=$SECONDS
    [[ $((SECONDS - moved_s)) -lt 90 ]] || { sluice job show "$id"; false; }
    harm=${HARMS[RANDOM % ${#HARMS[@]}]}
    ((++n % 12)) || harm=${SLOW_HARMS[RANDOM % ${#SLOW_HARMS[@]}]}
    counts+=("$harm")
    harm_$harm
    sleep "0.$((RANDOM % 6 + 1))"
  done
  { echo "$tfs TFs in $((SECONDS - start_s)) s, seed $SEED:"; printf '%s\n' "${counts[@]}" | sort | uniq -c; } | paste -sd' ' | tee "$FARM/figures" >&3
  wait_until 30 job_is "$id" '[.done, .failed, .cancelled, .skipped, .waiting, .running] | join(" ")' "$tfs 0 0 0 0 0"
  sluice job show "$id" --json | jq -r '.jobs[0] | "retried \(.retried), failures \(.failures)"' >&3
  wait_until 30 is '[.nodes[] | .tfs + .buffer_charged] | add' 0 sluice nodes
  # each once, nothing beside them, all of them as if nothing had been
  wait_until 20 eval '[ -z "$(find "$DISK" -name "*.a[0-9]*")" ]'
  [ "$(ls "$DISK" | grep -c '\.digits$')" -eq "$tfs" ]
  [ "$(ls "$DISK" | grep -vcE '^part-[0-9]+\.[0-9]+\.digits(\.json)?$')" -eq 0 ]
  (cd "$FARM/undisturbed" && for f in part-0.*.digits; do echo "$(md5sum <"$f") ${f#part-0.}"; done) | sort -u >"$FARM/wanted"
  for ((i = 0; i < tfs / 50; i++)); do
    (cd "$DISK" && for f in part-"$i".*.digits; do echo "$(md5sum <"$f") ${f#part-"$i".}"; done) | sort -u | diff "$FARM/wanted" - || { echo "part-$i differs"; false; }
  done
  [ "$(wc -l <"$FARM/wanted")" -eq 50 ]
  find "$DISK" -name '*.json' -exec cat {} + | jq -se --argjson n "$tfs" 'length == $n and all(.attempt >= 1 and (.node | startswith("n00")) and .software and .digest and .workflow == "decode" and (.conditions | has("version") and has("gain_map")))' >/dev/null
  [ "$(json '[.tasks[].state] | unique | join(" ")' sluice job tfs "$id")" = done ]
  sluice check >"$FARM/check.txt" || { cat "$FARM/check.txt"; false; }
}

# accepted_and_killed: a job of one TF, whose worker n001 is killed when its result is accepted and has no final name yet. Its id is in ID.
accepted_and_killed() {
  ID=$(sluice submit "$(sample 2)" --workflow decode --output "$FARM/out")
  wait_until 20 job_is "$ID" .running 1
  kill -STOP "$PID_sluiced"                            # it hears of the result when the disk takes no more names
  wait_until 20 eval '[ -n "$(find "$DISK" -name "*.digits.json.a*-j$ID")" ]'
  wait_until 20 "${IN_disk[@]}" mount -o remount,ro "$FARM/out"
  kill -CONT "$PID_sluiced"
  wait_until 20 job_is "$ID" .done 1
  kill -KILL "$PID_n001"
  wait_until 10 ended "$PID_n001"
  "${IN_disk[@]}" mount -o remount,rw "$FARM/out"
  [ "$(ls "$DISK" | grep -c "a[0-9]*-[0-9]*-j$ID\$")" -eq 2 ]
}

@test "an accepted result whose worker never returns is published by another one; where only that node sees the folder it waits for the node" {
  need_rooms
  real_class 20
  room disk -- "mkdir -p $FARM/out && mount -t tmpfs -o size=16M,mode=1777 tmpfs $FARM/out"
  DISK=$ROOM_disk$FARM/out
  daemon
  async 'n[001-002]'
  echo slow:1500 >"$FARM/does-n001"
  fake_worker n001 "${IN_disk[@]}"
  wait_until 20 node_is n001 .usable true
  accepted_and_killed
  fake_worker n002 "${IN_disk[@]}"
  name=$(basename "$(sample 2)" .tf).0.digits
  wait_until 20 eval '[ "$(ls "$DISK" | paste -sd" ")" = "$name $name.json" ]'
  cmp "$(sample 2)" "$DISK/$name"
  [ "$(jq -r "\"\(.job) \(.node)\"" "$DISK/$name.json")" = "$ID n001" ]
  wait_until 20 job_is "$ID" '[.state, .done, .failed] | map(tostring) | join(" ")' "done 1 0"
  # who does not see it leaves it as it is
  kill -KILL "$PID_n002"; wait_until 10 ended "$PID_n002"
  "${IN_disk[@]}" rm "$FARM/out/$name" "$FARM/out/$name.json"
  fake_worker n001 "${IN_disk[@]}"
  wait_until 20 node_is n001 .usable true
  accepted_and_killed
  fake_worker n002
  wait_until 20 grep -q "job $ID TF 0: node n001, which has its result, is away: node n002 is asked" "$FARM/sluiced.log"
  wait_until 20 job_is "$ID" '[.state, .done, .failed] | map(tostring) | join(" ")' "done 1 0"
  wait_until 40 is '.jobs[0].why' Unpublished sluice job show "$ID"
  sluice why "$ID" --json >"$FARM/why"
  run sluice wait job "$ID"
  [[ $status -eq 0 && $output == *"results without their final name yet: 1,"* ]]
  jq -e '[.. | objects | select(.code? == "Unpublished") | .nodes] == [["n001"]]' "$FARM/why"
  [ "$(ls "$DISK" | grep -c "a[0-9]*-[0-9]*-j$ID\$")" -eq 2 ]
  fake_worker n001 "${IN_disk[@]}"
  wait_until 20 eval '[ "$(ls "$DISK" | paste -sd" ")" = "$name $name.json" ]'
  wait_until 20 job_is "$ID" '[.state, .done, .failed] | map(tostring) | join(" ")' "done 1 0"
  sluice check
}

@test "output on the nodes' own disks: what a killed worker left half there its node removes, when it is back; each its own" {
  need_rooms
  real_class 20
  for room in a b; do room $room -- "mkdir -p $FARM/out && mount -t tmpfs -o size=16M,mode=1777 tmpfs $FARM/out"; done
  daemon
  async 'n[001-002]'
  for node in n001 n002; do echo slow:3000 >"$FARM/does-$node"; done
  fake_worker n001 "${IN_a[@]}"
  fake_worker n002 "${IN_b[@]}"
  wait_until 20 is '[.nodes[].usable] | all' true sluice nodes
  mkdir "$FARM/in"; for i in 1 2; do cp "$(sample 2)" "$FARM/in/f$i.tf"; done
  id=$(sluice submit "$FARM/in" --output "$FARM/out")
  wait_until 20 job_is "$id" .running 2
  kill -KILL "$PID_n001"
  wait_until 10 ended "$PID_n001"
  echo half >"$ROOM_a$FARM/out/f1.0.digits.a1-9-j$id"
  echo half >"$ROOM_b$FARM/out/f2.0.digits.a1-9-j$id"
  wait_until 20 node_is n001 .state down
  sluice job cancel "$id"
  run sluice wait job "$id" --timeout 60s
  [ "$status" -eq 11 ]
  wait_until 40 test ! -e "$ROOM_b$FARM/out/f2.0.digits.a1-9-j$id"
  [ -e "$ROOM_a$FARM/out/f1.0.digits.a1-9-j$id" ]
  fake_worker n001 "${IN_a[@]}"
  wait_until 40 test ! -e "$ROOM_a$FARM/out/f1.0.digits.a1-9-j$id"
  sluice check
}

@test "a job whose output disk is full pauses with the reason, and goes on by itself when there is room; others go on meanwhile" {
  need_rooms
  real_class 20
  room disk -- "mkdir -p $FARM/out && mount -t tmpfs -o size=16M,mode=1777 tmpfs $FARM/out"
  DISK=$ROOM_disk$FARM/out
  daemon
  async n001
  again_worker n001
  wait_until 20 node_is n001 .usable true
  dd if=/dev/zero of="$DISK/filler" bs=64k 2>/dev/null || true
  dd if=/dev/zero of="$DISK/filler2" bs=512 2>/dev/null || true
  for ((i = 0; i < 20; i++)); do ln -s "$(sample 2)" "$FARM/in-$i.tf"; echo "$FARM/in-$i.tf"; done >"$FARM/list"
  id=$(sluice submit --input "$FARM/list" --workflow decode --output "$FARM/out/full")
  wait_until 20 job_is "$id" .state paused
  [[ $(json '.jobs[0].why' sluice job show "$id") == "OutputFull: n001: "*"$FARM/out/full"*"No space left"* ]]
  [[ $(alarm JobsPaused) == "1 job is paused, job $id first: OutputFull"* ]]
  # the node is none the worse for it
  node_is n001 '[.usable, .state != "error"] | join(" ")' "true true"
  other=$(sluice submit "$(samples)" --workflow decode --output "$FARM/elsewhere")
  sluice wait job "$other" --timeout 60s
  job_is "$id" '[.state, .done, .failed] | join(" ")' "paused 0 0"
  rm "$DISK"/filler*
  sluice wait job "$id" --timeout 60s
  job_is "$id" '[.state, .done, .failed, .retried] | join(" ")' "done 20 0 0"
  # read-only in the middle: the job's trouble as well
  id2=$(sluice submit "$FARM"/in-[01].tf --workflow decode --output "$FARM/out/readonly" --hold)
  "${IN_disk[@]}" mount -o remount,ro "$FARM/out"
  sluice job release "$id2"
  wait_until 20 job_is "$id2" .state paused
  [[ $(json '.jobs[0].why' sluice job show "$id2") == "OutputReadOnly: n001: "*"$FARM/out/readonly"*"Read-only file system" ]]
  is '.why[0].code' OutputReadOnly sluice why "$id2"
  json '.status[0].alarms[] | select(.word == "JobsPaused").advice' sluice status | grep -q 'writable again'
  node_is n001 '[.usable, .state != "error"] | join(" ")' "true true"
  "${IN_disk[@]}" mount -o remount,rw "$FARM/out"
  sluice wait job "$id2" --timeout 60s
  job_is "$id2" '[.state, .done, .failed] | join(" ")' "done 2 0"
  for f in "$DISK"/full/*.digits "$DISK"/readonly/*.digits; do [ "$(xxh3 "$f")" = "${DIGITS[2]}" ]; done
  [ "$(ls "$DISK"/full | grep -c '\.digits$')" -eq 20 ]
  wait_until 10 no_alarm JobsPaused
  sluice check
}

@test "a time-frame of a run whose output disk is full is undelivered, and says why; it is done when there is room" {
  need_rooms
  real_class 20
  room disk -- "mkdir -p $FARM/out && mount -t tmpfs -o size=4M,mode=1777 tmpfs $FARM/out"
  DISK=$ROOM_disk$FARM/out
  daemon
  sluice node add n001 --class real >/dev/null
  again_worker n001
  wait_until 20 node_is n001 .usable true
  dd if=/dev/zero of="$DISK/filler" bs=64k 2>/dev/null || true
  dd if=/dev/zero of="$DISK/filler2" bs=512 2>/dev/null || true
  background replay sluice replay "$(sample 2)" --name full --output "$FARM/out/run"
  wait_until 20 is '[.tfs[].state] | unique | join(" ")' undelivered sluice run tfs 1
  [[ $(json '.tfs[0].text' sluice run tfs 1) == "results wait for their disk: "*"$FARM/out/run"*"No space left"* ]]
  rm "$DISK"/filler*
  wait_until 20 ended "$PID_replay"
  is '.runs[0] | [.done, .failed] | join(" ")' "1 0" sluice run show 1
}

@test "a node called to the online pool gives its TF back in its time: the try counts as preempted, not as failed, and another node does it" {
  real_class 1
  daemon
  async 'n[001-002]'
  for n in n001 n002; do echo slow:3000 >"$FARM/does-$n"; fake_worker "$n"; done
  wait_until 20 is '[.nodes[] | select(.usable)] | length' 2 sluice nodes
  id=$(sluice submit "$(sample 2)" --workflow decode --output "$FARM/out" --attempts 1)
  wait_until 20 eval '[ -n "$(json ".nodes[] | select(.processing > 0) | .name" sluice nodes)" ]'
  first=$(task "$id" node)
  from=$SECONDS
  sluice move "$first" --to online --when now --wait --timeout 20s
  [ $((SECONDS - from)) -le 5 ]
  wait_until 20 eval '[ "$(task "$id" node)" != "$first" ]'
  sluice wait job "$id" --timeout 30s
  job_is "$id" '[.state, .done, .failed, .retried, .preempted] | join(" ")' "done 1 0 0 1"
  [ "$(task "$id" attempt)" -eq 2 ]
  node_is "$first" '[.pool, .usable] | join(" ")' "online true"
  sluice check
}

# try COMMAND...: again while sluiced is away; its status otherwise.
try() { local rc; while :; do "$@" 2>"$FARM/try.err" && rc=0 || rc=$?; [[ $rc -eq 6 || $rc -eq 7 ]] || return "$rc"; sleep 0.05; done; }

@test "B27 1 000 jobs are submitted and cancelled at random moments while sluiced is killed: what was confirmed never runs afterwards, late reports change nothing" {
  local i id rc pairs cancelled=0 over=0
  pairs=$(scaled 100); [[ -z ${SLUICE_SOAK:-} ]] || pairs=1000
  RANDOM=$SEED
  daemon
  sluice node add 'n[001-003]' --class fake --pool async
  workers 3 --seconds-per-tf 0.03,0.001,0.1 --build-seconds 0.002
  background killer bash -c 'for ((;;)); do sleep "$1"; kill -KILL "$(cat "$2/sluiced.pid")" 2>/dev/null; done' - 0.7 "$FARM"
  echo "$PID_sluiced" >"$FARM/sluiced.pid"
  background keeper bash -c 'for ((;;)); do
      until ended "$(cat "$1/sluiced.pid")"; do sleep 0.02; done
      sluiced --config "$1/conf" --state "$1/state" --socket "$SLUICE_SOCKET" --log "$1/sluiced.log" & echo $! >"$1/sluiced.pid"
    done' - "$FARM"
  file=$(sample 2)
  for ((i = 0; i < pairs; i++)); do
    id=$(try sluice submit "$file" --workflow none --key "pair-$i" --quiet)
    sleep "0.0$((RANDOM % 90 + 10))"
    try sluice job cancel "$id" >"$FARM/answer" && rc=0 || rc=$?
    case $rc in
      0) cancelled=$((cancelled + 1)); echo "$id $(try sluice job tfs "$id" --json | jq -r '.tasks[0] | "\(.state) \(.attempt)"')" >>"$FARM/confirmed" ;;
      4) grep -q 'is over: done' "$FARM/try.err" || grep -q 'is over: cancelled' "$FARM/try.err"; over=$((over + 1)) ;;
      *) cat "$FARM/try.err"; false ;;
    esac
  done
  kill "$PID_killer"; wait_until 5 ended "$PID_killer"
  wait_until 20 sluice ping
  echo "$pairs pairs: $cancelled cancelled, $over were over before; sluiced was started $(grep -c ': start ' "$FARM/sluiced.log") times" >&3
  [ "$(grep -c ' cancelled ' "$FARM/confirmed")" -gt $((pairs / 4)) ]
  [ "$(grep -c ': start ' "$FARM/sluiced.log")" -ge 3 ]
  # the slowest late report is in by now
  wait_until 30 is '[.nodes[] | .tfs + .buffer_charged] | add' 0 sluice nodes
  local looked=0 now
  while read -r id state attempt; do
    case $state in
      cancelled) job_is "$id" '[.state, .done, .cancelled] | join(" ")' "cancelled 0 1" ;;
      # it was done already when the cancellation came, and not yet on disk: the log has what was counted at that moment
      done) job_is "$id" '[.state, .done, .cancelled] | join(" ")' "cancelled 1 0"
            grep -q ": job $id: cancelled: 1 done, 0 failed, 0 cancelled" "$FARM/sluiced.log" ;;
      *) echo "job $id: $state when its cancellation was confirmed"; false ;;
    esac
    now=$(sluice job tfs "$id" --json 2>/dev/null | jq -r '.tasks[0] | "\(.state) \(.attempt)"')
    [[ -n $now ]] || continue        # of old jobs the tries are not in memory
    [ "$now" = "$state $attempt" ] || { echo "job $id: attempt $attempt when it was cancelled, now $now"; false; }
    looked=$((looked + 1))
  done < <(sort -un "$FARM/confirmed")
  [ "$looked" -ge 20 ]
  is '[.jobs[] | select(.state != "cancelled" and .state != "done")] | length' 0 sluice jobs --all
  sluice check >"$FARM/check.txt" || { cat "$FARM/check.txt"; false; }
  kill "$PID_keeper"; wait_until 5 ended "$PID_keeper"
  kill -TERM "$(cat "$FARM/sluiced.pid")"
}

# clock PROGRAM: wrapper WRAP of a daemon whose wall clock stands in $FARM/clock, as "+0", "-3h"; the monotonic one stays.
clock() {
  local lib preload
  lib=$(find /usr/lib -name libfaketimeMT.so.1 | head -n 1)
  preload=$lib
  ! ldd "$SLUICE_BUILDDIR/$1" | grep -q libasan || preload=$(ldd "$SLUICE_BUILDDIR/$1" | awk '/libasan/ { print $3 }'):$lib
  WRAP=(env LD_PRELOAD="$preload" FAKETIME_TIMESTAMP_FILE="$FARM/clock" FAKETIME_NO_CACHE=1 FAKETIME_DONT_FAKE_MONOTONIC=1 DONT_FAKE_MONOTONIC=1
        ASAN_OPTIONS="$ASAN_OPTIONS:verify_asan_link_order=0")
}
clock_clean() { local f; for f in /dev/shm/faketime_shm_* /dev/shm/sem.faketime_sem_*; do [[ ! -e $f || -e /proc/${f##*_} ]] || rm -f "$f"; done; }

@test "a clock that is stepped by hours, there and back, kills nothing: no node, no try, no pause of a job" {
  [[ -n $(find /usr/lib -name libfaketimeMT.so.1) ]] || skip "faketime is not installed"
  real_class 50
  echo +0 >"$FARM/clock"
  clock sluiced
  daemon "${WRAP[@]}"
  clock sluice-worker
  async 'n[001-002]'
  for n in n001 n002; do echo slow:150 >"$FARM/does-$n"; fake_worker "$n" "${WRAP[@]}"; done
  wait_until 20 is '[.nodes[] | select(.usable)] | length' 2 sluice nodes
  for ((i = 0; i < 120; i++)); do ln -s "$(sample 2)" "$FARM/in-$i.tf"; echo "$FARM/in-$i.tf"; done >"$FARM/list"
  id=$(sluice submit --input "$FARM/list" --workflow decode --output "$FARM/out" --attempts 100 --time 00:05)
  # one that fails waits meanwhile: its pause is no hours
  echo "crash-once:$FARM/crashed" >"$FARM/does-n001"
  wait_until 20 test -e "$FARM/crashed"
  echo slow:150 >"$FARM/does-n001"
  for step in +3h -3h +26h +0; do
    n=$(json '.jobs[0].done' sluice job show "$id")
    echo "$step" >"$FARM/clock"
    wait_until 20 eval '[ "$(json ".jobs[0] | .done + .failed" sluice job show "$id")" -gt '"$n"' ]'
    sleep 0.7
    wait_until 3 is '[.nodes[] | select(.usable and .contact == "up")] | length' 2 sluice nodes
  done
  # and one that is started anew with hours between
  echo -5h >"$FARM/clock"
  daemon_kill
  clock sluiced
  daemon "${WRAP[@]}"
  sluice wait job "$id" --timeout 60s
  job_is "$id" '[.done, .failed, .cancelled, .retried] | join(" ")' "120 0 0 1"
  ! grep -qE 'NodeLost|TimedOut|Stalled' "$FARM/sluiced.log"
  sluice check
  kill -TERM "$PID_sluiced" "$PID_n001" "$PID_n002"
  for p in "$PID_sluiced" "$PID_n001" "$PID_n002"; do wait_until 10 ended "$p"; done
  clock_clean
}

@test "a TF that kills reconstruction processes is set aside after three of them, with nodes and crash folder, whatever tries are left; a rerun tries it again" {
  real_class 1
  echo 'worker { crash_dir = "'"$FARM"'/crash" }' >>"$FARM/conf"
  daemon
  async 'n[001-002]'
  for n in n001 n002; do echo crash >"$FARM/does-$n"; fake_worker "$n"; done
  wait_until 20 is '[.nodes[] | select(.usable)] | length' 2 sluice nodes
  id=$(sluice submit "$(sample 2)" --workflow decode --output "$FARM/out" --attempts 50)
  wait_until 60 job_is "$id" .state failed
  [ "$(sluice job tfs "$id" --json | jq -r '.tasks[0] | "\(.state) \(.code)"')" = "set-aside HeldPoison" ]
  text=$(task "$id" text)
  [[ $text == "3 processes died of it, on n00"[12]",n00"[12]",n00"[12]"; the last: "*"signal 11"*"; kept in $FARM/crash/"* ]]
  [[ $text == *n001* && $text == *n002* ]]
  folder=${text##*kept in }
  cmp "$folder/tf" "$(sample 2)"
  [ "$(json '[.crashes[] | select(.word == "Crashed")] | length' sluice crash list)" -eq 3 ]
  sluice job tfs "$id" -t set-aside | grep -q HeldPoison
  [ "$(json '.tasks | length' sluice job tfs "$id" -t failed)" -eq 0 ]
  # who asks for the logs of the job, or about it, is told of it, too
  [ "$(sluice logs "$id" --json | jq '[.attempts[] | select(.code == "Crashed" or .code == "HeldPoison")] | length')" -eq 3 ]
  is '.jobs[0].failures[] | select(.name == "HeldPoison").value' 1 sluice job show "$id"
  json '.why[] | select(.code == "HeldPoison").text' sluice why "$id" | grep -q '1 of those that failed is set aside'
  run sluice wait job "$id"
  [ "$status" -eq 10 ]
  # it stays so, until somebody says otherwise; who begins to wait while sluiced is dead waits for it, too
  daemon_kill
  sluice wait job "$id" --timeout 30s 3>&- &
  waits=$!
  daemon
  status=0; wait "$waits" || status=$?
  [ "$status" -eq 10 ]
  [ "$(sluice job tfs "$id" --json | jq -r '.tasks[0].state')" = set-aside ]
  for n in n001 n002; do echo copy >"$FARM/does-$n"; done
  sluice clear @all "mended" --any-owner --repeat-ok >/dev/null 2>&1 || true
  sluice job rerun "$id" --failed
  sluice wait job "$id" --timeout 60s
  job_is "$id" '[.state, .done, .failed] | join(" ")' "done 1 0"
  sluice check
}
