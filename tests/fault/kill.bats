#!/usr/bin/env bats
# Every program killed, stopped and continued; every start twice.
load ../lib

setup() { farm_setup; }
teardown() { farm_teardown; }

sluiced_pid() { sluice status --json | jq -r '(.status[0] // .).pid'; }
# Written beside the loop: a worker may be usable before its status file is there.
worker_pid() { wait_until 10 test -s "$FARM/farm/run/$1/status.json"; jq -r .pid "$FARM/farm/run/$1/status.json"; }
settled() { # RUN ANNOUNCED: every TF came to an end, and none was lost or failed
  is '.runs[0] | [.announced, .done + .failed + .lost + ([.dropped[].value] | add // 0), .in_flight] | join(" ")' "$2 $2 0" sluice run show "$1"
}

@test "sluiced is killed in mid-run: the run goes on, every TF is done once" {
  farm_up --nodes mi50:2 --nominal mi50=30
  id=$(sluice run start --workflow decode --output "$FARM/out")
  sluice replay "$(sample 2)" --run "$id" --loop 100 --rate 30 &
  replay=$!
  for round in 1 2 3; do
    wait_until 20 eval '[ "$(sluice run show '"$id"' --json | jq ".runs[0].done")" -ge '$((round * 20))' ]'
    pid=$(sluiced_pid)
    kill -KILL "$pid"; wait_until 10 ended "$pid"
    farm_up --nodes mi50:2 >/dev/null
  done
  wait "$replay"
  sluice run stop "$id"
  is '.runs[0] | [.state, .announced, .done, .failed, .lost] | join(" ")' "done 100 100 0 0" sluice run show "$id"
  [ "$(ls "$FARM/out/$id" | grep -c '\.digits$')" -eq 100 ]
  [ -z "$(find "$FARM/out" -name '*.a[0-9]*')" ]
  for f in "$FARM/out/$id"/*.digits; do [ "$(xxh3 "$f")" = "${DIGITS[2]}" ]; done
  sluice check
}

@test "a worker is killed in mid-run: its TFs go to another, its buffer is adopted by the next" {
  farm_up --nodes mi50:2 --nominal mi50=50
  id=$(sluice run start --workflow decode --output "$FARM/out")
  sluice replay "$(sample 2)" --run "$id" --loop 80 --rate 25 &
  replay=$!
  wait_until 20 eval '[ "$(sluice run show '"$id"' --json | jq ".runs[0].done")" -ge 20 ]'
  pid=$(worker_pid mi50-001)
  kill -KILL "$pid"; wait_until 10 ended "$pid"
  wait_until 6 is '.nodes[] | select(.name == "mi50-001") | .state' down sluice nodes
  farm_up --nodes mi50:2 >/dev/null
  wait "$replay"
  sluice run stop "$id"
  is '.runs[0] | [.announced, .done, .failed, .lost] | join(" ")' "80 80 0 0" sluice run show "$id"
  sluice check
}

@test "B09 a stopped worker is down within 5 s, with reason and last contact, in list, JSON and metrics; continued it is back" {
  farm_up --nodes mi50:2
  pid=$(worker_pid mi50-001)
  kill -STOP "$pid"
  wait_until 6 is '.nodes[] | select(.name == "mi50-001") | [.state, .why[0]] | join(" ")' "down ContactLost" sluice nodes
  [ "$(json '.nodes[] | select(.name == "mi50-001") | .last_contact_s > 3 and (.marks | length) == 0' sluice nodes)" = true ]
  # as people read it: what, why, since when; and it is not one that somebody marked
  [[ $(sluice nodes -t down --parsable -h -o name,state,reason,last_contact) =~ ^mi50-001\|down\|ContactLost\|[3-9](\.[0-9]+)?\ ?s?$ ]] || { sluice nodes -t down -o name,state,reason,last_contact; false; }
  sluice nodes | grep -E 'down .* mi50-001 +ContactLost'
  [ -z "$(sluice nodes -R -h -o name)" ]
  sluice nodes --json -n mi50-001 | jq -e '.nodes[0] | .contact == "lost" and .why == ["ContactLost"]'
  sluice node history mi50-001 --json | jq -e '[.events[] | select(.what == "contact" and .after == "lost")] | length == 1 and (.[0].reason | startswith("no sign of life for ")) and (.[0].time | length > 0)'
  of() { sluice metrics | awk -v m="$1" 'index($0, m "{node=\"mi50-001\"") == 1 && ($0 ~ FILTER || FILTER == "") { print $NF }' FILTER="${2:-}"; }
  [ "$(of sluice_node_state 'state="down"')" = 1 ]
  [ "$(of sluice_node_state 'state="bad"')" = 0 ]
  awk -v s="$(of sluice_node_last_contact_seconds)" 'BEGIN { exit !(s > 3 && s < 60) }'
  [ "$(of sluice_node_marks | sort -u)" = 0 ]
  kill -CONT "$pid"
  wait_until 15 is '.nodes[] | select(.name == "mi50-001") | .usable' true sluice nodes
}

@test "B61 a worker and its child are killed again and again in mid-TF: nothing of theirs stays, foreign files do" {
  farm_up --nodes mi50:1 --nominal mi50=100
  shm=$(cat "$FARM/farm/shm-dir")
  echo foreign >"$shm/foreign-file"
  for ((i = 0; i < $(scaled 5); i++)); do
    id=$(sluice run start --workflow decode)
    sluice replay "$(sample 2)" --run "$id" --loop 5 --rate max >/dev/null 2>&1 &
    replay=$!
    wait_until 10 eval '[ "$(sluice run show '"$id"' --json | jq ".runs[0].dispatched")" -ge 1 ]'
    pid=$(worker_pid mi50-001)
    pkill -KILL -P "$pid"; kill -KILL "$pid"; wait_until 10 ended "$pid"
    farm_up --nodes mi50:1 >/dev/null
    wait "$replay" || true
    sluice run stop "$id" --data-timeout 1s || true
  done
  [ "$(find "$shm" -name '*.buffer' | wc -l)" -eq 1 ]
  [ "$(cat "$shm/foreign-file")" = foreign ]
  rm "$shm/foreign-file"
}

@test "a lock that a killed worker left for a moment to a child of its own is waited for" {
  farm_up --nodes mi50:1
  lock=$FARM/farm/run/mi50-001/lock pid=$(worker_pid mi50-001)
  pkill -KILL -P "$pid"; kill -KILL "$pid"; wait_until 10 ended "$pid"
  flock "$lock" sleep 1 3>&- &
  wait_until 5 eval '! flock -n "$lock" true'
  farm_up --nodes mi50:1
  wait "$!"
}

@test "a second sluiced and a second worker are refused, naming the first" {
  farm_up --nodes mi50:1
  run timeout 20 sluiced --config "$FARM/farm/sluice.conf"
  [ "$status" -ne 0 ]
  [[ $output == *"$(sluiced_pid)"* ]]
  # on the terminal too where there is a log
  for program in "sluiced" "sluice-worker --server unix:$SLUICE_SOCKET --node mi50-001 --class mi50 --run-dir $FARM/farm/run/mi50-001 --shm-dir $(cat "$FARM/farm/shm-dir")"; do
    run timeout 20 $program --config "$FARM/farm/sluice.conf" --log "$FARM/second.log"
    [ "$status" -eq 4 ]
    [[ $output == *"pid "* && $(tail -n 1 "$FARM/second.log") == *"pid "* ]] || { echo "$program: $output"; false; }
  done
  run timeout 20 sluice-worker --config "$FARM/farm/sluice.conf" --server "unix:$SLUICE_SOCKET" --node mi50-001 --class mi50 \
    --run-dir "$FARM/farm/run/mi50-001" --shm-dir "$(cat "$FARM/farm/shm-dir")"
  [ "$status" -eq 4 ]
  [[ $output == *"$(worker_pid mi50-001)"* ]]
  # from another machine, as it were: what the first one holds is not in its way, and sluiced has to say it
  mkdir "$FARM/other"
  sed 's/contact_timeout = .*/contact_timeout = 0.5/' "$FARM/farm/sluice.conf" >"$FARM/other/sluice.conf"
  run timeout 30 sluice-worker --config "$FARM/other/sluice.conf" --server "unix:$SLUICE_SOCKET" --node mi50-001 --class mi50 \
    --run-dir "$FARM/other/run" --shm-dir "$FARM/other" --shm 16M
  echo "$output"
  [ "$status" -eq 4 ]
  [[ $output == *"another worker is in contact under this name"*"one worker per farm and node name"* ]]
  is '.nodes[0] | "\(.state) \(.usable)"' 'idle true' sluice nodes
}

@test "a worker without its scheduler is in error within 5 s, keeps results, comes back" {
  farm_up --nodes mi50:1
  pid=$(sluiced_pid)
  kill -STOP "$pid"
  wait_until 6 eval '[ "$(jq -r .state "$FARM/farm/run/mi50-001/status.json")" = error ]'
  [ "$(jq -r '.reason | length > 5' "$FARM/farm/run/mi50-001/status.json")" = true ]
  kill -CONT "$pid"
  wait_until 15 eval '[ "$(jq -r .state "$FARM/farm/run/mi50-001/status.json")" = running ]'
  wait_until 15 is '.nodes[0].usable' true sluice nodes
}

@test "a killed source: its TFs are lost with the reason, the run ends" {
  farm_up --nodes mi50:1 --nominal mi50=200
  id=$(sluice run start --workflow none)
  sluice replay "$(sample 2)" --run "$id" --loop 50 --rate max >/dev/null 2>&1 &
  wait_until 10 eval '[ "$(sluice run show '"$id"' --json | jq ".runs[0].dispatched")" -ge 3 ]'
  kill -KILL $(pgrep -f -- "sluice-source .*$FARM/.*--run $id ")
  run timeout 40 sluice run stop "$id" --data-timeout 2s
  n=$(json '.runs[0].announced' sluice run show "$id")
  settled "$id" "$n"
  sluice check
}

@test "B76 start, stop, start with TFs in flight leaves nothing behind and mixes nothing" {
  local nodes=3
  [ -z "${SLUICE_SOAK:-}" ] || nodes=20
  farm_up --nodes "mi50:$nodes" --nominal mi50=40
  for ((i = 0; i < $(scaled 30); i++)); do
    id=$(sluice run start --workflow none)
    sluice replay "$(sample 2)" --run "$id" --loop 40 --rate max >/dev/null 2>&1 &
    replay=$!
    wait_until 10 eval '[ "$(sluice run show '"$id"' --json | jq ".runs[0].dispatched")" -ge 1 ]'
    limit=$(((SEED + i * 7919) % 5001)) before=$(date +%s%3N)
    timeout 20 sluice run stop "$id" --data-timeout "${limit}ms"
    took=$(($(date +%s%3N) - before))
    [ "$took" -lt $((limit + 3000)) ] || { echo "a stop within $limit ms took $took ms"; false; }
    wait "$replay" || true
    settled "$id" "$(json '.runs[0].announced' sluice run show "$id")"
  done
  wait_until 10 is '[.nodes[] | .tfs, .buffer_charged] | add' 0 sluice nodes
  wait_until 10 is '[.nodes[] | .buffer_used] | add' 0 sluice nodes
  sluice check
}

@test "SIGTERM ends every daemon within 2 s, with TFs in flight" {
  farm_up --nodes mi50:2 --nominal mi50=500
  id=$(sluice run start --workflow none)
  sluice replay "$(sample 2)" --run "$id" --loop 20 --rate max >/dev/null 2>&1 &
  wait_until 10 eval '[ "$(sluice run show '"$id"' --json | jq ".runs[0].in_flight")" -ge 4 ]'
  for pid in $(worker_pid mi50-001) $(worker_pid mi50-002) $(sluiced_pid); do
    kill -TERM "$pid"
    wait_until 3 ended "$pid"
  done
  kill %1 2>/dev/null || true
}
