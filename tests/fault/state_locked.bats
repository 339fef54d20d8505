#!/usr/bin/env bats
# Somebody holds the lock of the database: everything waits within a limit, nothing that was acknowledged is lost, the loop never stands still.
load ../lib
load ../rig

setup() { rig_setup; }
teardown() { rm -f "$FARM/go" "$FARM/hold"; farm_teardown; }

# the person with the sqlite3 shell: holds the lock while $FARM/hold is there
holder() {
  { echo "BEGIN EXCLUSIVE; SELECT 'held';"; while [[ -e $FARM/hold ]]; do sleep 0.05; done; echo "COMMIT;"; } | sqlite3 -cmd '.timeout 20000' "$FARM/state/state.db"
}
operator() {
  local i=0
  while [[ -e $FARM/go ]]; do
    i=$((i + 1))
    if sluice mark "n00$((4 + i % 5))" "mark $i" >/dev/null 2>>"$FARM/operator.err"; then echo "mark $i" >>"$FARM/marks"; fi
  done
}
# how long the daemon took to answer at most, in ms, while $FARM/go is there
watcher() {
  local t worst=0
  while [[ -e $FARM/go ]]; do
    t=$(date +%s%N); timeout 20 sluice ping >/dev/null || echo "no answer"; t=$((($(date +%s%N) - t) / 1000000))
    [[ $t -le $worst ]] || { worst=$t; echo "$t"; }
  done
}
marks() { wc -l <"$FARM/marks"; }
more_marks() { [[ $(marks) -gt $1 ]]; }
holds() { grep -q held "$FARM/holder.out"; }
hold() { touch "$FARM/hold"; : >"$FARM/holder.out"; background holder holder; wait_until 20 holds; }
let_go() { rm -f "$FARM/hold"; wait_until 20 ended "$PID_holder"; }
links() { grep -c 'connection closed' "$FARM/sluiced.log" || true; }

@test "B35 BEGIN EXCLUSIVE for 1 s and for 30 s under 100 reports a second: all waits, heartbeats go on, a named alarm, nothing acknowledged is lost" {
  daemon
  nodes_add 'n[001-009]'
  workers 3 --seconds-per-tf 0.01
  run_start --sources 1
  source_start --count 1 --hold --rate 100 --tfs 1000000 --size 64K
  wait_until 20 done_at_least 20
  touch "$FARM/go" "$FARM/marks"
  background operator operator
  background watcher watcher
  wait_until 20 more_marks 3

  # a second: hardly noticed
  hold
  sleep 1
  let_go
  wait_until 20 more_marks $(($(marks) + 2))
  no_alarm StateNotWritable

  # half a minute (in soak; 4 s otherwise): marks wait, the alarm has a name, the stream and the heartbeats do not care
  held=4; [ -z "${SLUICE_SOAK:-}" ] || held=30
  until_s=$((SECONDS + held))
  hold
  wait_until 20 alarm StateLocked
  at=$(marks)
  stream_goes_on 50
  run sluice status
  [[ $output == *StateLocked* && $output == *"lock of the database"* && $output == *"backup"* ]]
  sluice nodes --json | jq -e '[.nodes[] | select(.contact == "up" and .last_contact_s < 3)] | length == 3'
  # a copy can be had meanwhile
  timeout 20 sluice backup "$FARM/copy.db"
  [ "$(sqlite3 -readonly "$FARM/copy.db" 'PRAGMA integrity_check')" = ok ]
  wait_until $((held + 10)) eval '[ "$SECONDS" -ge "$until_s" ]'
  [ "$(marks)" -le $((at + 1)) ]          # acknowledged only once it is on disk
  let_go
  wait_until 20 no_alarm StateLocked
  wait_until 20 more_marks $((at + 3))
  rm "$FARM/go"
  wait_until 20 ended "$PID_operator"; wait_until 20 ended "$PID_watcher"
  echo "the slowest answers, ms: $(paste -sd' ' "$FARM/watcher.out")"
  ! grep -q 'no answer' "$FARM/watcher.out"
  [ "$(links)" -eq 0 ]
  # nobody was refused
  [ ! -s "$FARM/operator.err" ]

  wait_until 20 eval '[ "$(metric sluice_state_kept)" -lt 200 ]'
  counted=$(run_number done)
  daemon_kill
  daemon
  sluice nodes --json | jq -r '.nodes[].marks[].reason' | sort >"$FARM/there"
  sort "$FARM/marks" >"$FARM/said"
  [ "$(comm -23 "$FARM/said" "$FARM/there" | wc -l)" -eq 0 ]
  wait_until 30 done_at_least "$counted"
  stream_goes_on 20
  kill -TERM "$PID_source"; wait_until 10 ended "$PID_source"
  timeout 60 sluice run stop "$RUN" --data-timeout 1s
  sluice check
}

@test "B35 beyond the limit: marks and new work are refused, the alarm names who holds it, the stream's reports wait" {
  # the limit of 35 s in soak, 3 s otherwise
  [ -n "${SLUICE_SOAK:-}" ] || echo 'limits { lock_timeout = 3 }' >>"$FARM/conf"
  daemon
  nodes_add 'n[001-009]'
  workers 3 --seconds-per-tf 0.01
  run_start --sources 1
  source_start --count 1 --hold --rate 100 --tfs 1000000 --size 64K
  wait_until 20 done_at_least 20
  hold
  wait_until 60 alarm StateNotWritable
  [[ $(alarm StateNotWritable) == *sqlite3* ]]
  run timeout 20 sluice mark n004 "x"
  [ "$status" -eq 4 ]
  run timeout 20 sluice move n004 --to async
  [ "$status" -eq 4 ]
  stream_goes_on 100
  let_go
  wait_until 20 no_alarm StateNotWritable
  wait_until 20 sluice mark n004 "y"
  kill -TERM "$PID_source"; wait_until 10 ended "$PID_source"
  timeout 60 sluice run stop "$RUN" --data-timeout 1s
  sluice check
}

# who reads the database and does not end his transaction
reader() {
  { echo "BEGIN; SELECT 'held', count(*) FROM event;"; while [[ -e $FARM/hold ]]; do sleep 0.05; done; echo "COMMIT;"; } | sqlite3 -readonly "$FARM/state/state.db"
}
log_size() { metric sluice_state_log_bytes; }
log_below() { [[ $(log_size) -lt $1 ]] || { log_size; return 1; }; }
pace() { sleep "$(awk -v from="$1" -v s="$2" -v now="$EPOCHREALTIME" 'BEGIN { d = from + s - now; print (d > 0 ? d : 0) }')"; }      # what is left of s seconds
rounds() { for _ in $(seq "$1"); do sluice mark 'n[001-300]' "$reason"; sluice clear 'n[001-300]' "$reason" --repeat-ok; done >/dev/null; }
log_is_large() { rounds 3; alarm StateLogGrows; }

@test "B36 a read transaction that stays open while much is written: an alarm with the size, and the log is small again when it ends; our own readers hold up nothing" {
  daemon
  nodes_add 'n[001-300]'
  reason=$(printf 'x%.0s' {1..900})
  # those who watch, wait, list and ask for history while as much is written: none of them keeps the log from coming home
  background watch sluice watch --from 1 --jsonl
  sluice move n300 --to async --when now+1h >/dev/null
  background wait sluice wait move 1
  rounds 2
  sluice node history n001 >/dev/null; sluice dump >/dev/null
  rounds 5
  wait_until 10 log_below $((5 << 20))
  # an hour in soak, with 500 changes a second
  touch "$FARM/hold"; : >"$FARM/reader.out"
  background reader reader
  wait_until 20 grep -q held "$FARM/reader.out"
  until_s=$((SECONDS + ${SLUICE_SOAK:+3600} + 0))
  while [[ $SECONDS -lt $until_s ]]; do from=$EPOCHREALTIME; rounds 1; pace "$from" 1.2; done
  wait_until 120 log_is_large
  [[ $(alarm StateLogGrows) =~ "the write-ahead log has "[0-9]+" MiB: somebody keeps a read transaction open" ]]
  large=$(log_size)
  [ "$large" -gt $((64 << 20)) ]
  [ "$(stat -c %s "$FARM/state/state.db-wal")" -eq "$large" ]
  rm "$FARM/hold"; wait_until 20 ended "$PID_reader"
  pid=$PID_sluiced
  wait_until 20 log_below $((5 << 20))
  wait_until 10 no_alarm StateLogGrows
  [ "$(stat -c %s "$FARM/state/state.db-wal")" -lt $((5 << 20)) ]
  ! ended "$pid"
  echo "$((large >> 20)) MiB, then $(log_size) bytes"
}
