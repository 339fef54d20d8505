#!/usr/bin/env bats
# The real sluiced with hundreds of workers and sources that only pretend to work: shares, pauses, refusals, crowds that come back, clocks.
load ../lib

FAKES=$SLUICE_BUILDDIR/tests/fake

setup() {
  farm_setup
  mkdir -p "$FARM/farm"
  printf 'class fake {\n  devices = 1\n  shm = 1G\n}\n' >"$FARM/conf"
}
teardown() { farm_teardown; }

daemon() { start sluiced "$@" -- sluiced --config "$FARM/conf" --state "$FARM/state" --socket "$SLUICE_SOCKET" --log "$FARM/sluiced.log"; }

# nodes LIST: added. workers N [OPTION...]: fake workers n001 ..., all registered.
nodes() { sluice node add "$1" --class fake >/dev/null; }
workers() { local n=$1; shift; start workers -- "$FAKES/fake-worker" --server "unix:$SLUICE_SOCKET" --count "$n" --quiet "$@"; }
run_start() { RUN=$(sluice run start --workflow none "$@"); }
# feed [OPTION...]: sources of the run, until all is released. The summary is in $output.
feed() { run --separate-stderr timeout "$(scaled 120)" "$FAKES/fake-source" --server "unix:$SLUICE_SOCKET" --run "$RUN" --quiet "$@"; echo "$output $stderr"; [ "$status" -eq 0 ]; }
# source_start [OPTION...]: the same in the background.
source_start() {
  "$FAKES/fake-source" --server "unix:$SLUICE_SOCKET" --run "$RUN" --quiet "$@" >"$FARM/source.out" 2>&1 3>&- &
  PID_source=$!
  STARTED+=("$PID_source")
}
done_more() { [ "$(sluice run show "$RUN" --json | jq '.runs[0].done')" -gt "$1" ]; }
# workers_end: their summary is in $SUMMARY.
workers_end() {
  kill -TERM "$PID_workers"
  wait_until 10 ended "$PID_workers"
  SUMMARY=$(grep '^{' "$FARM/workers.out" | tail -n 1)
  jq -c '.nodes |= map([.accepted, .refused])[:12]' <<<"$SUMMARY"
}
figures() { jq -er "$1" <<<"$SUMMARY"; }
# settled: every TF of the run has its end, every credit is back, and sluiced can prove it.
settled() {
  wait_until 30 is '.runs[0].in_flight' 0 sluice run show "$RUN"
  sluice run stop "$RUN" >/dev/null
  sluice check >"$FARM/check.txt" || { cat "$FARM/check.txt"; return 1; }
  is '[.nodes[] | .tfs + .buffer_charged] | add' 0 sluice nodes
  ! sluice metrics | grep 'illegal_steps"} [1-9]' || { grep 'no step it may take' "$FARM/sluiced.log"; return 1; }
}

@test "B30 a node that paused while a burst arrived gets its share of the same run" {
  daemon
  nodes 'n[001-010]'
  workers 10 --seconds-per-tf 0.02 --buffer 64M --full 1:-:0.5
  run_start --sources 1
  # 500 TFs arrive in the half second in which n001 says that it is full; the run goes on at more than can be done
  source_start --count 1 --hold --rate 1000 --tfs 4000 --size 4M
  wait_until 20 done_more 0
  kill -USR1 "$PID_workers"
  wait_until 60 done_more 1500
  sluice run show "$RUN" --json >"$FARM/before.json"
  wait_until 60 ended "$PID_source"
  settled
  sluice run show "$RUN" --json >"$FARM/after.json"
  workers_end
  # what each did after the pause: n001 as much as the others within 10 %
  jq -es 'map(.runs[0].nodes | map({(.node): .done}) | add) as [$b, $a] | ($a | with_entries(.value -= ($b[.key] // 0))) as $d
          | ([$d[]] | add / 10) as $mean | ($d | debug) as $x | $b.n001 < ([$b[]] | add / 10) and $mean > 100 and ($d.n001 - $mean | fabs) < 0.1 * $mean' "$FARM/before.json" "$FARM/after.json"
  figures '.accepted == 4000 and ([.nodes[1:][].refused] | add) < 200'
}

@test "B32 shares follow the speed under policy buffer, and not under round-robin" {
  daemon
  nodes 'n[001-008]'
  # one and two TFs a second, nine a second come; ten times as fast otherwise
  local slow=0.1 fast=0.05 rate=90
  [ -z "${SLUICE_SOAK:-}" ] || slow=1 fast=0.5 rate=9
  workers 8 --seconds-per-tf $slow,$slow,$slow,$fast,$slow,$slow,$slow,$fast --buffer 100M
  for policy in buffer round-robin; do
    run_start --sources 2 --policy "$policy"
    feed --count 2 --rate $rate --tfs 540 --size 2M
    settled
    sluice run show "$RUN" --json >"$FARM/$policy.json"
  done
  workers_end
  share() { jq -er '.runs[0].nodes | (map(select(.node == "n004" or .node == "n008").done) | add / 2) / (map(select(.node != "n004" and .node != "n008").done) | add / 6)' "$FARM/$1.json"; }
  fair=$(share buffer) even=$(share round-robin)
  echo "a fast node does $fair times what a slow one does under buffer, $even under round-robin"
  awk -v f="$fair" -v e="$even" 'BEGIN { exit !(f > 1.5 && f < 2.6 && e < 1.4 && f > e) }'
  jq -e '.runs[0] | .done == 540 and .failed == 0 and .lost == 0 and ([.nodes[].fill_high] | max) == 0' "$FARM/buffer.json"
  figures '.refused == 0 and .accepted == 1080'
}

@test "B19 refusals and failures leave no credit behind" {
  daemon
  nodes 'n[001-004]'
  workers 4 --seconds-per-tf 0.01 --reject 2 --fail 5
  run_start --sources 2
  # ten minutes of them: nodes that refuse and fail are passed over for a while, so that all together do about 20 a second, whatever is offered
  local tfs=${SLUICE_SOAK:+12000}
  tfs=${tfs:-$(scaled 200)}
  feed --count 2 --hold --rate 200 --tfs "$tfs" --size 1M
  settled
  wait_until 10 is '[.nodes[] | .tfs, .buffer_charged, .buffer_used] | add' 0 sluice nodes         # used: as the workers report it
  workers_end
  figures '.refused > 0 and .failed > 0 and .held == 0 and .accepted_twice == 0'
  figures "(.accepted - .refused | fabs) < 0.5 * .accepted"        # every second was refused, or nearly: one that is asked again is another
  is ".runs[0] | .announced == $tfs and .announced == .done + .failed + .lost + ([.dropped[]?] | add // 0)" true sluice run show "$RUN"
}

@test "B21 workers that forget, leave, and are killed: the run ends, and nothing refers to one that is gone" {
  daemon
  nodes 'n[001-012]'
  local i round limit=$((SECONDS + 120))
  crew() { start "crew$1" -- "$FAKES/fake-worker" --server "unix:$SLUICE_SOCKET" --count 4 --first "$((1 + 4 * $1))" --seconds-per-tf 0.02 --forget 50 --leave 70 --quiet; }
  for i in 0 1 2; do crew $i; done
  run_start --sources 2
  source_start --count 2 --hold --rate 100000 --tfs "$(scaled 1000)" --size 1M
  for ((round = 0; round < $(scaled 6); round++)); do
    ! ended "$PID_source" || break
    i=$((RANDOM % 3))
    sleep "0.$((RANDOM % 9 + 1))"
    pid=PID_crew$i
    kill -KILL "${!pid}"; wait_until 10 ended "${!pid}"
    crew $i
  done
  wait_until $((limit - SECONDS)) ended "$PID_source"
  cat "$FARM/source.out"
  settled
  [ "$(grep -c '^{' "$FARM/source.out")" = 1 ]
  jq -e '.unreleased == 0' "$FARM/source.out"
  is '.runs[0] | .announced == .done + .failed + .lost + ([.dropped[]?] | add // 0)' true sluice run show "$RUN"
  sluice run show "$RUN" --json | jq -e ".runs[0] | .announced == $(scaled 1000) and .lost == 0 and .in_flight == 0"
}

@test "B43 a thousand workers come back after a restart: spread, within a minute, and no TF is done twice" {
  daemon
  nodes 'n[0001-1000]'
  workers 1000 --width 4 --seconds-per-tf 2 --pull
  run_start --sources 2
  source_start --count 2 --hold --rate 300 --tfs "$(scaled 2000)" --size 4K --listen "unix:$FARM/source.sock"
  wait_until 60 done_more 100
  kill -KILL "$PID_sluiced"; wait_until 10 ended "$PID_sluiced"
  sleep "$(scaled 5)"
  daemon
  wait_until 60 is '[.nodes[] | select(.contact == "up")] | length' 1000 sluice nodes
  wait_until 120 ended "$PID_source"
  cat "$FARM/source.out"
  settled
  workers_end
  # the mean wait between tries grows to 2.5 s: once that is so, no second sees all of them
  figures '.back_s > 0 and .back_s < 65 and .most_registered == 1000'
  figures '.tries | length >= 3 and (.[3:] | max // 0) < 1000'
  # nobody was given what another one still had or had done, but for the few that no source had seen pulled yet at that moment (doc/path.md, 8)
  figures '.doubles <= 8 and .accepted_twice == 0'
  sluice run show "$RUN" --json | jq -e ".runs[0] | .done == $(scaled 2000) and .announced == .done and .lost == 0 and .failed == 0"
}

@test "B50 clocks that differ are measured, shown and harmless" {
  daemon
  local shift i=0
  nodes 'n[001-005]'
  for shift in -3600 -5 5 3600 315360000; do
    i=$((i + 1))
    start "clock$i" -- "$FAKES/fake-worker" --server "unix:$SLUICE_SOCKET" --count 1 --first $i --clock-shift="$shift" --seconds-per-tf 0.01 --quiet
    sluice node show "n00$i" --json | jq -e ".nodes[0] | .usable and ((.clock_offset - ($shift)) | fabs) < 1"
  done
  grep -q 'its clock is off by -3600.0 s' "$FARM/sluiced.log"
  run_start --sources 1
  feed --count 1 --rate 100 --tfs 300 --size 1M
  settled
  is '[.nodes[] | select(.done > 30 and .usable)] | length' 5 sluice nodes
  # liveness by our own clock: all have been in contact within the last seconds
  is '[.nodes[] | select(.last_contact_s < 3)] | length' 5 sluice nodes
}

@test "B42 with 40 descriptors and 100 connections an operator still gets in" {
  daemon prlimit -n40
  nodes 'n[001-100]'
  start early -- "$FAKES/fake-worker" --server "unix:$SLUICE_SOCKET" --count 2 --quiet --seconds-per-tf 0.01
  "$FAKES/fake-worker" --server "unix:$SLUICE_SOCKET" --count 98 --first 3 --seconds-per-tf 0.01 >"$FARM/late.out" 2>&1 3>&- &
  STARTED+=($!)
  wait_until 10 grep -q 'out of file descriptors' "$FARM/sluiced.log"
  used() { awk '{ print $14 + $15 }' "/proc/$PID_sluiced/stat"; }
  before=$(used)
  for _ in 1 2 3; do
    run timeout 20 sluice nodes --json
    [ "$status" -eq 0 ]
    [ "$(jq '[.nodes[] | select(.name == "n001" or .name == "n002") | select(.contact == "up")] | length' <<<"$output")" = 2 ]
    sleep 1
  done
  after=$(used)
  echo "$((after - before)) ticks of processor time in 3 s"
  [ $((after - before)) -lt 100 ]
  [ "$(grep -c 'out of file descriptors' "$FARM/sluiced.log")" = 1 ]
  ! ended "$PID_sluiced"
}

# an hour of soak, half of it each
MUTANT_S=$(scaled 4)
[ -z "${SLUICE_SOAK:-}" ] || MUTANT_S=1800

@test "B40 damaged frames at the port of sluiced: closed with a counted reason, everything else goes on" {
  daemon
  nodes 'mutant,n[001-002]'
  workers 2 --seconds-per-tf 0.01
  run_start --sources 2
  source_start --count 1 --first-part 1 --hold --rate 1 --tfs 1000
  errors() { sluice metrics | sed -n 's/^sluice_events_total{event="protocol_errors"} //p'; }
  before=$(errors)
  run timeout 4000 "$FAKES/fake-mutant" --server "unix:$SLUICE_SOCKET" --seconds "$MUTANT_S"
  echo "$output"
  [ "$status" -eq 0 ]
  jq -e '.connections > 20 and .frames > 500 and .closed > 10' <<<"$output"
  [ "$(errors)" -gt "$((before + 10))" ]
  grep -qE 'closed: .*(UTF-8|wire type|broken|at most|unknown)' "$FARM/sluiced.log"
  ! ended "$PID_sluiced"
  sluice check
  wait_until 10 is '[.nodes[] | select(.name != "mutant" and .usable)] | length' 2 sluice nodes
}

@test "B40 damaged frames to a worker from what it takes for sluiced" {
  printf 'class mi50 {\n  devices = 1\n  shm = 16M\n  nominal_ms = 10\n}\n' >"$FARM/conf"
  "$FAKES/fake-mutant" --listen "unix:$FARM/evil.sock" --seconds "$MUTANT_S" >"$FARM/mutant.json" 2>&1 3>&- &
  mutant=$!
  STARTED+=("$mutant")
  mkdir -p "$FARM/shm" "$FARM/run"
  sluice-worker --config "$FARM/conf" --server "unix:$FARM/evil.sock" --node n001 --class mi50 --shm-dir "$FARM/shm" --shm 16M --run-dir "$FARM/run" \
    --log "$FARM/worker.log" >"$FARM/worker.out" 2>&1 3>&- &
  worker=$!
  STARTED+=("$worker")
  wait_until $((MUTANT_S + 20)) ended "$mutant"
  cat "$FARM/mutant.json"
  jq -e '.connections > 1 and .frames > 20' "$FARM/mutant.json"
  ! ended "$worker"
  kill -TERM "$worker"
  wait_until 3 ended "$worker"
}

# people_start [OPTION...]: 200 clients that ask for all nodes and all jobs ten times a second.
people_start() { start people -- "$FAKES/fake-people" --server "unix:$SLUICE_SOCKET" --count 200 --period 0.1 "$@"; }
people_end() { kill -TERM "$PID_people"; wait_until 10 ended "$PID_people"; ASKED=$(grep '^{' "$FARM/people.out" | tail -n 1); echo "$ASKED"; }
asked() { jq -e "$1" <<<"$ASKED"; }
# turnaround: [median, 99 of 100] in ms from a TF's announcement to its release, all of it through sluiced.
turnaround() { run_start --sources 1; feed --count 1 --rate 351 --tfs "$(scaled 1400)" --size 7M; TURN=$(jq -c '[.turnaround_ms.p50, .turnaround_ms.p99]' <<<"$output"); settled; }

# as_alone [OPTION...]: beside people TFs take less than twice as long as alone. Both are measured up to three times, for the machine has other things to do;
# people are left there.
as_alone() {
  local try
  for try in 1 2 3; do
    if [[ $try -gt 1 || -z ${ALONE:-} ]]; then turnaround; ALONE=$TURN; fi
    people_start "$@"
    turnaround
    echo "ms alone $ALONE, with people $TURN"
    ! jq -en "$ALONE as \$b | $TURN as \$a | \$a[0] < 2 * \$b[0] + 5 and \$a[1] < 2 * \$b[1] + 100" || return 0
    people_end
  done
  return 1
}

@test "B58 200 clients that list nodes and jobs every 100 ms: told when to try again, the command does, and time-frames go on as before" {
  daemon
  nodes 'n[001-350]'
  workers 350 --width 3 --seconds-per-tf 0.02 --buffer 337G
  as_alone --heed
  # the command waits as long as it is told to; changes are not put off; who watches needs not ask
  sluice nodes -n n001 >/dev/null
  sluice mark n001 "in the midst of it"
  timeout 20 sluice watch --from 1 --jsonl | head -n 1 | jq -e .seq
  people_end
  asked '.answered > 100 and .put_off > 50 and .errors == 0 and .lost == 0 and .retry_least >= 50 and .retry_most <= 10000'
  asked '.last | test("try again in [0-9]+ ms")'
  # those who do not heed it get no more, and cost as little
  as_alone
  people_end
  asked '.put_off > .answered and .errors == 0 and .lost == 0'
  [[ $(sluice metrics | awk '/questions_put_off/ { print $2 }') -gt 100 ]]
}

@test "B75 one result in 500 of n013 is wrong: verification finds the node, proposes a mark with the digests, and publishes none of the wrong ones" {
  printf 'health {\n  verify_sample = 1\n}\n' >>"$FARM/conf"
  daemon
  nodes 'n[010-015]'
  workers 6 --first 10 --width 3 --seconds-per-tf 0.002 --build-seconds 0.001 --building-limit 8 --corrupt 13:500
  run_start --sources 1
  feed --count 1 --hold --rate 2000 --tfs 4000 --size 1M
  sluice run show "$RUN" --json | jq -e '.runs[0] | .done == 4000 and .failed == 0 and .lost == 0'
  is '[.nodes[] | select(.marks | length > 0) | .name] | join(" ")' n013 sluice nodes
  # proposed: the node goes on, people are told what was seen and what to do
  sluice nodes -n n013 --json | jq -e '.nodes[0] | .usable and (.marks[0] | .owner_kind == "health" and .owner == "verify" and .severity == "info"
    and (.reason | test("wrong result: run [0-9]+ TF [0-9]+ gave [0-9a-f]{16} here, [0-9a-f]{16} elsewhere; a mark is proposed"))
    and (.evidence | test("[0-9a-f]{16} on n01[0-9], [0-9a-f]{16} on n01[0-9], [0-9a-f]{16} on n01[0-9]")))'
  sluice status --json | jq -e '.status[0].alarms[] | select(.word == "WrongResults") | (.text | test("n013")) and (.advice | test("sluice mark"))'
  is '.health[0].nodes[] | select(.node == "n013") | .wrong > 0' true sluice health
  settled
  workers_end
  figures '.corrupted > 0 and .accepted_twice == 0'
}
