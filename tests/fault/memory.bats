#!/usr/bin/env bats
# Too little shared memory, a full output disk: said with numbers, waited for, never a bus error, nothing lost.
load ../lib
load ../rig

setup() { rig_setup; need_rooms; real_class 20; }
teardown() { local rc=0; farm_teardown || rc=1; [[ -z ${GROUP:-} ]] || rmdir "$GROUP" || rc=1; return $rc; }

# memory_group: a control group of this test's, GROUP, whose limit is the file LIMIT. Skips where none can be made.
memory_group() {
  local root
  for root in /sys/fs/cgroup/memory /sys/fs/cgroup /sys/fs/cgroup/unified; do
    GROUP=$root/sluice-test-$$-$RANDOM
    mkdir "$GROUP" 2>/dev/null || continue
    for LIMIT in "$GROUP/memory.limit_in_bytes" "$GROUP/memory.max"; do
      [[ ! -w $LIMIT ]] || return 0
    done
    rmdir "$GROUP"
  done
  GROUP=
  skip "no control group with a memory limit can be made here"
}

# shm_room SIZE: shared memory of that size.
shm_room() { room shm -- "mkdir -p $FARM/shm && mount -t tmpfs -o size=$1,mode=1777 tmpfs $FARM/shm"; shm=$ROOM_shm$FARM/shm; }
no_bus_error() { ! grep -rqiE 'SIGBUS|bus error|signal 7' "$FARM" --include='*.log' --include='*.out'; }

@test "B60 128 MB asked of a 64 MB shared memory: refused with both sizes, state error ShmShort; with room it comes by itself" {
  shm_room 64M
  daemon
  nodes_real n001
  worker n001 "${IN_shm[@]}" -- --shm 128M
  wait_until 20 worker_is n001 '[.state, .word] | join(" ")' "error ShmShort"
  [[ $(worker_status n001 .reason) == *"128M wanted"* && $(worker_status n001 .reason) == *"64M available"* ]]
  wait_until 20 node_is n001 '[.state, .usable, (.why | index("ShmShort") != null)] | join(" ")' "error false true"
  run sluice node show n001
  [[ $output == *"128M wanted"* ]]
  [[ $(alarm WorkerTrouble) == *"n001: "*"128M wanted"* ]]
  # nothing was taken meanwhile
  [ "$(du -sk "$shm" | cut -f1)" -lt 1024 ]
  "${IN_shm[@]}" mount -o remount,size=200M "$FARM/shm"
  wait_until 40 node_is n001 '[.state, .usable, .buffer_size] | join(" ")' "idle true $((128 << 20))"
  sluice replay "$(sample 2)" --workflow none --loop 5
  no_bus_error
}

@test "B60 another process fills it after the start: the work goes on; a restart finds its own buffer again" {
  shm_room 64M
  daemon
  nodes_real n001
  worker n001 "${IN_shm[@]}" -- --shm 48M
  wait_until 20 node_is n001 .usable true
  dd if=/dev/zero of="$shm/other" bs=1M 2>/dev/null || true
  dd if=/dev/zero of="$shm/other2" bs=4k 2>/dev/null || true
  [ "$(stat -f -c %a "$shm")" = 0 ]
  RUN=$(sluice run start --workflow decode --output "$FARM/out")
  sluice replay "$(samples)" --run "$RUN" --loop 4
  sluice run stop "$RUN"
  is '.runs[0] | [.done, .failed, .lost] | join(" ")' "12 0 0" sluice run show "$RUN"
  [ "$(xxh3 "$FARM/out/$RUN/tf-2.digits")" = "${DIGITS[1]}" ]
  kill -KILL "$PID_n001"; wait_until 10 ended "$PID_n001"
  worker n001 "${IN_shm[@]}" -- --shm 48M
  wait_until 20 node_is n001 .usable true
  [ "$(worker_status n001 .buffer.adopted)" = true ]
  sluice replay "$(samples)" --workflow decode --loop 2
  kill -TERM "$PID_n001"; wait_until 10 ended "$PID_n001"
  # and one that has to begin there is refused
  rm -f "$shm"/*.buffer; dd if=/dev/zero of="$shm/other3" bs=1M 2>/dev/null || true
  worker n001 "${IN_shm[@]}" -- --shm 48M
  wait_until 20 worker_is n001 .word ShmShort
  [[ $(worker_status n001 .reason) == *"48M wanted"* ]]
  no_bus_error
}

@test "B60 a control group that leaves too little: refused with both sizes and the group's name before a page is touched; with room it comes by itself" {
  memory_group
  echo 100M >"$LIMIT"
  daemon
  nodes_real n001
  # the shell is the group's, and becomes the worker
  # shellcheck disable=SC2016
  worker n001 bash -c 'echo $$ >"$0/cgroup.procs"; exec "$@"' "$GROUP" -- --shm 128M
  wait_until 20 node_is n001 '[.state, (.why | index("ShmShort") != null)] | join(" ")' "error true"
  local left='128M wanted, [0-9.]+( Mi?B|M) left by the memory limit of control group '
  [[ $(worker_status n001 .reason) =~ $left$GROUP ]]
  grep -qE "(^|/)${GROUP##*/}$" "/proc/$PID_n001/cgroup"
  [ -z "$(find "$FARM/shm" -type f -size +1M)" ]
  echo 500M >"$LIMIT"
  wait_until 30 node_is n001 .usable true
  wait_until 10 worker_is n001 .buffer.size $((128 << 20))
  ! ended "$PID_n001"
  # another size is asked about in the same way: the old one stays, no page of the new one was touched, and the worker lives
  run -4 sluice shm set n001 900M
  [[ $output =~ "stays at 128M: ".*"900M wanted, "[0-9.]+( Mi?B|M)" left by the memory limit of control group ".*${GROUP##*/} ]]
  [ "$(stat -c %s "$(worker_status n001 .buffer.path)")" = $(((128 << 20) + 4096)) ]
  run -0 sluice shm set n001 300M
  wait_until 10 node_is n001 .usable true
  ! ended "$PID_n001"
}

@test "a full output disk: delivery waits, says so, takes no more than it can hold, and goes on by itself; nothing is lost" {
  room disk -- "mkdir -p $FARM/out && mount -t tmpfs -o size=16M,mode=1777 tmpfs $FARM/out"
  disk=$ROOM_disk$FARM/out
  daemon
  nodes_real n001
  worker n001 "${IN_disk[@]}" --
  wait_until 20 node_is n001 .usable true
  dd if=/dev/zero of="$disk/filler" bs=1M 2>/dev/null || true
  dd if=/dev/zero of="$disk/filler2" bs=512 2>/dev/null || true
  RUN=$(sluice run start --workflow decode --output "$FARM/out")
  sluice replay "$(sample 2)" --run "$RUN" --loop 12 --rate 30 >"$FARM/replay.out" 2>&1 3>&- &
  replay=$!
  wait_until 30 worker_is n001 .state error
  [[ $(worker_status n001 .reason) == *"$FARM/out"* ]]
  wait_until 20 node_is n001 '.why | length > 0' true
  [[ $(alarm WorkerTrouble) == *"n001: "*"No space left"* ]]
  [ "$(run_number done)" -eq 0 ]
  [ "$(run_number failed)" -eq 0 ]
  # it stops taking: what waits is bounded, heartbeats go on
  node_is n001 .contact up
  [ "$(run_number in_flight)" -gt 0 ]
  rm "$disk"/filler*
  wait "$replay"
  sluice run stop "$RUN"
  is '.runs[0] | [.announced, .done, .failed, .lost] | join(" ")' "12 12 0 0" sluice run show "$RUN"
  [ "$(ls "$disk/$RUN" | grep -c '\.digits$')" -eq 12 ]
  [ -z "$(find "$disk" -name '*.a[0-9]*')" ]
  for f in "$disk/$RUN"/*.digits; do [ "$(xxh3 "$f")" = "${DIGITS[2]}" ]; done
  wait_until 20 node_is n001 '[.state, .usable, .buffer_used] | join(" ")' "idle true 0"
  sluice check
}

@test "output that can never be written: its cause, with path and error, is at the run, at each TF and an alarm; also after a restart" {
  daemon
  nodes_real n001
  local wrap=()
  [[ $EUID -ne 0 ]] || wrap=(setpriv --bounding-set=-dac_override,-dac_read_search)       # else nothing is forbidden to root
  worker n001 "${wrap[@]}" --
  wait_until 20 node_is n001 .usable true
  local cause path what
  for what in file gone forbidden; do
    path=$FARM/out-$what
    mkdir "$path"
    RUN=$(sluice run start --workflow decode --output "$path")
    word=OutputFailed
    case $what in
      file) echo here >"$path/$RUN"; cause="$path/$RUN.*: (Not a directory|a folder is wanted)" ;;
      gone) rmdir "$path"; echo here >"$path"; cause="$path.*: (Not a directory|a folder is wanted)" ;;
      forbidden) chmod 500 "$path"; word=OutputDenied cause="$path.*: Permission denied" ;;
    esac
    sluice replay "$(sample 2)" --run "$RUN" --loop 2 --rate max >"$FARM/replay.out" 2>&1 3>&- || [ "$?" -eq 10 ]
    sluice run stop "$RUN" >/dev/null
    is '.runs[0] | [.done, .failed, .lost, .state] | join(" ")' "0 2 0 error" sluice run show "$RUN"
    run sluice wait run "$RUN"
    [ "$status" -eq 1 ]
    [[ $(json '.runs[0].text' sluice run show "$RUN") =~ ^"TF "[12]" failed on n001 after 3 tries: $word: "$cause ]]
    [ "$(json '[.tfs[] | .reason] | unique | join(" ")' sluice run tfs "$RUN" --settled)" = $word ]
    [ "$(json "[.tfs[] | select(.text | test(\"$cause\"))] | length" sluice run tfs "$RUN" --settled)" -eq 2 ]
    [[ $(sluice status --json | jq -r --arg r "run $RUN:" '.status[0].alarms[] | select(.word == "TfsFailed" and (.text | startswith($r))) | .text') =~ "2 TFs failed; TF "[12]" failed on n001 after 3 tries: $word: "$cause ]]
  done
  # what the database says of it
  daemon_kill
  daemon
  [[ $(json '.runs[0].text' sluice run show "$RUN") =~ "$word: "$cause ]]
  [ "$(json "[.tfs[] | select(.reason == \"$word\" and (.text | test(\"$cause\")))] | length" sluice run tfs "$RUN" --settled)" -eq 2 ]
  # a run of the replay's own: it does not begin where nothing can be written, as a node that is there says
  wait_until 20 node_is n001 .usable true
  run sluice replay "$(sample 2)" --workflow decode --output "$path"
  [ "$status" -eq 5 ]
  [[ $output == *"$path: node n001 says: "*"Permission denied"* ]]
  # nothing was done, which is more than some that failed
  path=$FARM/out-own
  mkdir "$path"
  for i in {1..9}; do echo here >"$path/$((RUN + i))"; done
  run sluice replay "$(sample 2)" --workflow decode --output "$path"
  [ "$status" -eq 1 ]
}
