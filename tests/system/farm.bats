#!/usr/bin/env bats
# up and down: one farm, several, at odd places, twice at once, by somebody else, interrupted.
load ../lib
load ../rig

setup() { farm_setup; }
teardown() { farm_teardown; }

shm_dir() { cat "$1/shm-dir"; }

@test "two ups at once on one folder: one sluiced, one worker a node, both print the socket" {
  sluice up --dir "$FARM/farm" --nodes mi50:2 >"$FARM/one.txt" 2>&1 3>&- &
  first=$!
  sluice up --dir "$FARM/farm" --nodes mi50:2,mi100:1 >"$FARM/two.txt" 2>&1 3>&- &
  second=$!
  wait "$first"; wait "$second"
  [ "$(tail -n 1 "$FARM/one.txt")" = "$SLUICE_SOCKET" ]
  [ "$(tail -n 1 "$FARM/two.txt")" = "$SLUICE_SOCKET" ]
  [ "$(grep -h 'started sluiced' "$FARM/one.txt" "$FARM/two.txt" | wc -l)" -eq 1 ]
  is '[.nodes[] | select(.usable)] | length' 3 sluice nodes
  [ "$(grep -c . "$FARM/farm/started")" -eq 5 ]
}

@test "nodes can be added while the farm is up; other buffers and service times are refused, and changed while it is down" {
  farm_up --nodes mi50:1
  before=$(sluice status --json | jq .status[0].pid)
  farm_up --nodes mi50:2,mi100:1
  is '[.nodes[] | select(.usable) | .name] | sort | join(" ")' 'mi100-001 mi50-001 mi50-002' sluice nodes
  [ "$(sluice status --json | jq .status[0].pid)" = "$before" ]
  run farm_up --shm 16M
  [ "$status" -eq 4 ]
  [[ $output == *"sluice down"* ]]
  run farm_up --nominal mi50=10
  [ "$status" -eq 4 ]
  sluice down --dir "$FARM/farm"
  farm_up --shm 16M --nominal mi50=10
  is '[.nodes[].buffer_size] | unique | join(" ")' 16777216 sluice nodes
  is '.nodes[] | select(.name == "mi50-001") | .devices[0].nominal' 0.01 sluice nodes
}

@test "two farms beside each other share nothing" {
  farm_up --nodes mi50:1
  sluice up --dir "$FARM/other" --nodes mi50:1 3>&-
  [ "$(shm_dir "$FARM/farm")" != "$(shm_dir "$FARM/other")" ]
  sluice mark mi50-001 "only here"
  [ "$(sluice --socket "$FARM/other/sluiced.sock" nodes --json | jq '.nodes[0].marks | length')" = 0 ]
  kept=$(shm_dir "$FARM/other")
  sluice down --dir "$FARM/farm"
  [ -d "$kept" ]
  sluice --socket "$FARM/other/sluiced.sock" ping
  sluice down --dir "$FARM/other"
  [ ! -e "$kept" ]
}

@test "paths longer than a socket's address work, and are found from below" {
  deep=$FARM/$(printf 'x%.0s' {1..100})/$(printf 'y%.0s' {1..100})
  mkdir -p "$deep/below"
  cd "$deep"
  unset SLUICE_SOCKET
  sluice up --nodes mi50:1 --nominal mi50=10 3>&-
  cd below
  is '.nodes[0].usable' true sluice nodes
  sluice replay "$(sample 2)" --workflow none
  cd ..
  sluice down
}

@test "a farm folder of another user in a parent is not used, nor brought up" {
  [ "$EUID" -eq 0 ] || skip "only root can make a folder of somebody else"
  mkdir -p "$FARM/a/sluice-farm" "$FARM/a/b"
  printf '' >"$FARM/a/sluice-farm/sluice.conf"
  chown -R nobody "$FARM/a/sluice-farm"
  cd "$FARM/a/b"
  unset SLUICE_SOCKET
  run sluice ping
  [ "$status" -eq 6 ]
  [[ $output == */run/sluice/* ]]
  cd ..
  run sluice up
  [ "$status" -eq 5 ]
  run sluice down
  [ "$status" -eq 5 ]
}

@test "a farm needs no root" {
  mkdir "$FARM/nobody"
  [ "$EUID" -ne 0 ] || chown nobody "$FARM/nobody"
  unset SLUICE_SOCKET
  sample=$(sample 2)
  cp "$sample" "$FARM/nobody/s.tf"; chmod a+r "$FARM/nobody/s.tf"
  cd "$FARM/nobody"
  as_nobody env "PATH=$PATH" sluice up --nodes mi50:1 --nominal mi50=10 3>&-
  as_nobody env "PATH=$PATH" sluice replay s.tf --output "$FARM/nobody/out"
  [ -f out/1/tf-1.digits ]
  as_nobody env "PATH=$PATH" sluice down
}

@test "a start that cannot be says why and leaves what runs" {
  farm_up --nodes mi50:1
  mkdir "$FARM/bin"
  printf '#!/bin/sh\nwhile [ "$1" != --ready-fd ]; do shift; done\necho "the disk is made of cheese" >&$2\n' >"$FARM/bin/sluice-worker"
  chmod +x "$FARM/bin/sluice-worker"
  SLUICE_LIBEXEC=$FARM/bin run farm_up --nodes mi50:2
  [ "$status" -ne 0 ]
  [[ $output == *"mi50-002 did not start: the disk is made of cheese"* ]]
  is '.nodes[] | select(.name == "mi50-001") | .usable' true sluice nodes
  farm_up
  is '[.nodes[] | select(.usable)] | length' 2 sluice nodes
}

@test "a node that was retired: up leaves it alone, says how it comes back, and it does" {
  farm_up --nodes mi50:2
  sluice node retire mi50-002 "sold"
  retired() {
    run farm_up --timeout 50s
    echo "$output"
    [ "$status" -eq 0 ]
    [ "$(grep -c "retired: mi50-002 (\`sluice node add mi50-002 --class mi50\`" <<<"$output")" -eq 1 ]
  }
  retired                                # with its worker there yet
  sluice down --dir "$FARM/farm"
  retired                                # and after a start: it gets none
  is '[.nodes[].name] | join(" ")' mi50-001 sluice nodes
  sluice node add mi50-002 --class mi50
  farm_up
  is '[.nodes[] | select(.usable)] | length' 2 sluice nodes
}

@test "up tells of a class that is not emulated: it may be a slip" {
  run farm_up --nodes m100:1
  echo "$output"
  [ "$status" -eq 0 ]
  [[ $output == *"class m100 is new and not emulated"*"--nominal m100=MS"* ]]
  run farm_up --nodes mi50:1,own:1 --nominal own=20
  [ "$status" -eq 0 ]
  [[ $output != *"not emulated"* ]]
}

@test "a node that never gets usable: up says which and why when its time is over" {
  farm_up --nodes mi50:1
  mkdir "$FARM/bin"
  printf '#!/bin/sh\nwhile [ "$1" != --ready-fd ]; do shift; done\necho ready >&$2\nexec sleep 60 3>&-\n' >"$FARM/bin/sluice-worker"
  chmod +x "$FARM/bin/sluice-worker"
  SLUICE_LIBEXEC=$FARM/bin run farm_up --nodes mi50:2 --timeout 1s
  [ "$status" -eq 7 ]
  [[ $output == *"mi50-002"* ]]
  sluice down --dir "$FARM/farm"
}

@test "buffers lie in shm_dir of the configuration, blanks and all, and go with down" {
  farm_up --nodes mi50:1 --shm 8M
  sluice down --dir "$FARM/farm"
  mkdir "$FARM/my shm"
  sed -i "s|shm_dir = .*|shm_dir = '$FARM/my shm'|" "$FARM/farm/sluice.conf"
  farm_up
  farm_up
  [ -n "$(find "$FARM/my shm" -name '*.buffer')" ]
  sluice replay "$(sample 2)" --workflow none
  sluice down --dir "$FARM/farm"
  [ -z "$(ls -A "$FARM/my shm")" ]
}

@test "down ends stopped daemons too, and finds what a killed worker left" {
  farm_up --nodes mi50:2 --nominal mi50=2000
  shm=$(shm_dir "$FARM/farm")
  sluice replay "$(sample 2)" --loop 4 --workflow none >/dev/null 2>&1 &
  wait_until 10 is '[.nodes[].processing] | add' 2 sluice nodes
  kill -KILL "$(jq .pid "$FARM/farm/run/mi50-001/status.json")"
  kill -STOP "$(jq .pid "$FARM/farm/run/mi50-002/status.json")"
  sluice down --dir "$FARM/farm"
  [ ! -e "$shm" ]
  kill %1 2>/dev/null || true
  wait %1 || true
  wait_until 10 no_processes
}

@test "an interrupted replay stops its run, and says 130" {
  farm_up --nodes mi50:1 --nominal mi50=100
  sluice replay "$(sample 2)" --loop 1000 --rate 5 --json >"$FARM/replay.json" 2>"$FARM/replay.out" &
  replay=$!
  wait_until 10 eval '[ "$(sluice run show 1 --json | jq ".runs[0].done")" -ge 2 ]'
  kill -INT "$replay"
  rc=0; wait "$replay" || rc=$?
  [ "$rc" -eq 130 ]
  is '.runs[0] | [.state, .in_flight, .lost, .failed] | join(" ")' 'done 0 0 0' sluice run show 1
  [ -z "$(farm_processes | xargs -r ps -o args= -p | grep sluice-source)" ]
}

@test "a replay that is killed takes its source with it" {
  farm_up --nodes mi50:1 --nominal mi50=100
  sluice replay "$(sample 2)" --loop 1000 --rate 5 >/dev/null 2>&1 &
  replay=$!
  wait_until 10 eval '[ "$(sluice run show 1 --json | jq ".runs[0].done")" -ge 1 ]'
  kill -KILL "$replay"
  wait "$replay" || true
  no_source() { ! farm_processes | xargs -r ps -o args= -p | grep -q sluice-source; }
  wait_until 10 no_source
}

@test "a source that is killed: the replay says so, ends with 1, and its run is stopped" {
  farm_up --nodes mi50:1 --nominal mi50=100
  sluice replay "$(sample 2)" --loop 1000 --rate 5 >"$FARM/replay.out" 2>&1 &
  replay=$!
  wait_until 10 eval '[ "$(sluice run show 1 --json | jq ".runs[0].done")" -ge 1 ]'
  kill -KILL "$(pgrep -P "$replay" -f sluice-source)"
  rc=0; wait "$replay" || rc=$?
  cat "$FARM/replay.out"
  [ "$rc" -eq 1 ]
  grep -q 'sluice-source was ended by signal 9' "$FARM/replay.out"
  is '.runs[0] | [.state, .in_flight] | join(" ")' 'done 0' sluice run show 1
  is '.runs[0].text | test("cut short: 1 of 1 sources, .* went before the end of their stream")' true sluice run show 1
  run sluice wait run 1
  [[ $output == *"cut short: 1 of 1 sources"* ]]
}

@test "a run that waits for a source that nobody started: an alarm says so; stopped in order it is not called cut short" {
  farm_up --nodes mi50:1 --nominal mi50=50
  id=$(sluice run start --sources 2)
  sluice replay "$(sample 2)" --run "$id" >"$FARM/replay.out" 2>&1 &
  replay=$!
  wait_until 30 eval 'sluice status | grep -F "alarm SourceMissing: run '"$id"' waits for sources: 1 of 2 have not come yet"'
  sluice run stop "$id"
  wait "$replay" || true
  run sluice status
  [[ $output != *SourceMissing* ]]
  is '.runs[0].text' null sluice run show "$id"
}

@test "a job that no node can take: its wait, status and an alarm say so; it runs when one comes" {
  farm_up --nodes mi50:2 --nominal mi50=50
  sluice submit "$(sample 2)" --workflow none --wait >"$FARM/id" 2>"$FARM/wait.out" &
  waiting=$!
  wait_until 20 grep -q 'job 1 waits: WaitingForNodes' "$FARM/wait.out"
  run sluice status
  echo "$output"
  [[ $output == *"job 1 job-1: waiting"*"WaitingForNodes"*"alarm JobsStuck: 1 job waits for nodes that pool async does not have, job 1 first"*"sluice move"* ]]
  sluice move mi50-002 --to async --wait --timeout 20s
  wait "$waiting"
  [ "$(cat "$FARM/id")" = 1 ]
  [ "$(grep -c waits "$FARM/wait.out")" -eq 1 ]
  run sluice status
  [[ $output != *JobsStuck* ]]
}

@test "a job whose TFs no buffer can hold: an alarm says what is needed and what is there; it runs when a buffer has become large enough" {
  farm_up --nodes mi50:1,mi100:1 --nominal mi100=50
  sluice move mi100-001 --to async --wait --timeout 20s
  sluice shm set mi100-001 1M
  id=$(sluice submit "$(samples)" --workflow none)
  wait_until 10 eval 'sluice status | grep -F JobsStuck'
  run sluice status
  echo "$output"
  size=$(sluice tf info "$(samples)" --json | jq -r '.tfs[0].size * 10 / 1048576 | floor / 10')
  [[ $output == *"job $id first: TooLarge, as TF 0 needs a buffer of $size MiB and the largest of the pool has 1M"*"sluice shm set"* ]]
  run sluice why "$id"
  [[ $output == *"TooLarge"*"smaller than the TF, which has $size MiB"* ]]
  sluice shm set mi100-001 64M
  sluice wait job "$id" --timeout 60s
  run sluice status
  [[ $output != *JobsStuck* ]]
}

@test "up waits for buffers that were given another size than their class's" {
  farm_up --nodes mi50:4
  sluice shm set 'mi50-[001-004]' 80M
  for i in 1 2 3; do
    sluice down --dir "$FARM/farm"
    farm_up
    is '[.nodes[] | select(.usable)] | length' 4 sluice nodes
  done
}

@test "wait outlives a restart of sluiced" {
  farm_up --nodes mi50:1,mi100:1 --nominal mi100=400
  sluice move mi100-001 --to async --wait --timeout 20s
  id=$(sluice submit "$(samples)" --workflow none)
  sluice wait job "$id" --timeout 60s &
  waiting=$!
  wait_until 10 eval '[ "$(sluice job show '"$id"' --json | jq ".jobs[0].running")" -ge 1 ]'
  pid=$(sluice status --json | jq .status[0].pid)
  kill -KILL "$pid"; wait_until 10 ended "$pid"
  farm_up
  wait "$waiting"
  is '.jobs[0] | [.state, .done] | join(" ")' 'done 3' sluice job show "$id"
}

@test "down stops the runs that are on: a replay ends soon with 11 and the reason, and the next up finds no run without its source" {
  farm_up --nodes mi50:2 --nominal mi50=50
  background_replay() { sluice replay "$(sample 2)" --loop 100000 --rate 20 --workflow none "$@" >"$FARM/replay.out" 2>&1; }
  background_replay &
  replay=$!
  wait_until 20 is '.runs[0].done >= 5' true sluice run show 1
  SECONDS=0
  sluice down --dir "$FARM/farm"
  wait_until 10 ended "$replay"
  [ "$SECONDS" -lt 15 ]
  rc=0; wait "$replay" || rc=$?
  cat "$FARM/replay.out"
  [ "$rc" -eq 11 ]
  grep -q 'run 1 was stopped.*: the farm is taken down' "$FARM/replay.out"
  farm_up
  is '.runs[0] | [.state, .in_flight, (.announced == .done + .lost)] | join(" ")' "done 0 true" sluice run show 1
  [[ $(json '.runs[0].text' sluice run show 1) == "stopped: the farm is taken down"* ]]
  sluice status --json | jq -e '[.status[0].alarms[] | select(.word == "SourceGone")] == []'
  sluice check
}

@test "a farm on a file system that became read-only is taken down all the same" {
  rooms_possible || skip "no private mounts can be made here"
  farm_up --nodes mi50:2
  shm=$(shm_dir "$FARM/farm")
  down=(unshare -m --propagation private)
  [[ $EUID -eq 0 ]] || down=(unshare -rm --propagation private)
  run "${down[@]}" bash -c 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && ! touch "$0/x" 2>/dev/null && exec sluice down --dir "$0"' "$FARM/farm"
  echo "$output"
  [ "$status" -eq 0 ]
  [[ $output == *"ended 3 processes"* ]]
  no_processes
  [ ! -e "$shm" ]
  # writable again: up and down as ever
  farm_up
  is '[.nodes[] | select(.usable)] | length' 2 sluice nodes
  sluice down --dir "$FARM/farm"
}

# no_room KIB: with so much left up ends in its time, with the file system and what is free there.
no_room() {
  "${IN_disk[@]}" rm -f "$FARM/full/filler"
  "${IN_disk[@]}" dd if=/dev/zero of="$FARM/full/filler" bs=4k status=none 2>/dev/null || true
  "${IN_disk[@]}" truncate -s "-${1}K" "$FARM/full/filler"
  run timeout 30 "${IN_disk[@]}" sluice up --dir "$FARM/full/farm" --nodes mi50:1 --timeout 10s
  echo "$1 KiB: $status $output"
  [[ $status -ne 0 && $status -ne 124 && $output == *"the file system $FARM/full, where $FARM/full/farm is, is full: "*" of 8M are free, at least 1M is wanted"* ]]
}

@test "a full disk: up ends in its time and names the file system and what is free there, for a new farm and for one that was there" {
  need_rooms
  room disk -- "mkdir -p $FARM/full && mount -t tmpfs -o size=8M tmpfs $FARM/full"
  for left in 0 8 48 100; do
    no_room "$left"
    buffers=$("${IN_disk[@]}" cat "$FARM/full/farm/shm-dir" 2>/dev/null || true)
    "${IN_disk[@]}" sluice down --dir "$FARM/full/farm"
    [[ -z $buffers || ! -e $buffers ]]
    "${IN_disk[@]}" rm -rf "$FARM/full/farm"
  done
  "${IN_disk[@]}" rm "$FARM/full/filler"
  for _ in 1 2; do
    "${IN_disk[@]}" sluice up --dir "$FARM/full/farm" --nodes mi50:1 3>&-
    "${IN_disk[@]}" sluice down --dir "$FARM/full/farm"
    "${IN_disk[@]}" rm -f "$FARM/full/farm/state/state.reserve"
    for left in 0 8 16; do no_room "$left"; [[ $output != *"disk I/O error"* ]]; done
    "${IN_disk[@]}" rm "$FARM/full/filler"
    buffers=$("${IN_disk[@]}" cat "$FARM/full/farm/shm-dir")
    "${IN_disk[@]}" sluice down --dir "$FARM/full/farm"
    [ ! -e "$buffers" ]
  done
}
