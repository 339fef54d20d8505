#!/usr/bin/env bats
# The worker with too little of everything: descriptors, time, memory, disk; and with a clock of its own.
load ../lib

setup() { farm_setup; }
teardown() {
  local rc=0 pid
  farm_teardown || rc=1
  for pid in "${STARTED[@]}"; do rm -f "/dev/shm/faketime_shm_$pid" "/dev/shm/sem.faketime_sem_$pid"; done    # what the tool leaves
  return $rc
}

# bench CLASS_LINE [WORKER_LINE]: sluiced by hand, whose configuration has one class "lab" and the nodes lab-[1-5].
bench() {
  mkdir -p "$FARM/shm"
  cat >"$FARM/conf" <<END
state_dir = "$FARM/state"
class lab { $1 }
node "lab-[1-5]" { class = "lab" pool = "online" }
worker { shm_dir = "$FARM/shm" crash_dir = "$FARM/crash" ${2:-} }
END
  SLUICE_SOCKET=$FARM/sluiced.sock
  start sluiced -- sluiced --config "$FARM/conf" --state "$FARM/state" --socket "$SLUICE_SOCKET" --log "$FARM/sluiced.log"
}

# worker NAME NUMBER [WRAPPER...]: node lab-NUMBER.
worker() {
  local name=$1 n=$2
  shift 2
  start "$name" "$@" -- sluice-worker --config "$FARM/conf" --server "unix:$SLUICE_SOCKET" --node "lab-$n" --run-dir "$FARM/run/$n" \
    --log "${LOG:-$FARM/worker-$n.log}"
}

node_is() { is ".nodes[] | select(.name == \"$1\") | $2" "$3" sluice nodes; }

@test "B42 a worker with 64 descriptors does many short TFs while somebody watches; the limit is no end" {
  bench 'devices = 2 shm = "16M"'
  worker one 1 prlimit --nofile=64:64
  wait_until 10 node_is lab-1 .usable true
  id=$(sluice run start --workflow none --sources 4)
  sluice replay "$(sample 2)" --run "$id" --loop "$(scaled 500)" --rate max --sources 4 2>"$FARM/replay.out" >&2 &
  replay=$!
  while kill -0 "$replay" 2>/dev/null; do sluice run show "$id" >/dev/null; sluice nodes >/dev/null; sleep 0.2; done
  wait "$replay" || { cat "$FARM/replay.out"; false; }
  sluice run stop "$id"
  is '.runs[0] | [.announced, .done, .failed, .lost] | join(" ")' "$(scaled 500) $(scaled 500) 0 0" sluice run show "$id"
  ! ended "$PID_one"
  [ "$(ls "/proc/$PID_one/fd" | wc -l)" -lt 64 ]
  [ "$(grep -c 'limit of descriptors' "$FARM/worker-1.log")" -le 1 ]
  wait_until 5 node_is lab-1 '[.buffer_used, .tfs] | join(" ")' "0 0"
}

@test "B50 a worker's clock may be wrong by any amount: it is measured, shown, and decides nothing" {
  bench 'devices = 1 shm = "8M"'
  shift_of=([1]=-1h [2]=-5s [3]=+5s [4]=+1h [5]=+10y)
  seconds=([1]=-3600 [2]=-5 [3]=5 [4]=3600 [5]=315360000)
  for n in 1 2 3 4 5; do
    # the monotonic clock stays as it is
    worker "w$n" "$n" env LD_PRELOAD="$(ls /usr/lib/*/faketime/libfaketimeMT.so.1)" FAKETIME_DONT_FAKE_MONOTONIC=1 "FAKETIME=${shift_of[n]}" \
      ASAN_OPTIONS="$ASAN_OPTIONS:verify_asan_link_order=0"
  done
  for n in 1 2 3 4 5; do
    wait_until 10 node_is "lab-$n" .usable true
    offset=$(json ".nodes[] | select(.name == \"lab-$n\") | .clock_offset" sluice nodes)
    awk -v a="$offset" -v b="${seconds[n]}" 'BEGIN { d = a - b; exit !(d < 86500 * (b > 1e6 ? 3 : 0) + 1.5 && d > -86500 * (b > 1e6 ? 3 : 0) - 1.5) }'
    grep -q 'clock' "$FARM/worker-$n.log"
  done
  id=$(sluice run start --workflow none --policy round-robin)
  sluice replay "$(sample 2)" --run "$id" --loop 60 --rate 30 2>/dev/null >/dev/null
  sluice run stop "$id"
  is '.runs[0] | [.done, .failed, .lost] | join(" ")' "60 0 0" sluice run show "$id"
  for n in 1 2 3 4 5; do
    [ "$(json ".nodes[] | select(.name == \"lab-$n\") | .last_contact_s < 4" sluice nodes)" = true ]
    node_is "lab-$n" .usable true
  done
  [ "$(json '[.runs[0].nodes[] | select(.done > 0)] | length' sluice run show "$id")" -eq 5 ]
}

@test "B52 heartbeats under load: busy processors, a saturated data path, a log that hangs: no false death, lateness is exported" {
  bench 'devices = 1 shm = "16M"'
  mkfifo "$FARM/log.fifo"
  sleep 1000 <"$FARM/log.fifo" 3>&- &                        # opens it and never reads
  STARTED+=($!)
  LOG=$FARM/log.fifo worker one 1 "${ON_ONE[@]}" nice -n 19
  wait_until 10 node_is lab-1 .usable true
  burners=()
  for i in {1..4}; do
    "${ON_ONE[@]}" sh -c 'while :; do :; done' 3>&- &
    burners+=($!)
  done
  id=$(sluice run start --workflow none --sources 2)
  sluice replay "$(sample 2)" --run "$id" --loop 100000 --rate max --sources 2 >"$FARM/replay.out" 2>&1 &
  replay=$!
  end=$((SECONDS + 8 * SCALE)) worst=0 looks=0
  while [[ $SECONDS -lt $end ]]; do
    read -r contact silent <<<"$(sluice nodes --json | jq -r '.nodes[] | select(.name == "lab-1") | "\(.contact) \(.last_contact_s)"')"
    [[ $contact == up || $contact == late ]]
    worst=$(awk -v a="$worst" -v b="$silent" 'BEGIN { print (b > a) ? b : a }')
    looks=$((looks + 1))
    sleep 0.1
  done
  ! ended "$replay"
  kill "${burners[@]}" "$replay"
  wait "${burners[@]}" "$replay" || true
  echo "$looks looks, longest silence $worst s"
  awk -v w="$worst" 'BEGIN { exit !(w < 4) }'
  sluice metrics | grep -E '^sluice_node_late_seconds\{.*lab-1'
  [ "$(json '[.events[] | select(.what | test("contact"; "i")) | select((.after // "") | test("lost|down"; "i"))] | length' sluice node history lab-1)" -eq 0 ]
  ! ended "$PID_one"
  [ "$(json '.runs[0].done' sluice run show "$id")" -ge 1 ]
  sluice run stop "$id" --data-timeout 2s || true
}

@test "--fail-on-loss: a worker whose sluiced is gone ends with 6 and says why; without it, it waits" {
  bench 'devices = 1 shm = "8M"'
  start one -- sluice-worker --config "$FARM/conf" --server "unix:$SLUICE_SOCKET" --node lab-1 --run-dir "$FARM/run/1" --log "$FARM/worker-1.log" --fail-on-loss
  worker two 2
  wait_until 10 is '[.nodes[] | select(.usable)] | length' 2 sluice nodes
  kill -KILL "$PID_sluiced"
  wait_until 5 ended "$PID_one"
  rc=0; wait "$PID_one" || rc=$?
  [ "$rc" -eq 6 ]
  grep -q "err: no connection to sluiced at unix:$SLUICE_SOCKET: .*the worker ends" "$FARM/worker-1.log"
  [ "$(jq -r .state "$FARM/run/1/status.json")" = stopped ]
  [[ $(jq -r .reason "$FARM/run/1/status.json") == "no connection to sluiced at unix:$SLUICE_SOCKET: "* ]]
  [ -z "$(ls "$FARM/shm" | grep -v lab-2)" ]
  wait_until 10 eval '[ "$(jq -r .word "$FARM/run/2/status.json")" = NoScheduler ]'
  ! ended "$PID_two"
}

@test "B60 a buffer that has no room: the node is in contact, says ShmShort with the sizes, and takes no work" {
  bench 'devices = 1 shm = "64T"'
  worker one 1
  wait_until 10 node_is lab-1 '[.state, .contact, .usable] | map(tostring) | join(" ")' "error up false"
  wait_until 5 node_is lab-1 '.why | index("ShmShort") != null' true
  [[ $(json '.nodes[] | select(.name == "lab-1") | .trouble' sluice nodes) == *"64T wanted, "*available* ]]
  [[ $(json '.shm[0].text' sluice shm lab-1) == *"64T wanted, "*available* ]]
  [ "$(jq -r .word "$FARM/run/1/status.json")" = ShmShort ]
  ! ended "$PID_one"
  [ -z "$(ls "$FARM/shm")" ]
}

@test "a reconstruction program that is not there: the device is broken and says why, the node takes no work" {
  bench 'devices = 1 shm = "8M"'
  start one -- sluice-worker --config "$FARM/conf" --server "unix:$SLUICE_SOCKET" --node lab-1 --run-dir "$FARM/run/1" --reco "$FARM/nowhere" \
    --log "$FARM/worker-1.log"
  wait_until 20 node_is lab-1 '.devices[0].state' broken
  [[ $(json '.nodes[] | select(.name == "lab-1") | .devices[0].why' sluice nodes) == *"cannot be run"* ]]
  node_is lab-1 '[.state, .usable] | map(tostring) | join(" ")' "error false"
}

@test "a TF that kills its process is tried again, kept, listed by crash list, and the node goes on" {
  bench 'devices = 1 shm = "16M"'
  start one env "FAKE_RECO_DOES=crash-once:$FARM/crashed" -- sluice-worker --config "$FARM/conf" --server "unix:$SLUICE_SOCKET" \
    --node lab-1 --run-dir "$FARM/run/1" --reco "$SLUICE_BUILDDIR/tests/fake/reco" --log "$FARM/worker-1.log"
  wait_until 10 node_is lab-1 .usable true
  id=$(sluice run start --workflow decode --output "$FARM/out")
  sluice replay "$(sample 2)" --run "$id" --loop 5 --rate max >/dev/null 2>&1
  sluice run stop "$id"
  is '.runs[0] | [.done, .failed, .lost, .retried] | join(" ")' "5 0 0 1" sluice run show "$id"
  is '.crashes | length' 1 sluice crash list
  folder=$(json '.crashes[0].folder' sluice crash list)
  [ "$(json '.crashes[0].word' sluice crash list)" = Crashed ]
  cmp "$folder/tf" "$(sample 2)"
  [ "$(jq -r '[.how, .workflow] | join("|")' "$folder/crash.json")" = "signal 11 (Segmentation fault)|decode" ]
  grep -q 'about to crash' "$folder/log"
  for f in "$FARM/out/$id"/*.digits; do cmp "$f" "$(sample 2)"; done
  # it can be done again here, with what was kept
  run -0 --separate-stderr sluice crash rerun 1 --output "$FARM/again" --json
  [ "$(jq -r '.tfs[0].digest' <<<"$output")" = "${DIGITS[2]}" ]
  [ "$(xxh3 "$FARM/again/tf.digits")" = "${DIGITS[2]}" ]
  [[ $stderr == "it was "*" then, and is sluice-reco "* ]]
  run -0 sluice crash rerun 1 --backend cpu
  rm "$folder/tf"
  run -3 sluice crash rerun 1
  [[ $output == *"crash 1: the bytes of the time-frame are not there: $folder/tf"* ]]
  mv "$folder" "$FARM/away"
  run -3 sluice crash rerun 1
  [[ $output == *"crash 1: its folder is on the machine of node lab-1: $folder"* ]]
  run -3 sluice crash rerun 77
  wait_until 5 node_is lab-1 '[.buffer_used, .tfs] | join(" ")' "0 0"
  sluice check
}

@test "a device that makes no progress: its process is replaced long before process_timeout, the stall is counted and kept with its TF" {
  bench 'devices = 1 shm = "16M"' "stall_factor = 4 stall_min = 1"
  start one env "FAKE_RECO_DOES=as:$FARM/does" -- sluice-worker --config "$FARM/conf" --server "unix:$SLUICE_SOCKET" \
    --node lab-1 --run-dir "$FARM/run/1" --reco "$SLUICE_BUILDDIR/tests/fake/reco" --log "$FARM/worker-1.log"
  wait_until 10 node_is lab-1 .usable true
  id=$(sluice run start --workflow decode --output "$FARM/out")
  sluice replay "$(sample 2)" --run "$id" --loop 6 --rate max >/dev/null 2>&1
  sluice run stop "$id"
  id=$(sluice run start --workflow decode --output "$FARM/out")
  echo hang >"$FARM/does"
  sluice replay "$(sample 2)" --run "$id" --loop 1 --rate max >/dev/null 2>&1 &
  replay=$!
  wait_until 30 is '.crashes[0].word' Stalled sluice crash list
  rm "$FARM/does"
  wait "$replay"
  sluice run stop "$id"
  is '.runs[0] | [.done, .failed, .lost] | join(" ")' "1 0 0" sluice run show "$id"
  stalls=$(sluice nodes --json | jq '.nodes[0].devices[0].stalls')
  [ "$stalls" -ge 1 ]
  [ "$(sluice metrics | sed -n 's/^sluice_device_stalls_total{node="lab-1",device="cpu-lab-1-0"} //p')" -eq "$stalls" ]
  sluice node show lab-1 -o stalls --parsable -h | grep -qx "$stalls"
  is '.crashes[0].device' cpu-lab-1-0 sluice crash show 1
  cmp "$(json '.crashes[0].folder' sluice crash list)/tf" "$(sample 2)"
  sluice check
}

@test "B69 a device whose memory is held by a process that is not ours is marked with its pid, and works again when that process has gone" {
  bench 'devices = 2 shm = "16M" gpu_arch = gfx906'
  mkdir "$FARM/gpus"
  jq -n '{devices: [("0000:03:00.0", "0000:c1:00.0") | {backend: "hip", id: ., class: "gfx906", memory: 34342961152, numa: 0, usable: true}]}' >"$FARM/gpus/devices"
  start one env FAKE_RECO_DOES="as:$FARM/does" FAKE_GPUS="$FARM/gpus" -- sluice-worker --config "$FARM/conf" --server "unix:$SLUICE_SOCKET" \
    --node lab-1 --run-dir "$FARM/run/1" --reco "$SLUICE_BUILDDIR/tests/fake/reco" --log "$FARM/worker-1.log"
  wait_until 10 node_is lab-1 '[.devices[].state] | join(" ")' "free free"
  sleep 1000 3>&- &
  holder=$!
  STARTED+=("$holder")
  echo "0000:03:00.0 3221225472" >"$FARM/gpus/held.$holder"
  first=$(json '.nodes[] | select(.name == "lab-1") | .devices[] | select(.serial == "0000:03:00.0") | .pid' sluice nodes)
  kill -KILL "$first"
  wait_until 20 node_is lab-1 '[.devices[].state] | sort | join(" ")' "free unclean"
  wait_until 10 node_is lab-1 '[.marks[] | .part, .owner_kind, .evidence] | join(" ")' "0000:03:00.0 health pids $holder"
  [[ $(json '.nodes[] | select(.name == "lab-1") | .marks[0].reason' sluice nodes) == "3.0 GiB of its memory are in use, 976.6 KiB when it is free; held by pids $holder" ]]
  node_is lab-1 '[.usable, (.why | sort | join(","))] | map(tostring) | join(" ")' "true MarkedByHealth,SlotUnclean"
  id=$(sluice run start --workflow decode --output "$FARM/out")
  sluice replay "$(sample 2)" --run "$id" --loop 4 --rate max >/dev/null 2>&1
  sluice run stop "$id"
  is '[.tfs[].device] | unique | join(" ")' 0000:c1:00.0 sluice run tfs "$id" --settled
  kill "$holder"
  wait_until 20 node_is lab-1 '[.devices[].state] | join(" ")' "free free"
  wait_until 10 node_is lab-1 '[.usable, (.marks | length)] | map(tostring) | join(" ")' "true 0"
  sluice node history lab-1 | grep -q 'its memory is free again'
  sluice check
}

# gpus ID...: what lab-1's driver has from now on. with_gpus: its worker.
gpus() { jq -n '{devices: [$ARGS.positional[] | {backend: "hip", id: ., class: "gfx906", memory: 34342961152, numa: 0, usable: true}]}' --args "$@" >"$FARM/gpus/new"; mv "$FARM/gpus/new" "$FARM/gpus/devices"; }
with_gpus() {
  start one env FAKE_RECO_DOES="as:$FARM/does" FAKE_GPUS="$FARM/gpus" -- sluice-worker --config "$FARM/conf" --server "unix:$SLUICE_SOCKET" \
    --node lab-1 --run-dir "$FARM/run/1" --reco "$SLUICE_BUILDDIR/tests/fake/reco" --log "$FARM/worker-1.log"
}
marks_of() { json ".nodes[] | select(.name == \"$1\") | [.marks[] | [.part, .severity, .owner_kind, .reason] | join(\"|\")] | join(\"; \")" sluice nodes; }

@test "B66 a GPU that is short after a reboot, and one that goes while it is busy: marked by serial, its TF is done elsewhere at once, the rest works where the pool lets it" {
  bench 'devices = 3 shm = "16M" gpu_arch = gfx906'
  mkdir "$FARM/gpus"
  gpus 0000:03:00.0 0000:26:00.0
  with_gpus
  wait_until 10 node_is lab-1 '[.devices[].state] | join(" ")' "free free"
  # never seen before: which one is short is not known
  wait_until 10 eval '[ "$(marks_of lab-1)" = "node|info|health|2 of the 3 devices of class lab are there" ]'
  node_is lab-1 .usable true
  kill -TERM "$PID_one"; wait_until 10 ended "$PID_one"
  gpus 0000:03:00.0 0000:26:00.0 0000:c1:00.0
  with_gpus
  wait_until 10 node_is lab-1 '([.devices[].state] | join(" ")) + " " + (.marks | length | tostring)' "free free free 0"
  # one of the three goes while it is busy, and takes its process along
  id=$(sluice run start --workflow decode --output "$FARM/out")
  echo hang >"$FARM/does"
  sluice replay "$(sample 2)" --run "$id" --loop 1 --rate max >/dev/null 2>&1 3>&- &
  replay=$!
  STARTED+=("$replay")
  wait_until 10 node_is lab-1 '[.devices[] | select(.state == "busy")] | length' 1
  gone=$(json '.nodes[] | select(.name == "lab-1") | .devices[] | select(.state == "busy") | .serial' sluice nodes)
  rm "$FARM/does"
  gpus $(printf '%s\n' 0000:03:00.0 0000:26:00.0 0000:c1:00.0 | grep -v "$gone")
  kill -KILL "$(json ".nodes[] | select(.name == \"lab-1\") | .devices[] | select(.serial == \"$gone\") | .pid" sluice nodes)"
  wait_until 5 is '.runs[0].done' 1 sluice run show "$id"
  is '.tfs[0] | [.state, .attempt] | map(tostring) | join(" ")' "done 2" sluice run tfs "$id" --settled
  [ "$(json '.tfs[0].device' sluice run tfs "$id" --settled)" != "$gone" ]
  wait_until 10 ended "$replay"
  wait_until 40 eval '[[ $(marks_of lab-1) == "$gone|block|health|"*"$gone"* ]]'
  marks_of lab-1
  node_is lab-1 .usable true
  sluice run stop "$id" >/dev/null
  # after another reboot it is missing, by its serial
  kill -TERM "$PID_one"; wait_until 10 ended "$PID_one"
  with_gpus
  wait_until 10 node_is lab-1 '[.devices[].state] | join(" ")' "free free"
  marks_of lab-1
  [[ $(marks_of lab-1) == *"$gone|block|health|"*"$gone"* ]]
  sluice node show lab-1 | grep -F "$gone"
  node_is lab-1 .usable true
  # and after one more reboot there is none
  kill -TERM "$PID_one"; wait_until 10 ended "$PID_one"
  gpus
  with_gpus
  wait_until 10 node_is lab-1 '[.state, ([.marks[] | select(.owner == "device" and .severity == "block") | .part] | unique | length)] | map(tostring) | join(" ")' "error 3"
  kill -TERM "$PID_one"; wait_until 10 ended "$PID_one"
  gpus $(printf '%s\n' 0000:03:00.0 0000:26:00.0 0000:c1:00.0 | grep -v "$gone")
  with_gpus
  sluice clear lab-1 "the riser sat loose" --any-owner >/dev/null
  wait_until 10 node_is lab-1 .usable true
  # a pool that wants its nodes whole
  echo 'pool online { degraded = no }' >>"$FARM/conf"; kill -HUP "$PID_sluiced"
  wait_until 10 node_is lab-1 '[.usable, (.why | index("DeviceMissing") != null)] | map(tostring) | join(" ")' "false true"
  sluice check
}

@test "B68 a query for devices that hangs for ever: it is given up in its time and not started without limit, the heart beats on and says since when, the device is marked" {
  bench 'devices = 2 shm = "16M" gpu_arch = gfx906' 'query_timeout = 0.8'
  mkdir "$FARM/gpus"
  gpus 0000:03:00.0 0000:c1:00.0
  queries() { pgrep -fc "$SLUICE_BUILDDIR/tests/fake/reco (devices|usage)" || true; }
  for how in hang deaf; do                       # deaf: TERM is ignored, too
    echo "$how" >"$FARM/gpus/query"
    with_gpus
    wait_until 20 node_is lab-1 '[.state, (.trouble // "" | test("device query stuck since [0-9]"))] | map(tostring) | join(" ")' "error true"
    json '.nodes[] | select(.name == "lab-1") | .trouble' sluice nodes
    sluice status --json | jq -e '.status[0].alarms[] | select(.word == "WorkerTrouble") | .text | test("device query stuck since")'
    for _ in {1..10}; do
      [ "$(queries)" -le 1 ]
      node_is lab-1 '.contact == "up" and .last_contact_s < 2' true
      sleep 0.2
    done
    rm "$FARM/gpus/query"
    wait_until 20 node_is lab-1 '[.devices[].state] | join(" ")' "free free"
    wait_until 10 node_is lab-1 '[.usable, (.trouble // ""), (.marks | length)] | map(tostring) | join("|")' "true||0" || { marks_of lab-1; sluice why lab-1; sluice node history lab-1; false; }      # nor a note that none was there
    # later: a process has ended, and whether its memory is free cannot be asked
    echo "$how" >"$FARM/gpus/query"
    kill -KILL "$(json '.nodes[] | select(.name == "lab-1") | .devices[] | select(.serial == "0000:c1:00.0") | .pid' sluice nodes)"
    wait_until 20 node_is lab-1 '[.marks[] | [.part, .severity, .owner_kind] | join(" ")] | join("; ")' "0000:c1:00.0 block health"
    marks_of lab-1
    [[ $(marks_of lab-1) == *"device query stuck since"* ]]
    node_is lab-1 '[.contact, .usable] | map(tostring) | join(" ")' "up true"
    [ "$(queries)" -le 1 ]
    rm "$FARM/gpus/query"
    wait_until 20 node_is lab-1 '[.devices[].state] | join(" ")' "free free"
    wait_until 10 node_is lab-1 '.marks | length' 0
    kill -TERM "$PID_one"; wait_until 10 ended "$PID_one"
  done
  sluice check
}

@test "B63 a process that cannot run where its device is: node show and shm say what was wanted and what is" {
  bench 'devices = 2 shm = "16M"'
  worker one 1 env "HWLOC_SYNTHETIC=numa:2 pu:512"
  wait_until 20 node_is lab-1 '[.devices[].state] | join(" ")' "free free"
  here=$(awk '/^Cpus_allowed_list/ { print $2 }' /proc/self/status)
  node_is lab-1 '[.devices[] | .numa_wanted, .cpus_wanted, .cpus_actual] | join(" ")' "0 0-511 $here 1 512-1023 $here"
  node_is lab-1 '.devices[1].misplaced | split(";")[0]' "runs on CPUs $here, wanted 512-1023"
  if [[ -d /sys/devices/system/node/node0 && ! -d /sys/devices/system/node/node1 ]]; then
    node_is lab-1 '[.devices[] | .numa_actual] | map(tostring) | join(" ")' "0 null"
    node_is lab-1 '.devices[0].misplaced' null
    node_is lab-1 '.devices[1].misplaced | split("; ")[1]' "memory from any domain, wanted 1"
    is '.shm[] | select(.node == "lab-1") | [.numa_wanted, .numa, .misplaced] | map(tostring) | join(" ")' "0,1 0 false" sluice shm
  fi
  sluice node show lab-1 | grep cpu-lab-1-1 | grep -F "runs on CPUs $here, wanted 512-1023"
  sluice node show lab-1 -o placement --parsable | grep -F "cpu-lab-1-0: NUMA domain 0, CPUs $here"
  grep -F "device cpu-lab-1-1: runs on CPUs $here, wanted 512-1023" "$FARM/worker-1.log"
}

@test "what of the buffer is pinned for a device, what was wanted, and why it is less, stands in node show" {
  bench 'devices = 1 shm = "16M"'
  start one env "FAKE_PINNED=16781312 0 0 67108864 memlock is 64K: raise LimitMEMLOCK" -- sluice-worker --config "$FARM/conf" --server "unix:$SLUICE_SOCKET" \
    --node lab-1 --run-dir "$FARM/run/1" --reco "$SLUICE_BUILDDIR/tests/fake/reco" --log "$FARM/worker-1.log"
  wait_until 10 node_is lab-1 .usable true
  node_is lab-1 '.devices[0].pinned' null
  id=$(sluice run start --workflow none)
  sluice replay "$(sample 2)" --run "$id" --loop 2 --rate max >/dev/null 2>&1
  sluice run stop "$id"
  wait_until 5 node_is lab-1 '.devices[0].pinned | [.wanted, .actual, .chunks, .staging, .text] | map(tostring) | join("|")' \
    "16781312|0|0|67108864|memlock is 64K: raise LimitMEMLOCK"
  [ "$(sluice node show lab-1 -o pinned --parsable -h)" = "cpu-lab-1-0: 0 of 16.0 MiB in 0 chunks, staging ring of 64M: memlock is 64K: raise LimitMEMLOCK" ]
  grep -F "0 of 16781312 bytes of the buffer are pinned: memlock is 64K" "$FARM/worker-1.log"
}

@test "TFs that hang are ended at the stop of their run, and the node is whole again" {
  bench 'devices = 1 shm = "16M"'
  start one env FAKE_RECO_DOES=deaf -- sluice-worker --config "$FARM/conf" --server "unix:$SLUICE_SOCKET" \
    --node lab-1 --run-dir "$FARM/run/1" --reco "$SLUICE_BUILDDIR/tests/fake/reco" --log "$FARM/worker-1.log"
  wait_until 10 node_is lab-1 .usable true
  id=$(sluice run start --workflow none)
  sluice replay "$(sample 2)" --run "$id" --loop 3 --rate max >/dev/null 2>&1 &
  wait_until 10 eval '[ "$(sluice run show '"$id"' --json | jq ".runs[0].in_flight")" -eq 3 ]'
  run timeout 20 sluice run stop "$id" --data-timeout 1s
  is '.runs[0].in_flight' 0 sluice run show "$id"
  wait_until 5 node_is lab-1 '[.buffer_used, .tfs] | join(" ")' "0 0"
  wait_until 5 node_is lab-1 '.devices[0].state' free
  sluice check
}
