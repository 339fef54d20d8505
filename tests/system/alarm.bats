#!/usr/bin/env bats
# The site's program that hears of alarms.
load ../lib
load ../rig

setup() { rig_setup; printf 'pool online { min_good = 2 }\n' >>"$FARM/conf"; }
teardown() { farm_teardown; }

# program SCRIPT [TIMEOUT]: what is called.
program() {
  printf '#!/bin/bash\n%s\n' "$1" >"$FARM/program"; chmod 755 "$FARM/program"
  printf 'alarm { program = "%s"  timeout = %s }\n' "$FARM/program" "${2:-10}" >>"$FARM/conf"
}
told() { [[ $(jq -r '[.alarm, .state] | join(" ")' "$FARM/told" 2>/dev/null | paste -sd,) == "$1" ]] || { cat "$FARM/told"; return 1; }; }

@test "an alarm is told when it is raised and when it is over, one line of JSON each, with what to do" {
  program "line=\$(cat); [ \$# -eq 0 ] || exit 1; echo \"\$line\" >>$FARM/told"
  daemon
  wait_until 10 told "PoolMinimum raised"
  jq -e '.schema == {name: "alarm", version: 1} and .text == "pool online has 0 usable nodes, its min_good is 2" and (.advice | test("sluice nodes -p")) and .since != null and .time >= .since' "$FARM/told"
  nodes_add 'n[1-2]'; workers 2 --width 1
  wait_until 10 told "PoolMinimum raised,PoolMinimum over"
  sluice mark n1 "again" >/dev/null
  wait_until 10 told "PoolMinimum raised,PoolMinimum over,PoolMinimum raised"
  [ "$(wc -l <"$FARM/told")" -eq 3 ]
  [ "$(event alarm_calls)" -eq 3 ]
}

@test "a program that hangs is killed with its children after its time; meanwhile nothing waits for it, and no second one runs" {
  program "echo start >>$FARM/runs; sleep 300 & echo \$! >$FARM/child; wait" 2
  daemon
  wait_until 10 test -s "$FARM/child"
  nodes_add 'n[1-2]'                 # another alarm to tell: a reload that is refused
  cp "$FARM/conf" "$FARM/good"; echo nonsense >>"$FARM/conf"; kill -HUP "$PID_sluiced"
  for _ in 1 2 3 4 5; do [ "$(sluice ping --json | jq '.ping[0].seconds < 1')" = true ]; done
  [ "$(wc -l <"$FARM/runs")" -eq 1 ]
  wait_until 20 grep -q 'did not end within 2 s and was killed' "$FARM/sluiced.log"
  wait_until 10 ended "$(cat "$FARM/child")"
  [ "$(event alarm_calls_failed)" -eq 1 ]
}

@test "a program that is not there, fails or does not read: a warning each, and sluiced goes on; at its end a running one is ended" {
  printf 'alarm { program = "%s/none" }\n' "$FARM" >>"$FARM/conf"
  daemon
  wait_until 10 grep -q "alarm PoolMinimum: not told: $FARM/none: No such file" "$FARM/sluiced.log"
  daemon_kill
  sed -i '/^alarm/d' "$FARM/conf"; program 'exit 3'
  daemon
  wait_until 10 grep -q 'not told: .*program: exit status 3; again in 30 s' "$FARM/sluiced.log"
  daemon_kill
  sed -i '/^alarm/d' "$FARM/conf"; program "exec <&-; echo \$\$ >$FARM/child; exec sleep 300" 200
  daemon
  wait_until 10 test -s "$FARM/child"
  sluice ping
  kill -TERM "$PID_sluiced"
  wait_until 5 ended "$PID_sluiced"
  wait_until 5 ended "$(cat "$FARM/child")"
}

@test "an alarm that stands over a kill and restart is not told again; one that is over meanwhile is told so, and a new one is told" {
  printf 'limits { contact_timeout = 0.5 }\n' >>"$FARM/conf"
  program "cat >>$FARM/told"
  stored() { [[ $(sqlite3 -readonly "$FARM/state/state.db" "SELECT value FROM meta WHERE key = 'alarms_told'") == *PoolMinimum* ]]; }
  daemon
  wait_until 10 told "PoolMinimum raised"
  wait_until 10 stored
  daemon_kill
  printf 'pool async { min_good = 1 }\n' >>"$FARM/conf"
  daemon
  wait_until 10 told "PoolMinimum raised,PoolMinimum raised"
  [ "$(jq -r .about "$FARM/told" | paste -sd,)" = "pool online,pool async" ]
  first=$(jq -r .since "$FARM/told" | head -1)
  daemon_kill
  sed -i 's/min_good = 2/min_good = 0/' "$FARM/conf"
  daemon
  wait_until 10 told "PoolMinimum raised,PoolMinimum raised,PoolMinimum over"
  [ "$(jq -r 'select(.state == "over") | [.about, .since] | join(" ")' "$FARM/told")" = "pool online $first" ]
}

@test "alarms of one word about two pools are two, each with its own end; one about several nodes is told again when there are more" {
  local tells='[.alarm, .about // "-", .state, .count] | join(" ")'
  heard() { local got; got=$(jq -r "$tells" "$FARM/told" 2>/dev/null | grep "^$1" | paste -sd,); [[ $got == "$2" ]] || { echo "$got"; return 1; }; }
  printf 'pool async { min_good = 1 }\nlimits { contact_timeout = 60 }\n' >>"$FARM/conf"      # nobody is late on a busy machine
  program "cat >>$FARM/told"
  daemon
  wait_until 10 heard PoolMinimum "PoolMinimum pool online raised 1,PoolMinimum pool async raised 1"
  nodes_add 'n[1-4]'; sluice node add n5 --class fake --pool async >/dev/null
  start first -- "$FAKES/fake-worker" --server "unix:$SLUICE_SOCKET" --width 1 --count 1 --quiet
  start second -- "$FAKES/fake-worker" --server "unix:$SLUICE_SOCKET" --width 1 --first 2 --count 1 --quiet
  start rest -- "$FAKES/fake-worker" --server "unix:$SLUICE_SOCKET" --width 1 --first 3 --count 3 --quiet
  wait_until 10 heard PoolMinimum "PoolMinimum pool online raised 1,PoolMinimum pool async raised 1,PoolMinimum pool online over 0,PoolMinimum pool async over 0"
  sluice mark n5 "again" >/dev/null          # of one pool alone
  wait_until 10 heard "PoolMinimum pool async" "PoolMinimum pool async raised 1,PoolMinimum pool async over 0,PoolMinimum pool async raised 1"
  heard "PoolMinimum pool online" "PoolMinimum pool online raised 1,PoolMinimum pool online over 0"
  sed -i 's/contact_timeout = 60/contact_timeout = 4/' "$FARM/conf"; kill -HUP "$PID_sluiced"
  kill -KILL "$PID_first"
  wait_until 20 heard NodesLost "NodesLost - raised 1"
  kill -KILL "$PID_second"
  wait_until 20 heard NodesLost "NodesLost - raised 1,NodesLost - raised 2"
  start first -- "$FAKES/fake-worker" --server "unix:$SLUICE_SOCKET" --width 1 --count 2 --quiet
  wait_until 10 heard NodesLost "NodesLost - raised 1,NodesLost - raised 2,NodesLost - over 0"
}

@test "an alarm about as many nodes as before, and another one among them, is told; so over a kill and restart" {
  heard() { local got; got=$(jq -r --arg w "$1" 'select(.alarm == $w) | [.state, .count, .things // "-"] | join(" ")' "$FARM/told" 2>/dev/null | paste -sd,); [[ $got == $2 ]] || { echo "$got"; return 1; }; }
  classes() { local c; cp "$FARM/rest" "$FARM/conf"; for c; do printf 'class %s {\n  devices = 1\n}\n' "$c"; done >>"$FARM/conf"; }
  stored() { [[ $(sqlite3 -readonly "$FARM/state/state.db" "SELECT value FROM meta WHERE key = 'alarms_told'") == *"\"$1\""* ]]; }
  sed -i '/^pool/d' "$FARM/conf"; program "cat >>$FARM/told"; cp "$FARM/conf" "$FARM/rest"
  daemon
  nodes_add n2; workers 2 --width 1
  wait_until 10 heard NotAdded "raised 1 n1"
  sluice node retire n2 "another one" >/dev/null; sluice node add n1 --class fake >/dev/null
  wait_until 10 heard NotAdded "raised 1 n1,raised * n*2*"
  # classes that the configuration does not have, at a start
  classes a b; kill -HUP "$PID_sluiced"
  wait_until 10 sluice node add n8 --class a; sluice node add n9 --class b
  daemon_kill; classes b
  daemon
  wait_until 10 heard ClassUnknown "raised 1 n8"
  wait_until 10 stored n8
  daemon_kill; classes a
  daemon
  wait_until 10 heard ClassUnknown "raised 1 n8,raised 1 n9"
  wait_until 10 stored n9
  daemon_kill; classes a b
  daemon
  wait_until 10 heard ClassUnknown "raised 1 n8,raised 1 n9,over 0 -"
}

@test "a node that was lost before a kill and restart of sluiced is lost after it: the alarm stands, and is not told to be over" {
  sed -i '/^pool/d' "$FARM/conf"; printf 'limits { contact_timeout = 1 }\n' >>"$FARM/conf"
  program "cat >>$FARM/told"
  daemon
  nodes_add 'n[1-3]'
  start first -- "$FAKES/fake-worker" --server "unix:$SLUICE_SOCKET" --width 1 --count 1 --quiet
  start rest -- "$FAKES/fake-worker" --server "unix:$SLUICE_SOCKET" --width 1 --first 2 --count 1 --quiet
  kill -KILL "$PID_first"
  lost() { [[ $(jq -r 'select(.alarm == "NodesLost" and .things == "n1") | .state' "$FARM/told" 2>/dev/null | paste -sd,) == "$1" ]]; }
  wait_until 20 lost raised
  daemon_kill
  daemon
  wait_until 20 eval '[[ $(alarm NodesLost) == *n1* ]]'
  sleep 4                                      # in which it must not be told to be over
  lost raised
  [ "$(sluice status --json | jq -r '.status[0].alarms[] | select(.word == "NodesLost") | .since')" = "$(jq -r 'select(.alarm == "NodesLost" and .things == "n1") | .since' "$FARM/told")" ]      # on a busy machine n2 is late, too, now and then
  is '[.status[0].alarms[].text | test("n3")] | any' false sluice status      # it was never there
  start first -- "$FAKES/fake-worker" --server "unix:$SLUICE_SOCKET" --width 1 --count 1 --quiet
  wait_until 20 eval '[[ $(jq -r "select(.alarm == \"NodesLost\") | .state" "$FARM/told" | tail -n 1) == over ]]'
}

@test "a call that fails keeps no other alarm waiting" {
  program "line=\$(cat); [[ \$line != *PoolMinimum* ]] || exit 1; echo \"\$line\" >>$FARM/told"
  daemon
  wait_until 10 grep -q 'alarm PoolMinimum: not told' "$FARM/sluiced.log"
  workers 1 --width 1
  wait_until 10 told "NotAdded raised"         # well before the other one is tried again
}
