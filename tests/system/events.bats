#!/usr/bin/env bats
# History as a stream, the state as lines, a backup that is put back.
load ../lib
load ../rig

setup() { rig_setup; }
teardown() { farm_teardown; }

# watcher NAME [OPTION...]: watch in the background, lines in $FARM/NAME.out.
watcher() { local name=$1; shift; background "$name" sluice watch --jsonl "$@"; }
numbers() { jq -s -c 'map(.seq)' "$@"; }
newest() { sluice nodes --json | jq .meta.seq; }
has_lines() { [[ $(wc -l <"$1") -ge $2 ]] || { echo "$1 has $(wc -l <"$1") of $2 lines"; return 1; }; }

@test "watch: every event once and in order, from any number on, as they come" {
  daemon
  nodes_add 'n[1-20]'
  watcher all --from 1
  watcher new
  sleep 0.3
  seen=$(newest)
  for i in 1 2 3; do sluice mark 'n[1-20]' "round $i"; sluice clear 'n[1-20]' "round $i is over" --repeat-ok; done >/dev/null
  last=$(newest)
  [ "$last" -eq $((seen + 120)) ]
  wait_until 10 has_lines "$FARM/all.out" "$last"
  wait_until 10 has_lines "$FARM/new.out" 120
  [ "$(numbers "$FARM/all.out")" = "$(jq -n -c "[range(1; $last + 1)]")" ]
  [ "$(numbers "$FARM/new.out")" = "$(jq -n -c "[range($seen + 1; $last + 1)]")" ]
  # the same as history says, and a place in the middle
  sluice node history 'n[1-20]' --jsonl --limit 10000 | jq -S -c . >"$FARM/history"
  jq -S -c 'select(.node != null)' "$FARM/all.out" | diff - "$FARM/history"
  kill -TERM "$PID_all"; wait_until 10 ended "$PID_all"
  watcher tail --from $((last - 4))
  wait_until 10 has_lines "$FARM/tail.out" 5
  tail -n 5 "$FARM/new.out" | diff - "$FARM/tail.out"
  sluice mark n7 "and one more" >/dev/null
  wait_until 10 has_lines "$FARM/tail.out" 6
  [ "$(tail -n 1 "$FARM/tail.out" | jq -r '[.seq, .node, .reason] | join("|")')" = "$((last + 1))|n7|and one more" ]
}

@test "watch: whoever read it has gone, and nothing more happens: it ends" {
  daemon
  nodes_add n1
  timeout 20 sluice watch --from 1 --jsonl 2>"$FARM/words" | head -n 1 | jq -e '.seq == 1'
  [ "${PIPESTATUS[0]}" -eq 0 ]
  [ ! -s "$FARM/words" ]
}

@test "watch: a number beyond the newest is exit 3 and says the newest; a document without an end is refused" {
  daemon
  nodes_add n1
  run sluice watch --from 1000000
  [ "$status" -eq 3 ]
  [[ $output == *"no event 1000000 yet: the newest is $(newest)"* ]]
  run sluice watch --json
  [ "$status" -eq 2 ]
  [[ $output == *--jsonl* ]]
  run sluice watch --from 0
  [ "$status" -eq 2 ]
}

@test "watch: sluiced is killed and comes back: the watcher goes on, no number comes twice, what was acknowledged is there" {
  daemon
  nodes_add n1
  watcher all --from 1
  wait_until 10 has_lines "$FARM/all.out" 1
  for i in $(seq "$(scaled 4)"); do
    sluice mark n1 "before $i" >/dev/null; daemon_kill; daemon
    sluice clear n1 "after $i" --repeat-ok >/dev/null
  done
  last=$(newest)
  wait_until 20 eval '[ "$(tail -n 1 "$FARM/all.out" | jq .seq)" = '"$last"' ]'
  numbers "$FARM/all.out" | jq -e '. == (sort | unique)'
  [ "$(jq -r 'select(.what == "marked" or .what == "cleared") | .reason' "$FARM/all.out" | wc -l)" -eq $((2 * $(scaled 4))) ]
}

@test "B45 twenty watchers that stand still while 10 000 events pass cost sluiced nothing that grows, delay nobody, and go on where they were" {
  daemon env ASAN_OPTIONS="$ASAN_OPTIONS:quarantine_size_mb=1"
  nodes_add 'n[1-100]'
  local i pids=()
  for i in $(seq 21); do watcher "w$i" --from 1; done
  for i in $(seq 21); do wait_until 10 has_lines "$FARM/w$i.out" 100; done
  for i in $(seq 20); do name=PID_w$i; pids+=("${!name}"); done
  kill -STOP "${pids[@]}"
  rss() { awk '/VmRSS/ { print $2 }' "/proc/$PID_sluiced/status"; }
  reason=$(printf 'x%.0s' {1..900})
  rounds() { for _ in $(seq "$1"); do sluice mark 'n[1-100]' "$reason"; sluice clear 'n[1-100]' "$reason" --repeat-ok; done >/dev/null; }
  rounds 30                        # 6000 events: fills what sluiced keeps in memory anyway
  before=$(rss)
  rounds 20
  grown=$(($(rss) - before))
  echo "grown by $grown KiB while 20 rounds of 200 KiB came"
  [ "$grown" -lt 6144 ]
  # the one that reads has them all at once, and a question is answered as ever
  last=$(newest)
  [ "$last" -ge 10000 ]
  wait_until 5 has_lines "$FARM/w21.out" "$last"
  [ "$(sluice ping --json | jq '.ping[0].seconds < 1')" = true ]
  clients_left() { [ "$(metric sluice_clients)" -le 2 ]; }
  wait_until 20 clients_left       # those that stand still were let go
  kill -CONT "${pids[@]}"
  last=$(newest)
  for i in $(seq 21); do
    wait_until 60 has_lines "$FARM/w$i.out" "$last"
    [ "$(numbers "$FARM/w$i.out")" = "$(jq -n -c "[range(1; $last + 1)]")" ]
  done
}

@test "watch and dump read from the disk what memory holds no more" {
  daemon
  for i in 0 1 2 3 4; do nodes_add "n[${i}001-${i}999],n$((i + 1))000"; done
  watcher all --from 3
  wait_until 20 has_lines "$FARM/all.out" 4998
  [ "$(numbers "$FARM/all.out")" = "$(jq -n -c '[range(3; 5001)]')" ]
  sluice dump >"$FARM/dump"
  [ "$(jq -c 'select(.kind == "event") | .seq' "$FARM/dump" | wc -l)" -eq 5000 ]
}

# The state as lines: what is stored, not what workers said, nor of this start.
lines() {
  sluice dump | jq -S -c 'if .kind == "node" then {kind, name, pool, wanted_pool, added, class, shm_wanted, marks, move}
                          elif .kind == "run" then del(.nodes, .stalled_s) elif .kind == "move" then del(.ended)
                          else select(.kind | IN("dump", "end", "config") | not) end'
}

@test "dump: every line an object, the first and the last say so; a backup put back gives the same lines, and numbers that go on" {
  daemon
  nodes_add 'n[1-6]'
  workers 4 --width 1 --seconds-per-tf 0.01
  sluice mark n1 $'odd \e[31m| reason'; sluice mark n2 "for a while" --until now+1h; sluice mark n3 gone; sluice clear n3 "was not"
  sluice move n4 --to async --wait --timeout 20s
  run_start; source_start --tfs 200 --size 1M --hold
  wait_until 30 done_at_least 200
  sluice run stop "$RUN"
  sluice submit "$(samples)" --workflow none --key k >/dev/null
  wait_until 20 is '.jobs[0].done' 3 sluice job show 1
  kill -TERM "$PID_workers"; wait_until 10 ended "$PID_workers"
  wait_until 10 is '[.nodes[] | select(.contact == "up")] | length' 0 sluice nodes
  sluice dump >"$FARM/dump"
  jq -e . "$FARM/dump" >/dev/null
  [ "$(head -n 1 "$FARM/dump" | jq -r .kind) $(tail -n 1 "$FARM/dump" | jq -r .kind)" = "dump end" ]
  [ "$(jq -r .kind "$FARM/dump" | sort | uniq -c | awk '{ print $2 ":" $1 }' | grep -v event | paste -sd' ')" = "config:1 dump:1 end:1 job:1 move:1 node:6 run:1 task:3 tf:200" ]
  [ "$(jq -r 'select(.kind == "event") | .seq' "$FARM/dump" | wc -l)" -eq "$(newest)" ]
  ! grep -q $'\e' "$FARM/dump"
  lines >"$FARM/then"
  sluice backup "$FARM/backup.db"
  last=$(newest)
  sluice mark n5 "after the backup"; sluice clear n1 "after the backup"; sluice move n6 --to async --wait --timeout 20s
  ! lines | diff -q "$FARM/then" -
  newer=$(newest)
  kill -TERM "$PID_sluiced"; wait_until 10 ended "$PID_sluiced"
  sluiced --config "$FARM/conf" --state "$FARM/state" --restore "$FARM/backup.db"
  daemon
  lines | diff "$FARM/then" - | grep '^[<>]' >"$FARM/differences" || true
  # nothing but what the restart itself wrote
  [ "$(grep -c '^<' "$FARM/differences")" -eq 0 ] || { cat "$FARM/differences"; false; }
  ! grep -v '"kind":"event"' "$FARM/differences"
  sluice check
  # who watched goes on behind what it saw
  sluice watch --from $((newer + 1)) --jsonl >"$FARM/watcher.out" 2>&1 3>&- &
  STARTED+=($!)
  # numbers that were given out before the restore never come again
  sluice mark n5 "after the restore"
  sluice node history n5 --jsonl | tail -n 1 | jq -e --argjson newer "$newer" '.reason == "after the restore" and .seq > $newer'
  wait_until 10 grep -q '"after the restore"' "$FARM/watcher.out"
}
