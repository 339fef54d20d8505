#!/usr/bin/env bats
# shm.bats - sizes of the nodes' buffers: set by list, class and profile, in place, kept over restarts; and what is shown of them

load ../lib
load ../rig

setup() { rig_setup; real_class; }
teardown() {
  local before rc=0
  before=$(cat "$FARM/huge-before" 2>/dev/null || true)
  farm_teardown || rc=1
  [[ -z $before ]] || echo "$before" >/proc/sys/vm/nr_hugepages
  return $rc
}

M=$((1 << 20))
buffer() { worker_status "$1" .buffer.path; }
shm_of() { is ".shm[] | select(.node == \"$1\") | $2" "$3" sluice shm; }
shm_value() { json ".shm[] | select(.node == \"$1\") | $2" sluice shm; }
# has_size NODE BYTES: sluiced says so, and so does the kernel: the file has a page more, all of it taken.
has_size() {
  local file; file=$(buffer "$1")
  shm_of "$1" .active "$2" || return 1
  [[ $(stat -c %s "$file") -eq $(($2 + 4096)) ]] || { stat "$file"; return 1; }
  [[ $(($(stat -c %b "$file") * 512)) -eq $(($2 + 4096)) ]] || { stat "$file"; return 1; }
}
reco_pid() { worker_status "$1" '.devices[0].pid'; }
devices_free() { worker_is "$1" '[.devices[].state] | unique | join(",")' free; }
# do_run: a run, all of whose TFs get done and have the right result.
do_run() {
  rm -rf "$FARM/out"
  RUN=$(sluice run start --workflow decode --output "$FARM/out")
  sluice replay "$(sample 2)" --run "$RUN" --loop 3 --rate max >"$FARM/replay.txt" 2>&1
  run_settled
  is '.runs[0] | [.done, .failed, .lost] | join(" ")' "3 0 0" sluice run show "$RUN"
  [ "$(xxh3 "$FARM/out/$RUN/tf-1.digits")" = "${DIGITS[2]}" ]
}

@test "a buffer gets another size in place: no process starts anew, work goes on in it, and fstat says what shm says" {
  daemon; nodes_real n001
  worker n001 --
  wait_until 20 node_is n001 .state idle
  wait_until 20 devices_free n001
  before=$(reco_pid n001); inode=$(stat -c %i "$(buffer n001)")
  run -0 sluice shm set n001 48M
  [[ $output == *"n001: has 48M now"* ]]
  has_size n001 $((48 * M))
  shm_of n001 .pending false; shm_of n001 .wanted $((48 * M)); shm_of n001 .generation 2; shm_of n001 .free $((48 * M))
  wait_until 20 devices_free n001
  [ "$(reco_pid n001)" = "$before" ]
  [ "$(stat -c %i "$(buffer n001)")" = "$inode" ]
  [ "$(tr '\0' '\n' <"/proc/$PID_n001/cmdline" | head -n 1)" = sluice-worker ]
  [ "$(grep -c 'buffer.*registered\|: registered as' "$FARM/n001.log")" = 1 ]
  do_run
  run -0 sluice shm set n001 8M
  has_size n001 $((8 * M)); shm_of n001 .generation 3
  wait_until 20 devices_free n001
  [ "$(reco_pid n001)" = "$before" ]
  do_run
  run -0 sluice shm set n001 8M
  [[ $output == *"has that size already"* ]]
  # both are in the history, with who asked
  sluice node history n001 --json | jq -e '[.events[] | select(.what == "shm asked for")] | length == 2 and .[0].before == "16M" and .[0].after == "48M" and (.[0].who | startswith("root") or contains("uid"))'
  sluice node history n001 --json | jq -e '[.events[] | select(.what == "shm resized")] | map(.before + " " + .after) == ["16M 48M", "48M 8M"]'
}

@test "while a run uses the node it is refused with the run's name; --when idle does it after the run, and the run loses nothing" {
  daemon; nodes_real 'n[001-002]'
  worker n001 --; worker n002 --
  wait_until 20 node_is n001 .state idle; wait_until 20 node_is n002 .state idle
  RUN=$(sluice run start --workflow decode --name physics --output "$FARM/out")
  run -4 sluice shm set n001 32M
  [[ $output == *"n001: run $RUN (physics) uses it"* ]]
  run -4 sluice shm set 'n[001-002]' 32M --dry-run
  run -0 sluice shm set n001 32M --when idle
  [[ $output == *"from 16M to 32M, when no run uses it any more"* ]]
  shm_of n001 '[.wanted, .active, .pending, .text] | map(tostring) | join(" ")' "$((32 * M)) $((16 * M)) true waits until no run uses it"
  run -0 sluice shm set n001 16M --when idle --dry-run          # what it has yet
  [[ $output == *"would have 16M as before, when no run uses it any more"* ]]
  # a marked node is in no run: that one is resized now
  sluice mark n002 'looks odd' >/dev/null
  run -0 sluice shm set n002 32M
  has_size n002 $((32 * M))
  shm_of n001 .active $((16 * M))
  sluice replay "$(sample 2)" --run "$RUN" --loop 5 --rate max >"$FARM/replay.txt" 2>&1
  run_settled
  is '.runs[0] | [.done, .failed, .lost] | join(" ")' "5 0 0" sluice run show "$RUN"
  wait_until 20 has_size n001 $((32 * M))
  wait_until 20 node_is n001 '[.state, .usable] | join(" ")' 'idle true'
}

@test "work of jobs: --when idle lets it finish, gives the node no more, resizes it, and the job goes on there" {
  daemon
  sluice node add n001 --class real --pool async >/dev/null
  worker n001 --
  wait_until 20 node_is n001 .state idle
  for ((i = 0; i < 40; i++)); do cat "$(sample 2)"; done >"$FARM/in.tf"
  job=$(sluice submit "$FARM/in.tf" --workflow none --quiet)
  wait_until 20 eval '[ "$(sluice nodes --json | jq ".nodes[0].tfs")" -ge 1 ]'
  run -4 sluice shm set n001 32M
  [[ $output == *"of jobs are there"* ]]
  run -0 sluice shm set n001 32M --when idle
  wait_until 20 has_size n001 $((32 * M))
  run -0 timeout 60 sluice wait job "$job"
  is '.jobs[0] | [.done, .failed, .retried] | map(tostring) | join(" ")' '40 0 0' sluice job show "$job"
}

@test "a profile switches the farm by class with one command; each node has its own result" {
  cat >>"$FARM/conf" <<'CONF'
class second { devices = 1 shm = "16M" nominal_ms = 20 }
class third { devices = 1 shm = "16M" nominal_ms = 20 }
profile "PbPb" { shm = { "real=24M", "second=36M" } }
profile "pp"   { shm = { "real=16M", "second=12M" } }
CONF
  daemon; nodes_real n001
  sluice node add n002 --class second >/dev/null; sluice node add n003 --class third >/dev/null; sluice node add n004 --class real >/dev/null
  worker n001 --; worker n002 -- --class second; worker n003 -- --class third
  for n in n001 n002 n003; do wait_until 20 node_is "$n" .state idle; done
  run -0 sluice shm set @all --profile PbPb
  [[ $output == *"n001: has 24M now"* && $output == *"n002: has 36M now"* ]]
  [[ $output == *"n003: is left alone: profile PbPb has no size for class third"* ]]
  [[ $output == *"n004: from 16M to 24M, when its worker is back"* ]]
  has_size n001 $((24 * M)); has_size n002 $((36 * M)); has_size n003 $((16 * M))
  run -0 sluice shm set 'n[001-002]' --profile pp --json
  jq -e '.schema.name == "results" and ([.results[] | .node + " " + (.code | tostring)] == ["n001 0", "n002 0"])' <<<"$(sed -n '/^{/,$p' <<<"$output")"
  has_size n001 $((16 * M)); has_size n002 $((12 * M))
  run -3 sluice shm set @all --profile Xe
  [[ $output == *"profile 'Xe': there is no such profile"* ]]
  # the one that was away gets the size of the profile that was asked for then
  worker n004 --
  wait_until 20 has_size n004 $((24 * M))
  wait_until 20 node_is n004 '[.state, .usable] | join(" ")' 'idle true'
}

@test "the wanted size is kept by kill -9 of sluiced, by its restart, and by workers that die or start anew, in a run too" {
  daemon; nodes_real n001
  worker n001 --
  wait_until 20 node_is n001 .state idle
  sluice shm set n001 40M
  daemon_kill; daemon
  shm_of n001 .wanted $((40 * M))
  wait_until 20 has_size n001 $((40 * M))
  wait_until 20 node_is n001 .state idle
  RUN=$(sluice run start --workflow none)
  # killed: the buffer that it left is taken over, and has the wanted size before it takes part again
  kill -KILL "$PID_n001"; wait_until 10 ended "$PID_n001"
  worker n001 --
  wait_until 20 has_size n001 $((40 * M))
  wait_until 20 node_is n001 .usable true
  sluice run stop "$RUN" >/dev/null
  # ended in order: the file was gone
  kill -TERM "$PID_n001"; wait_until 10 ended "$PID_n001"
  worker n001 --
  wait_until 20 has_size n001 $((40 * M))
  shm_of n001 '[.pending, .failed] | map(tostring) | join(" ")' 'false false'
  # a new order while sluiced has no worker there
  kill -TERM "$PID_n001"; wait_until 10 ended "$PID_n001"
  wait_until 10 node_is n001 .state down
  run -0 sluice shm set n001 20M
  [[ $output == *"when its worker is back"* ]]
  daemon_kill; daemon
  shm_of n001 '[.wanted, .pending] | map(tostring) | join(" ")' "$((20 * M)) true"
  worker n001 --
  wait_until 20 has_size n001 $((20 * M))
}

@test "sizes: 64M is 64 times 1024 times 1024, bytes if bare; what is no size, or is too much, changes nothing" {
  daemon; nodes_real n001
  worker n001 --
  wait_until 20 node_is n001 .state idle
  while read -r given bytes; do
    run -0 sluice shm set n001 "$given"
    [[ $output == *"size "* ]]
    has_size n001 "$bytes"
  done <<SIZES
32M $((32 * M))
20480K $((20 * M))
4194304 $((4 * M))
4194305 $((4 * M + 4096))
SIZES
  for bad in 0 -1 1.5G 10X "" "64 M" 64MB 1K 99999999999999999999 8E; do
    run ! sluice shm set n001 "$bad"
    [ "$status" -eq 2 ]
  done
  run -2 sluice shm set n001; [[ $output == *"either a size or --profile NAME is wanted"* ]]
  run -2 sluice shm set n001 1M --profile x
  run -2 sluice shm set n001 1M --when now
  run -8 sluice shm set n001,n009 5M
  [[ $output == *"n009: there is no such node"* ]]
  has_size n001 $((5 * M))
  run -4 sluice shm set n001 900T
  [[ $output =~ "n001: 900T wanted, the machine has "[0-9].*" of memory" ]]
  has_size n001 $((5 * M)); shm_of n001 .wanted $((5 * M))
  run -0 sluice shm set n001 6M --dry-run
  [[ $output == *"n001: would go from 5M to 6M"* ]]
  has_size n001 $((5 * M))
}

@test "no room: said with the numbers before anything is touched, the old size stays and works; there is room later, and it is done" {
  need_root "mount a file system"
  room small -- "mkdir -p $FARM/small; mount -t tmpfs -o size=40M tmpfs $FARM/small"
  daemon; nodes_real n001
  worker n001 "${IN_small[@]}" -- --shm-dir "$FARM/small"
  wait_until 20 node_is n001 .state idle
  before=$(reco_pid n001)
  run -4 sluice shm set n001 64M
  [[ $output =~ "n001: stays at 16M: ".*"64M wanted, ".*" available in $FARM/small" ]]
  [ "$(stat -c %s "$ROOM_small/$(buffer n001)")" -eq $((16 * M + 4096)) ]
  shm_of n001 '[.wanted, .active, .pending, .failed] | map(tostring) | join(" ")' "$((64 * M)) $((16 * M)) true true"
  shm_of n001 .generation 1
  wait_until 20 node_is n001 '[.state, .usable] | join(" ")' 'idle true'
  [ "$(reco_pid n001)" = "$before" ]
  alarm ShmNotSet | grep -F '1 buffer could not get its size; node n001 is to have 64M: '
  do_run
  sluice node history n001 --json | jq -e '[.events[] | select(.what == "shm not resized")] | length == 1 and (.[0].reason | contains("64M wanted"))'
  # it is not tried again and again, but by the next order, or a start of the worker
  "${IN_small[@]}" mount -o remount,size=100M "$FARM/small"
  sleep 1
  shm_of n001 .active $((16 * M))
  run -0 sluice shm set n001 64M
  shm_of n001 '[.active, .pending] | map(tostring) | join(" ")' "$((64 * M)) false"
  no_alarm ShmNotSet
}

# mapping PID FILE: its line in numa_maps.
mapping() { grep -F "file=$2" "/proc/$1/numa_maps" | head -n 1; }

@test "what shm prints is what fstat and /proc/PID/numa_maps say, after each change of size" {
  [[ -r /proc/self/numa_maps ]] || skip "this kernel has no numa_maps"
  daemon; nodes_real n001
  worker n001 --
  wait_until 20 node_is n001 .state idle
  for size in 16M 40M 24M; do
    run -0 sluice shm set n001 "$size"
    line=$(mapping "$PID_n001" "$(buffer n001)")
    # shared: the worker's mapping has every page; on one domain all of them are there
    mapped=$(grep -oE 'mapped=[0-9]+|anon=[0-9]+|dirty=[0-9]+' <<<"$line" | head -n 1 | cut -d= -f2)
    page=$(( $(sed -E 's/.*kernelpagesize_kB=([0-9]+).*/\1/' <<<"$line") * 1024 ))
    has_size n001 $((mapped * page - 4096))
    shm_of n001 .page_size "$page"
    domains=$(grep -oE ' N[0-9]+=' <<<"$line" | tr -dc '0-9\n' | sort -n | paste -sd,)
    [ "$(shm_value n001 .numa | grep -oE '^[0-9]+|, [0-9]+' | tr -dc '0-9\n' | paste -sd,)" = "$domains" ]
  done
}

@test "B65 huge pages: yes falls back and says so, must is refused with what is set where, and what there are is shown" {
  need_root "mount a file system"
  room huge -- "mkdir -p $FARM/small $FARM/huge; mount -t tmpfs -o huge=never,size=200M tmpfs $FARM/small; mount -t tmpfs -o huge=always,size=200M tmpfs $FARM/huge"
  daemon; nodes_real 'n[001-003]'
  cp "$FARM/conf" "$FARM/plain"
  printf 'worker { huge_pages = "yes" }\n' >>"$FARM/conf"
  worker n001 "${IN_huge[@]}" -- --shm-dir "$FARM/small"
  wait_until 20 node_is n001 .usable true
  shm_of n001 '[.huge_wanted, .huge_actual, .active] | map(tostring) | join(" ")' "yes 0 $((16 * M))"
  grep -F '0 of 16M are in huge pages, the rest in small ones' "$FARM/n001.log"
  { cat "$FARM/plain"; printf 'worker { huge_pages = "must" }\n'; } >"$FARM/conf"
  worker n002 "${IN_huge[@]}" -- --shm-dir "$FARM/small"
  wait_until 20 node_is n002 '[.state, .why[0]] | join(" ")' 'error ShmShort'
  node_is n002 '.trouble | contains("16M in huge pages wanted") and contains("mounted with huge=never, shmem_enabled of this machine is ")' true
  [ ! -e "$ROOM_huge$FARM/small/$(basename "$(buffer n002)")" ] || [ "$(stat -c %b "$ROOM_huge$FARM/small/$(basename "$(buffer n002)")")" = 0 ]
  if ! grep -qF '[deny]' /sys/kernel/mm/transparent_hugepage/shmem_enabled; then
    worker n003 "${IN_huge[@]}" -- --shm-dir "$FARM/huge"
    wait_until 20 node_is n003 .usable true
    kib=$(awk -v f="$(basename "$(buffer n003)")" 'index($0, f) { on = 1 } on && /^ShmemPmdMapped/ { print $2; exit }' "/proc/$PID_n003/smaps")
    shm_of n003 '[.huge_wanted, .huge_actual] | map(tostring) | join(" ")' "must $((kib * 1024))"
  fi
  no_process_ended_by_a_signal() { ! grep -h 'signal 7\|SIGBUS' "$FARM"/*.log; }
  no_process_ended_by_a_signal
}

cleaned() { jq -r --arg p "$1" '.buffers[] | select(.path | endswith($p)) | [.removed, .text] | map(tostring) | join(" ")' "$FARM/clean.json"; }
clean() { sluice shm clean --dir "$FARM/shm" --json "$@" >"$FARM/clean.json"; }

@test "shm clean: what dead workers left goes, without sluiced; nothing that anybody uses, nothing that is not ours; the worker starts anew on what is there" {
  daemon; nodes_real 'n[001-004]'
  for n in n001 n002 n003 n004; do worker $n --; done
  for n in n001 n002 n003 n004; do wait_until 20 node_is $n .state idle; wait_until 20 devices_free $n; done
  for n in n001 n002 n003 n004; do eval "$n=$(buffer $n)"; done
  inode=$(stat -c %i "$n001")
  for n in n002 n003 n004; do
    pid=PID_$n reco=$(reco_pid $n)
    kill -KILL "${!pid}"; wait_until 10 ended "${!pid}"; wait_until 10 ended "$reco"
  done
  sleep 1000 <"$n003" 3>&- & STARTED+=($!); holder=$!        # a process that outlived its worker
  daemon_kill
  name=${n001##*/}; name=${name%n001.buffer}
  echo 'holiday pictures' >"$FARM/shm/sluice-photos.buffer"
  head -c 8192 /dev/zero >"$FARM/shm/${name}n008.buffer"
  head -c 8192 /dev/zero >"$FARM/shm/${name}n009.buffer"; touch -d '1 minute ago' "$FARM/shm/${name}n009.buffer"
  ln -s "$FARM/conf" "$FARM/shm/sluice-x-y.buffer"
  echo keep >"$FARM/shm/other"
  mkdir "$FARM/shm/sluice-0-abc"; cp --sparse=always "$n002" "$FARM/shm/sluice-0-abc/${name}n002.buffer"
  clean --dry-run
  [ "$(cleaned "$n002")" = 'false would be removed' ]
  [ -e "$n002" ]
  clean 'n[003-004]'
  [ "$(jq '.buffers | length' "$FARM/clean.json")" = 2 ]
  [ "$(cleaned "$n004")" = 'true removed' ]
  [ "$(cleaned "$n003")" = "false in use by pid $holder" ]
  [ ! -e "$n004" ] && [ -e "$n003" ] && [ -e "$n002" ]
  clean
  [ "$(cleaned "$n001")" = 'false in use: its worker holds it' ]
  [ "$(cleaned "$n002")" = 'true removed' ]
  [ "$(cleaned "abc/${name}n002.buffer")" = 'true removed' ]
  [ "$(cleaned "$n003")" = "false in use by pid $holder" ]
  [ "$(cleaned photos.buffer)" = 'false no buffer of a worker: left alone' ]
  [ "$(cleaned n008.buffer)" = 'false just begun: left alone' ]
  [ "$(cleaned n009.buffer)" = 'true removed' ]
  [[ $(cleaned x-y.buffer) == 'false cannot be opened: '* ]]
  [ "$(jq -r --arg p "$n001" '.buffers[] | select(.path == $p) | [.node, .owner_pid] | map(tostring) | join(" ")' "$FARM/clean.json")" = "n001 $PID_n001" ]
  [ ! -e "$n002" ] && [ ! -e "$FARM/shm/sluice-0-abc" ] && [ -e "$FARM/shm/other" ] && [ "$(cat "$FARM/shm/sluice-photos.buffer")" = 'holiday pictures' ]
  [ "$(stat -c %i "$n001")" = "$inode" ]
  kill "$holder"; wait_until 10 ended "$holder"
  if [[ $EUID -eq 0 ]]; then                   # another user sees and removes nothing of ours
    chmod 755 "$FARM/shm"
    as_nobody sluice shm clean --dir "$FARM/shm" --json >"$FARM/clean.json"
    [ "$(jq '[.buffers[] | select(.removed)] | length' "$FARM/clean.json")" = 0 ]
    [ -e "$n003" ]
  fi
  run -3 sluice shm clean --dir "$FARM/nowhere"
  run -2 sluice shm clean 'n[1-'
  daemon
  for n in n002 n003 n004; do worker $n --; done
  for n in n001 n002 n003 n004; do wait_until 20 node_is $n .state idle; has_size $n $((16 * M)); done
}

# huge_pages N: so many of 2 MiB are set aside on this machine while the test is on; afterwards as before.
huge_pages() {
  [[ -e $FARM/huge-before ]] || cat /proc/sys/vm/nr_hugepages >"$FARM/huge-before"
  echo "$1" >/proc/sys/vm/nr_hugepages && [[ $(cat /proc/sys/vm/nr_hugepages) -eq $1 ]]
}

@test "B65 shm_dir of type hugetlbfs: whole huge pages, checked against those that are free, in place; work goes on in them, and shm clean knows them" {
  need_root "set huge pages aside"
  grep -qE '^Hugepagesize: +2048 kB' /proc/meminfo || skip "huge pages of another size than 2M"
  [[ $(cat /proc/sys/vm/nr_hugepages) -eq 0 ]] || skip "huge pages are in use on this machine"
  huge_pages 26 || { huge_pages 0; skip "no 26 huge pages can be had"; }
  room huge -- "mkdir -p $FARM/huge; mount -t hugetlbfs none $FARM/huge"
  printf 'worker { huge_pages = "must" }\n' >>"$FARM/conf"
  daemon; nodes_real 'n[001-002]'
  # none at all, then half of what is needed: said with the numbers, not a page is touched; when they are there it comes by itself
  huge_pages 0
  worker n001 "${IN_huge[@]}" -- --shm-dir "$FARM/huge"
  for pages in 0 4; do
    huge_pages $pages
    wait_until 20 node_is n001 '[.state, .why[0], (.trouble | contains("18M wanted, '"$(((pages * 2)))"'"))] | map(tostring) | join(" ")' 'error ShmShort true'
    node_is n001 '.trouble | test("18M wanted, '"$((pages * 2))"'M? free in huge pages of 2M")' true
    [ "$(awk '$1 == "HugePages_Free:" { print $2 }' /proc/meminfo)" = $pages ]
  done
  huge_pages 26
  wait_until 40 node_is n001 .state idle
  wait_until 20 devices_free n001
  before=$(reco_pid n001) file=$ROOM_huge$(buffer n001)
  # 16M and the head: 9 pages of 2M
  [ "$(stat -c '%s %b' "$file")" = "$((18 * M)) $((18 * M / 512))" ]
  shm_of n001 '[.active, .page_size, .huge_wanted, .huge_actual] | map(tostring) | join(" ")' "$((16 * M)) $((2 * M)) must $((18 * M))"
  [ "$(awk '$1 == "HugePages_Free:" { print $2 }' /proc/meminfo)" = 17 ]
  do_run
  run -0 sluice shm set n001 31M
  [ "$(stat -c '%s %b' "$file")" = "$((32 * M)) $((32 * M / 512))" ]
  wait_until 20 devices_free n001
  do_run
  run -0 sluice shm set n001 3M
  [ "$(stat -c '%s %b' "$file")" = "$((4 * M)) $((4 * M / 512))" ]
  wait_until 20 devices_free n001
  [ "$(awk '$1 == "HugePages_Free:" { print $2 }' /proc/meminfo)" = 24 ]      # nobody holds on to what was given back
  [ "$(reco_pid n001)" = "$before" ]
  # 51M and the head are 26 pages: all there are; one byte more is one page too many
  run -4 sluice shm set n001 52M
  [[ $output == *"n001: stays at 3M: "*"54M wanted, 52M free in huge pages of 2M"* ]]
  shm_of n001 '[.active, .huge_actual] | map(tostring) | join(" ")' "$((3 * M)) $((4 * M))"
  run -0 sluice shm set n001 51M
  wait_until 20 devices_free n001
  do_run
  kill -KILL "$PID_n001"; wait_until 10 ended "$PID_n001"; wait_until 10 ended "$before"
  # what it left has them all: the next one says so, and has its buffer when that is cleaned away
  worker n002 "${IN_huge[@]}" -- --shm-dir "$FARM/huge"
  wait_until 20 node_is n002 '[.state, .why[0], (.trouble | test("18M wanted, 0M? free in huge pages of 2M"))] | map(tostring) | join(" ")' 'error ShmShort true'
  "${IN_huge[@]}" env "PATH=$PATH" sluice shm clean 'n001' --dir "$FARM/huge" >"$FARM/clean.txt"
  wait_until 40 node_is n002 .state idle
  [ "$(awk '$1 == "HugePages_Free:" { print $2 }' /proc/meminfo)" = 17 ] || { cat "$FARM/clean.txt"; false; }
  ! grep -h 'signal 7\|SIGBUS' "$FARM"/*.log
}

# outcomes FILE: how many results there are of each kind.
outcomes() {
  jq -r '.results | group_by(.text | if test("has .* now$") then "ok" elif test("told to refuse") then "refused" elif test("did not answer, nor get on with it, within 2 s") then "silent" else . end)
         | map((.[0].text | if test("has .* now$") then "ok" elif test("told to refuse") then "refused" elif test("did not answer, nor get on with it, within 2 s") then "silent" else . end)
               + " " + (length | tostring) + " " + (map(.code) | unique | map(tostring) | join(","))) | .[]' "$1"
}

@test "350 nodes get the sizes of a profile in one command: each has its result; those that refuse or never answer keep their size, and work on" {
  cat >"$FARM/conf" <<'CONF'
class a { devices = 1 shm = "1G" }
class b { devices = 1 shm = "1G" }
profile "PbPb" { shm = { "a=4G", "b=6G" } }
profile "pp"   { shm = { "a=2G", "b=3G" } }
limits { resize_timeout = 2 }
CONF
  daemon
  sluice node add 'a[001-280]' --class a >/dev/null; sluice node add 'b[001-070]' --class b >/dev/null
  fakes() { start "$1" -- "$FAKES/fake-worker" --server "unix:$SLUICE_SOCKET" --name-prefix "$1" --class "$1" --count "$2" --quiet --resize-refuse 7 --resize-silent 50 --resize-seconds 0.3; }
  fakes a 280; fakes b 70
  wait_until 20 is '[.nodes[] | select(.state == "idle")] | length' 350 sluice nodes
  begin=$(date +%s%N)
  run -8 sluice shm set @all --profile PbPb --json
  took=$((($(date +%s%N) - begin) / 1000000))
  echo "350 nodes: $took ms"
  [ $took -ge 2000 ] && [ $took -lt 9000 ]
  sed -n '/^{/,$p' <<<"$output" >"$FARM/set.json"
  [ "$(jq '.results | map(.node) | unique | length' "$FARM/set.json")" = 350 ]
  # every 7th refuses, every 50th is silent: 40 + 10 and 5 + 1
  [ "$(outcomes "$FARM/set.json")" = $'ok 294 0\nrefused 50 4\nsilent 6 4' ]
  is '[.shm[] | select(.active == 4294967296)] | length' 235 sluice shm
  is '[.shm[] | select(.active == 6442450944)] | length' 59 sluice shm
  is '[.shm[] | select(.active == 1073741824 and .failed and .pending)] | length' 56 sluice shm
  is '.shm[] | select(.node == "a050") | .text' 'its worker did not answer, nor get on with it, within 2 s (limits.resize_timeout)' sluice shm
  is '.nodes[] | select(.name == "a050") | [.state, .usable] | map(tostring) | join(" ")' 'idle true' sluice nodes
  alarm ShmNotSet
  # killed in the middle of the next: what was acknowledged is what is wanted, and comes about
  sluice shm set @all --profile pp --no-wait --json >"$FARM/set.json" || true
  [ "$(jq '[.results[] | select(.code == 0)] | length' "$FARM/set.json")" = 350 ]
  daemon_kill; daemon
  is '[.shm[] | select(.wanted == (if .node[0:1] == "a" then 2147483648 else 3221225472 end))] | length' 350 sluice shm
  wait_until 20 is '[.shm[] | select(.active == .wanted and (.pending | not))] | length' 294 sluice shm
  wait_until 20 is '[.shm[] | select(.failed)] | length' 56 sluice shm
  wait_until 20 is '[.nodes[] | select(.state == "idle")] | length' 350 sluice nodes
}

@test "a worker that goes in the middle of a change: nobody waits for it, its line says so, and it gets the size when it is back" {
  cat >"$FARM/conf" <<'CONF'
class fake { devices = 1 shm = "1G" }
limits { contact_timeout = 1 }
CONF
  daemon; nodes_add 'n[001-003]'
  workers 2
  start late -- "$FAKES/fake-worker" --server "unix:$SLUICE_SOCKET" --first 3 --quiet --resize-silent 1
  wait_until 20 is '[.nodes[] | select(.state == "idle")] | length' 3 sluice nodes
  background asked sluice shm set 'n[001-003]' 2G --json
  wait_until 10 is '.shm[] | select(.node == "n003") | .text' 'is resized' sluice shm
  wait_until 10 is '[.shm[] | select(.active == 2147483648)] | length' 2 sluice shm
  kill -KILL "$PID_late"; wait_until 10 ended "$PID_asked"
  rc=0; wait "$PID_asked" || rc=$?
  [ $rc -eq 8 ]
  sed -n '/^{/,$p' "$FARM/asked.out" | jq -e '[.results[] | .text] == ["has 2G now", "has 2G now", "has 1G yet, is to get 2G: waits for its worker"]'
  start late -- "$FAKES/fake-worker" --server "unix:$SLUICE_SOCKET" --first 3 --quiet
  wait_until 10 is '[.shm[] | select(.active == 2147483648 and (.pending | not))] | length' 3 sluice shm
}

@test "limits of the worker's process, locked memory and file size, are asked before anything is touched; the old size stays and works" {
  [[ $EUID -eq 0 ]] || skip "only root can be several users"
  printf 'role worker { users = { "nobody" } }\nworker { lock_memory = yes }\n' >>"$FARM/conf"
  daemon; nodes_real n001
  chmod 755 "$FARM/farm"; mkdir -p "$FARM/shm"; mkdir -m 777 "$FARM/farm/run"; chmod 777 "$FARM/shm"; touch "$FARM/n001.log"; chmod 666 "$FARM/n001.log"
  worker n001 prlimit --memlock=$((6 * M)) setpriv --reuid=nobody --regid=nogroup --clear-groups -- --shm 2M
  wait_until 20 node_is n001 .state idle
  run -0 sluice shm set n001 5M
  has_size n001 $((5 * M))
  run -4 sluice shm set n001 7M
  [[ $output == *"n001: stays at 5M: "*"7M wanted, 6M allowed by the limit of locked memory (ulimit -l)"* ]]
  as_nobody prlimit --pid "$PID_n001" --fsize=$((4 * M)):
  run -4 sluice shm set n001 5632K
  [[ $output == *"n001: stays at 5M: "*"5632K wanted, 4M allowed by the file size limit (ulimit -f)"* ]]
  has_size n001 $((5 * M))
  wait_until 20 node_is n001 '[.state, .usable] | map(tostring) | join(" ")' 'idle true'
  as_nobody prlimit --pid "$PID_n001" --fsize=unlimited:
  run -0 sluice shm set n001 5632K
  has_size n001 $((5632 * 1024))
  # AddressSanitizer makes nothing of mlock
  ldd "$SLUICE_BUILDDIR/sluice-worker" | grep -q libasan || grep -qE "^VmLck:[[:space:]]+5636 kB" "/proc/$PID_n001/status"
}

@test "space that another takes in the middle of a change: the old size comes back, what was taken in vain is free again" {
  need_root "mount a file system"
  room small -- "mkdir -p $FARM/small; mount -t tmpfs -o size=600M tmpfs $FARM/small"
  daemon; nodes_real n001
  worker n001 "${IN_small[@]}" -- --shm-dir "$FARM/small"
  wait_until 20 node_is n001 .state idle; wait_until 20 devices_free n001
  before=$(reco_pid n001) file=$ROOM_small$(buffer n001)
  kill -STOP "$PID_n001"                       # it has measured nothing yet; the order waits for it
  background asked sluice shm set n001 500M
  wait_until 10 shm_of n001 .text 'is resized'
  # half of it is given when the space goes: what measures and what takes see different worlds
  background taker bash -c "until [ \$(stat -c %b '$file') -gt 100000 ]; do :; done; dd if=/dev/zero of='$ROOM_small$FARM/small/other' bs=1M count=450 2>&1"
  kill -CONT "$PID_n001"
  rc=0; wait "$PID_asked" || rc=$?
  if [ $rc -eq 0 ]; then                       # it was the faster one
    has_there=500
  else
    has_there=16
    cat "$FARM/asked.out"
    [[ $(cat "$FARM/asked.out") == *"n001: stays at 16M: "*"could be had: No space left on device"* ]]
  fi
  wait_until 20 ended "$PID_taker"
  [ "$(stat -c '%s %b' "$file")" = "$((has_there * M + 4096)) $(((has_there * M + 4096) / 512))" ]
  wait_until 20 node_is n001 '[.state, .usable] | map(tostring) | join(" ")' 'idle true'
  [ "$(reco_pid n001)" = "$before" ]
  do_run
}

@test "two sizes one after the other: the last one holds, whatever the worker was at; who asked first is told at once, with what was asked for meanwhile" {
  daemon; nodes_add 'n[001-002]'
  workers 2 --resize-seconds 1
  wait_until 20 is '[.nodes[] | select(.state == "idle")] | length' 2 sluice nodes
  background asked sluice shm set 'n[001-002]' 2G
  wait_until 10 shm_of n001 .text 'is resized'
  run -0 timeout 30 sluice shm set n001 1G      # what it has this moment, and not what it is about to have
  [[ $output == *"n001: has 1G now"* ]]
  shm_of n001 '[.wanted, .active, .pending, .generation] | map(tostring) | join(" ")' "$((1 << 30)) $((1 << 30)) false 2"
  rc=0; wait "$PID_asked" || rc=$?
  [ $rc -eq 8 ]
  grep -F 'n001: another size was asked for meanwhile: has 1G, is to get 1G' "$FARM/asked.out"
  grep -F 'n002: has 2G now' "$FARM/asked.out"
  # of both together: each node has one of the two, and says which
  background one sluice shm set 'n[001-002]' 3G
  background two sluice shm set 'n[001-002]' 4G
  wait_until 20 ended "$PID_one"; wait_until 20 ended "$PID_two"
  for n in n001 n002; do shm_of $n '.active == .wanted and (.pending | not) and (.active == 3221225472 or .active == 4294967296)' true; done
}
