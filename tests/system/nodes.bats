#!/usr/bin/env bats
# Marks, pools and moves as operators type them.
load ../lib

setup() { farm_setup; farm_up --nodes mi50:3 --nominal mi50=30 >/dev/null; }
teardown() { farm_teardown; }

node() { jq -r ".nodes[] | select(.name == \"$1\") | $2"; }

@test "B01 a mark survives a clean restart, kill -9, and a move; no TF goes there in between" {
  sluice mark mi50-003 "ECC errors"
  sluice move mi50-003 --to async --wait --timeout 20s
  mark=$(sluice nodes --json | node mi50-003 '.marks[0] | tojson')
  [ "$(jq -r '[.reason, .owner_kind, .owner] | join(" ")' <<<"$mark")" = "ECC errors person $(id -un)" ]
  history=$(sluice node history mi50-003 --json | jq -c '[.events[] | select(.what == "marked" or .what == "moved")]')
  job=$(sluice submit "$(sample 2)" --workflow none)
  pid=$(sluice status --json | jq -r '(.status[0] // .).pid')
  for how in TERM KILL; do
    kill -"$how" "$pid"
    wait_until 10 ended "$pid"
    farm_up --nodes mi50:3 >/dev/null
    pid=$(sluice status --json | jq -r '(.status[0] // .).pid')
    [ "$(sluice nodes --json | node mi50-003 '[.pool, .state, .usable, (.marks | length)] | join("|")')" = "async|bad|false|1" ]
    [ "$(sluice nodes --json | node mi50-003 '.marks[0] | tojson')" = "$mark" ]
    [ "$(sluice node history mi50-003 --json | jq -c '[.events[] | select(.what == "marked" or .what == "moved")]')" = "$history" ]
    sluice replay "$(sample 2)" --loop 6
  done
  # neither the runs nor the job that only this node could do
  [ "$(sluice nodes --json | node mi50-003 '[.done, .tfs] | join(" ")')" = "0 0" ]
  is '.jobs[0].why' WaitingForNodes sluice job show "$job"
  [ "$(jq -r '[.[] | .reason] | index("ECC errors") != null' <<<"$history")" = true ]
}

@test "a marked node gets no TF from the moment of the mark, and its reason and author are shown" {
  run sluice mark mi50-002 "fan is loud"
  mark=$(sluice nodes --json | node mi50-002 '.marks[0].id')
  [ "$output" = "mi50-002: marked (mark $mark)" ]
  sluice replay "$(sample 2)" --loop 9
  [ "$(sluice nodes --json | node mi50-002 '[.done, .tfs] | join(" ")')" = "0 0" ]
  run sluice nodes -R
  [[ $output == *mi50-002* && $output == *"fan is loud"* && $output == *"$(id -un)"* && $output == *" block "* ]]
  # a mark of a program says how it is cleared, and by whom
  sluice mark mi50-001 "hot" --tool ipmi-watch --severity info
  [ "$(sluice nodes -R --parsable -h -o name,severity | paste -sd' ')" = "mi50-001|info mi50-002|block" ]
  run -4 sluice clear mi50-001 "cold"
  [[ $output == *"--tool ipmi-watch clears that program's"* && $output != *any-owner* ]]
  run -4 sluice clear mi50-002 "new fan" --tool ipmi-watch
  [[ $output == *"it is yours: leave --tool out"* ]]
  sluice clear mi50-001 "cold" --tool ipmi-watch
  sluice clear mi50-002 "new fan"
  sluice replay "$(sample 2)" --loop 9
  [ "$(sluice nodes --json | node mi50-002 .done)" -gt 0 ]
}

@test "B07 bad is computed from open marks" {
  sluice mark mi50-001 A
  sluice clear mi50-001 "A is over"
  pid=$(sluice status --json | jq -r '(.status[0] // .).pid')
  kill -KILL "$pid"; wait_until 10 ended "$pid"
  farm_up --nodes mi50:3 >/dev/null
  [ "$(sluice nodes --json | node mi50-001 .usable)" = true ]
  sluice mark mi50-001 B
  [ "$(sluice nodes --json | node mi50-001 .usable)" = false ]
}

@test "B13 an unknown name in a list changes nothing; --keep-going says a line a node" {
  run sluice move mi50-001,nXXX,mi50-002 --to async
  [ "$status" -eq 3 ]
  [[ $output == *nXXX* ]]
  [ "$(sluice nodes --json | jq -r '[.nodes[].pool] | unique | join(",")')" = online ]
  # all that are unknown are named, whatever was asked
  for ask in 'move LIST --to async' 'mark LIST x' 'clear LIST x' 'node retire LIST x' 'node history LIST' 'nodes -n LIST' 'shm LIST'; do
    run -3 sluice ${ask/LIST/mi50-001,nXXX,mi50-002,nYYY}
    [[ $output == *"nodes nXXX,nYYY: there are no such nodes"* ]] || { echo "$ask: $output"; false; }
  done
  is '[.nodes[] | .pool, (.marks | length)] | map(tostring) | unique | join(",")' 0,online sluice nodes
  run sluice move mi50-001,nXXX,mi50-002 --to async --keep-going --dry-run --json
  [ "$status" -eq 8 ]
  jq -e '[.results[] | [.node, .code]] == [["mi50-001", 0], ["nXXX", 3], ["mi50-002", 0]]' <<<"$output"
  run sluice move mi50-001,nXXX,mi50-002 --to async --keep-going
  [ "$status" -eq 8 ]
  for line in 'mi50-001: move * from online to async: drained' 'nXXX: *there is no such node' 'mi50-002: move * from online to async: drained'; do
    [ "$(while read -r got; do [[ $got != $line ]] || echo 1; done <<<"$output" | wc -l)" -eq 1 ] || { echo "$output"; false; }
  done
  wait_until 10 is '[.nodes[] | select(.pool == "async")] | length' 2 sluice nodes
}

@test "a move refuses to go below the pool's minimum" {
  run sluice move mi50-[001-003] --to async
  [ "$status" -eq 4 ]
  [[ $output == *min* ]]
}

@test "a mark of an unknown node, an empty reason and a bad host list are refused" {
  run sluice mark nobody "x"
  [ "$status" -eq 3 ]
  run sluice mark mi50-001 ""
  [ "$status" -eq 2 ]
  run sluice mark 'mi50-[3-1]' "x"
  [ "$status" -eq 2 ]
  [[ $output == *column* ]]
}

@test "B55 separators and line breaks in a reason break no listing" {
  reason=$'a|b,c\nd"e'
  sluice mark mi50-001 "$reason"
  [ "$(sluice nodes --json | node mi50-001 '.marks[0].reason')" = "$reason" ]
  run sluice nodes -N --parsable -o name,state,reason
  [ "$(wc -l <<<"$output")" -eq 4 ]
  [[ $output == *'a\|b,c\nd"e'* ]]
  run sluice nodes -R
  [[ $output == *'\n'* ]]
  # wherever it shows: in parsable lists each line has the fields of the header, in JSON it is as it was given, a table has a line each
  sluice move mi50-002 --to async --wait --timeout 20s
  run -2 sluice run start --workflow none --name "$reason"         # names have none of it
  run -2 sluice submit "$(sample 2)" --workflow none --name "$reason"
  sluice run start --workflow none
  sluice run stop 1
  sluice submit "$(sample 2)" --workflow none --wait
  sluice clear mi50-001 "$reason"; sluice mark mi50-001 "$reason" --tool site-check
  fields() { sed -E 's/\\./x/g' | awk -F'|' '{ print NF }' | sort -u | wc -l; }
  for list in 'nodes -N -o name,state,reason' 'nodes' 'nodes -R' 'nodes -l' 'node show mi50-001' 'node history @all' 'jobs --all' 'job show 1' 'job tfs 1' 'runs --all' 'run show 1' \
              'moves --all' 'shm' 'health' 'status' 'logs --node mi50-001' 'crash list' 'why mi50-001'; do
    sluice $list --parsable >"$FARM/list" || { echo "$list: $?"; false; }
    [ "$(fields <"$FARM/list")" -eq 1 ] || { echo "$list:"; cat "$FARM/list"; false; }
    sluice $list --json | jq -e .schema.name >/dev/null || { echo "$list"; false; }
  done
  sluice node history mi50-001 --json | jq -e --arg r "$reason" '[.events[].reason] | map(select(. == $r)) | length == 3'
  [ "$(sluice node history mi50-001 -h | wc -l)" -eq "$(sluice node history mi50-001 --json | jq '.events | length')" ]
  for list in 'node history mi50-001' 'nodes -R' 'nodes' 'node show mi50-001'; do
    sluice $list --parsable | grep -F 'a\|b,c\nd"e' || { echo "$list"; false; }
  done
}

@test "--dry-run changes nothing" {
  sluice move mi50-001 --to async --dry-run
  sluice mark mi50-001 "x" --dry-run || true
  [ "$(sluice nodes --json | node mi50-001 '[.pool, .wanted_pool] | join(" ")')" = "online online" ]
}

@test "a node leaves the online pool in mid-run: the run loses nothing and uses it no more" {
  id=$(sluice run start --workflow none)
  sluice replay "$(sample 2)" --run "$id" --loop 60 --rate 20 &
  replay=$!
  wait_until 10 eval '[ "$(sluice run show '"$id"' --json | jq ".runs[0].done")" -ge 10 ]'
  sluice move mi50-002 --to async --wait --timeout 20s
  at=$(sluice nodes --json | node mi50-002 .done)
  wait "$replay"
  sluice run stop "$id"
  is '.runs[0] | [.announced, .done, .failed, .lost] | join(" ")' "60 60 0 0" sluice run show "$id"
  [ "$(sluice nodes --json | node mi50-002 .done)" = "$at" ]
  sluice check
}

@test "nodes not in the configuration are held aside until they are added" {
  mkdir "$FARM/stray-shm"
  start worker -- sluice-worker --server "unix:$SLUICE_SOCKET" --node stray-1 --class mi50 --config "$FARM/farm/sluice.conf" \
    --run-dir "$FARM/stray" --shm-dir "$FARM/stray-shm" --shm 16M
  wait_until 10 eval 'sluice nodes --json | jq -e ".nodes[] | select(.name == \"stray-1\" and .added == false and (.why | index(\"NotAdded\")))"'
  for word in @all @online @class:mi50; do
    run -0 sluice shm set "$word" 16M --dry-run
    [[ $output == *mi50-001* && $output != *stray* ]]
  done
  sluice node add stray-1 --class mi50
  sluice shm set @class:mi50 16M --dry-run | grep stray-1
  wait_until 10 is '.nodes[] | select(.name == "stray-1") | .usable' true sluice nodes
}

@test "logs of a list of nodes: one that has none keeps back nothing of the others" {
  sluice node add 'ghost-[1-2]' --class mi50
  for mode in "" --json; do
    run -8 --separate-stderr sluice logs --node ghost-1,mi50-002,ghost-2,mi50-003 --lines 5 $mode
    [[ $stderr == *"node ghost-1: no contact with its worker"*"node ghost-2: no contact with its worker"* ]]
    [[ $output == *mi50-002*mi50-003* && $output != *ghost* ]]
  done
  jq -e '[.logs[].node] | unique == ["mi50-002", "mi50-003"]' <<<"$output"
  run -4 sluice logs --node 'ghost-[1-2]'
  [[ $output == *"ghost-1: no contact"*"ghost-2: no contact"* ]]
  run -4 sluice logs --node ghost-1
}

@test "B53 the default farm: a local socket only; another user reads and changes nothing, each refusal is counted and logged" {
  [[ $EUID -eq 0 ]] || skip "needs root to be another user"
  pid=$(sluice status --json | jq '.status[0].pid')
  # no port of any kind: none of its sockets is in the kernel's lists of TCP and UDP
  inodes=$(for fd in /proc/"$pid"/fd/*; do readlink "$fd"; done | sed -n 's/^socket:\[\(.*\)\]$/\1/p')
  [ -n "$inodes" ]
  for inode in $inodes; do
    ! awk -v i="$inode" '$10 == i { found = 1 } END { exit !found }' /proc/"$pid"/net/tcp /proc/"$pid"/net/tcp6 /proc/"$pid"/net/udp /proc/"$pid"/net/udp6
  done
  refused() { sluice status --json | jq '[.status[0].counters[] | select(.name == "refused_permission") | .value] | add // 0'; }
  before=$(refused)
  as_nobody sluice nodes -N >/dev/null
  as_nobody sluice status >/dev/null
  n=0
  for change in 'mark mi50-001 x' 'clear mi50-001 x' 'move mi50-001 --to async' "submit $(sample 2)" 'run start' 'node add other --class mi50' 'node retire mi50-001 x' 'health --reset' \
                "backup $FARM/copy" 'logs --node mi50-001'; do
    run as_nobody sluice $change
    [ "$status" -eq 5 ] || { echo "sluice $change: $status: $output"; return 1; }
    [[ $output == *"nobody"* ]]
    n=$((n + 1))
  done
  [ "$(refused)" = $((before + n)) ]
  [ "$(grep -c 'nobody.*refused\|refused.*nobody' "$FARM"/farm/log/sluiced.log)" -ge "$n" ]
  [ "$(sluice nodes --json | jq -r '[.nodes[] | [.pool, (.marks | length)] | join(" ")] | unique | join(",")')" = "online 0" ]
}
