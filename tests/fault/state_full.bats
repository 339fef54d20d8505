#!/usr/bin/env bats
# The disk of the state is full: marks still go in, the running stream goes on, everything else waits for room.
load ../lib
load ../rig

setup() { rig_setup; need_rooms; }
teardown() { rm -f "$FARM/go"; farm_teardown; }

# operator: marks and moves as long as $FARM/go is there; what was acknowledged is kept in files.
operator() {
  local i=0
  while [[ -e $FARM/go ]]; do
    i=$((i + 1))
    if sluice mark "n00$((4 + i % 5))" "mark $i" >/dev/null 2>>"$FARM/operator.err"; then echo "mark $i" >>"$FARM/marks"; fi
    if sluice move n009 --to async --when now >/dev/null 2>>"$FARM/operator.err"; then sluice move n009 --to online --when now >/dev/null 2>>"$FARM/operator.err" || true; fi
  done
}
fill() { dd if=/dev/zero of="$disk/$1" bs=64k 2>/dev/null || true; dd if=/dev/zero of="$disk/$1.2" bs=512 2>/dev/null || true; }
refused() { run timeout 20 "$@"; echo "$*: $status $output"; [[ $status -eq 4 && $output == *"state"* ]]; }
more_marks() { [[ $(wc -l <"$FARM/marks") -gt $1 ]]; }

@test "B33 a full state disk: marks go in, new work is refused with the reason, the run goes on, all resumes by itself" {
  room disk -- "mkdir -p $FARM/state && mount -t tmpfs -o size=20M tmpfs $FARM/state"
  disk=$ROOM_disk$FARM/state
  daemon "${IN_disk[@]}"
  nodes_add 'n[001-009]'
  workers 3 --seconds-per-tf 0.02
  run_start --sources 2
  source_start --count 2 --hold --rate 40 --tfs 100000 --size 64K
  wait_until 20 done_at_least 10
  touch "$FARM/go" "$FARM/marks"
  background operator operator
  wait_until 20 more_marks 3

  # it fills while marks, moves and reports of time-frames arrive
  fill filler
  wait_until 30 alarm StateNotWritable
  [ "$(metric sluice_state_writable)" = 0 ]
  run sluice status
  [[ $output == *"not writable"* && $output == *"free space"* ]]

  # marks still go in
  more=$(wc -l <"$FARM/marks")
  wait_until 30 more_marks $((more + 5))
  # what would have to be stored first is refused, with the reason; nothing of it is there afterwards
  before=$(sluice nodes --json | jq -c '[.nodes[] | [.name, .pool]]')
  refused sluice move n008 --to async
  refused sluice run start --workflow none
  refused sluice submit "$(sample 2)" --workflow none
  refused sluice node add n777 --class fake
  [ "$(sluice nodes --json | jq -c '[.nodes[] | [.name, .pool]]' | sed 's/,\["n009","[a-z]*"\]//')" = "$(sed 's/,\["n009","[a-z]*"\]//' <<<"$before")" ]
  is '[.runs[].id] | length' 1 sluice runs --all
  is '.jobs | length' 0 sluice jobs --all
  # the stream goes on, its counters in memory
  stream_goes_on 40
  [ "$(metric sluice_state_kept)" -gt 0 ]
  is '[.nodes[] | select(.contact == "up")] | length' 3 sluice nodes

  # the reserve gone too: a mark that is not on disk is not acknowledged, but it acts
  rm "$FARM/go"; wait_until 20 ended "$PID_operator"
  fill last
  for _ in {1..200}; do
    run timeout 20 sluice mark n004 "does not fit $(printf 'x%.0s' {1..300})"
    [ "$status" -eq 0 ] || break
    fill "last.$RANDOM"
  done
  echo "$status $output"
  [ "$status" -ne 0 ]
  [[ $output == *"state"* ]]
  stream_goes_on 20

  # room again: no restart is needed
  rm "$disk"/filler* "$disk"/last*
  wait_until 30 no_alarm StateNotWritable
  wait_until 30 no_alarm MarksNotStored
  [ "$(metric sluice_state_writable)" = 1 ]
  sluice move n008 --to async --wait --timeout 20s
  other=$(sluice run start --workflow none)
  job=$(sluice submit "$(sample 2)" --workflow none)
  stream_goes_on 20
  wait_until 20 eval '[ "$(metric sluice_state_kept)" -lt 200 ]'
  counted=$(run_number done)

  # and what was acknowledged is on disk
  daemon_kill
  daemon "${IN_disk[@]}"
  sluice nodes --json | jq -r '.nodes[].marks[].reason' | sort >"$FARM/there"
  [ "$(sort "$FARM/marks" | comm -23 - "$FARM/there" | tee /dev/stderr | wc -l)" -eq 0 ]
  is '.nodes[] | select(.name == "n008") | .pool' async sluice nodes
  sluice run show "$other" >/dev/null
  sluice job show "$job" >/dev/null
  wait_until 30 done_at_least "$counted"
  stream_goes_on 20
  kill -TERM "$PID_source"; wait_until 10 ended "$PID_source"
  timeout 60 sluice run stop "$RUN" --data-timeout 1s
  sluice check
}
