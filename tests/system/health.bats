#!/usr/bin/env bats
# Bad nodes are found by their work and by the site's checks; a brake ends it when too many would go; nobody is blamed for bad data.
load ../lib
load ../rig

setup() { rig_setup; }
teardown() { farm_teardown; }

# crew NAME FIRST COUNT [OPTION...]: fake workers from number FIRST on.
crew() { local name=$1 first=$2 count=$3; shift 3; start "$name" -- "$FAKES/fake-worker" --server "unix:$SLUICE_SOCKET" --first "$first" --count "$count" --quiet --buffer 64M "$@"; }
health_marks() { sluice nodes --json | jq -c '[.nodes[] | select([.marks[] | select(.owner_kind == "health" and .severity == "block")] | length > 0) | .name]'; }
health_marks_are() { local got; got=$(health_marks); [[ $got == "$1" ]] || { echo "health marked $got, not $1"; return 1; }; }

@test "B16 a node that refuses everything is cooled down, then marked with what it says; all 100 TFs end elsewhere, none fails" {
  daemon
  nodes_add 'n[001-010]'
  crew bad 1 1 --reject 1 --buffer 16M
  crew good 2 9 --seconds-per-tf 0.7 --buffer 16M
  run_start --sources 1
  # all at once: whoever refuses is the emptiest
  source_start --count 1 --hold --rate 1000 --tfs 100 --size 4M
  # passed over for longer and longer: it is asked a few times, not four times a second for ever
  wait_until 40 health_marks_are '["n001"]'
  wait_until 40 done_at_least 100
  sluice nodes -n n001 --json >"$FARM/n001"
  jq -e '.nodes[0] | .usable == false and .state == "bad" and (.why | index("MarkedByHealth")) != null and .refused >= 5 and .refused < 20' "$FARM/n001"
  jq -e '.nodes[0].marks[0] | .owner == "work" and .part == "node" and (.reason | test("refused [0-9]+ time-frames in a row: NoSpace: .+"))' "$FARM/n001"
  run_settled
  sluice run show "$RUN" --json | jq -e '.runs[0] | .done == 100 and .failed == 0 and .lost == 0 and ([.nodes[] | select(.node == "n001" and .done > 0)] | length == 0)'
  # history for ever, and an expert clears it
  sluice node history n001 --json | jq -e '[.events[] | select(.what == "marked" and .who == "sluiced")] | length == 1'
  run sluice clear n001 "spool is empty again"
  [ "$status" -eq 4 ]
  sluice clear n001 "spool is empty again" --any-owner
  health_marks_are '[]'
}

@test "a node at which TFs fail is marked once others have done them, with the failures as evidence; the run loses nothing" {
  daemon
  nodes_add 'n[001-006]'
  crew bad 3 1 --fail 1 --seconds-per-tf 0.01
  crew good1 1 2 --seconds-per-tf 0.05
  crew good2 4 3 --seconds-per-tf 0.05
  run_start --sources 1
  source_start --count 1 --hold --rate 50 --tfs 400 --size 1M
  wait_until 40 health_marks_are '["n003"]'
  wait_until 40 done_at_least 400
  run_settled
  sluice run show "$RUN" --json | jq -e '.runs[0] | .done == 400 and .failed == 0 and .lost == 0'
  sluice nodes -n n003 --json | jq -e '.nodes[0].marks[0] | (.reason | test("in a row failed here and were done elsewhere")) and (.evidence | split("\n") | length >= 3)'
  sluice health --json | jq -e '.health[0] | .brakes[0].marked == 1 and .brakes[0].on == false and ([.nodes[] | select(.node == "n003")][0].failed >= 3)'
  run sluice health
  [[ $output == *"pool online: 1 of 6 nodes marked within 3600 s, 1 may be; the brake is off"* ]]
  [[ $output == *"n003: "*" failed there and were done elsewhere"* ]]
}

@test "the brake: of eight bad nodes two are marked, then one alarm and no more, over a restart, until a person resets it; the run goes on" {
  # half of the farm is bad: three tries could all be at bad nodes
  printf 'health { brake_nodes = 2  brake_percent = 50 }\nlimits { attempts = 20 }\n' >>"$FARM/conf"
  daemon
  nodes_add 'n[001-016]'
  crew bad 1 8 --fail 1 --seconds-per-tf 0.01
  crew good 9 8 --seconds-per-tf 0.02
  run_start --sources 1
  source_start --count 1 --hold --rate 100 --tfs 100000 --size 1M
  wait_until 60 alarm HealthBrake
  [ "$(sluice status --json | jq '[.status[0].alarms[] | select(.word == "HealthBrake")] | length')" = 1 ]
  [ "$(metric 'sluice_health_brake_on{pool="online"}')" = 1 ]
  [ "$(metric 'sluice_health_brake_on{pool="async"}')" = 0 ]
  stream_goes_on 100
  [ "$(health_marks | jq length)" = 2 ]
  before=$(health_marks)
  daemon_kill
  daemon
  wait_until 20 is '[.nodes[] | select(.contact == "up")] | length' 16 sluice nodes
  stream_goes_on 200
  health_marks_are "$before"
  alarm HealthBrake
  sluice health --reset --pool online
  no_alarm HealthBrake
  wait_until 60 eval '[ "$(health_marks | jq length)" = 4 ]'
  kill -TERM "$PID_source"
  sluice run stop "$RUN" --data-timeout 5s >/dev/null
  sluice run show "$RUN" --json | jq -e '.runs[0] | .failed == 0 and .lost == 0'
}

@test "B03 B05 site checks: exit 0, 1 and 2, the first line as the reason, a time limit, a fixed user, on marked nodes too" {
  cat >"$FARM/node-check" <<'CHECK'
#!/bin/bash
read -r state text <"${0%/*}/answer"
echo x >>"${0%/*}/runs"
echo "$text"
echo "a second line nobody wants"
[[ $state != sleep ]] || sleep 600
[[ $state != kill ]] || kill -SEGV $$
exit "$state"
CHECK
  chmod 755 "$FARM/node-check"
  say() { printf '%s\n' "$*" >"$FARM/answer.new"; mv "$FARM/answer.new" "$FARM/answer"; }
  : >"$FARM/runs"; chmod 666 "$FARM/runs"
  say 0 fine
  real_class
  printf 'health { program = %s  period = 0.3  timeout = 1  clear_automatic = yes }\n' "$FARM/node-check" >>"$FARM/conf"
  daemon
  nodes_real r1
  worker r1 --
  wait_until 20 node_is r1 .usable true
  check() { sluice health --json | jq -er ".health[0].nodes[] | select(.node == \"r1\") | .checks[0] | $1"; }
  wait_until 10 eval '[ "$(check .state)" = good ]'
  [ "$(check '[.program, .text] | join("|")')" = "node-check|fine" ]
  say 1 "fan 3 is slow"
  wait_until 10 node_is r1 '[.usable, .marks[0].severity, .marks[0].owner, .marks[0].reason] | join("|")' "true|info|node-check|fan 3 is slow"
  # what programs say is kept raw, and escaped once where it is shown
  say 2 $'fan 3 stands, "ticket" \\17 \e[31m'
  wait_until 10 node_is r1 '[.usable, (.marks | length), .marks[0].severity, .marks[0].reason] | join("|")' $'false|1|block|fan 3 stands, "ticket" \\17 \e[31m'
  sluice nodes -R | grep -F 'fan 3 stands, "ticket" \\17 \x1B[31m'
  sluice health | grep -F 'fan 3 stands, "ticket" \\17 \x1B[31m'
  sluice logs --node r1 | grep -F 'check node-check: fan 3 stands, "ticket" \17 \x1B[31m'
  # marked nodes are checked too; the operator's mark stays when the check is good again (B03, B05)
  sluice mark r1 "PSU swap, ticket 17"
  node_is r1 '[.marks[] | [.owner_kind, .owner, .reason] | join(" ")] | join("; ")' "health node-check $(printf 'fan 3 stands, "ticket" \\17 \e[31m'); person $(id -un) PSU swap, ticket 17"
  say 0 fine
  wait_until 10 node_is r1 '[.usable, (.marks | length), .marks[0].reason] | join("|")' "false|1|PSU swap, ticket 17"
  # a resize that ends there clears nothing either
  size=$(sluice nodes --json | jq '.nodes[] | select(.name == "r1") | .shm_active / 2')
  sluice shm set r1 "$size" >/dev/null
  wait_until 20 node_is r1 "[.usable, .shm_active, (.marks | length), .marks[0].reason] | join(\"|\")" "false|$size|1|PSU swap, ticket 17"
  sluice clear r1 "swapped"
  # one that hangs costs one process and is a note, one that dies too
  say sleep "asks the GPU"
  wait_until 10 node_is r1 '[.usable, .marks[0].severity] | join("|")' "true|info"
  [[ $(check '.state + " " + .text') == "broken not done within 1 s, stuck since "* ]]
  # its first time stays over the runs that hang after it
  local stuck ran; stuck=$(check .text); ran=$(wc -l <"$FARM/runs")
  wait_until 10 eval '[ "$(wc -l <"$FARM/runs")" -ge $((ran + 2)) ]'
  [ "$(check '.state + " " + .text')" = "broken $stuck" ]
  say kill "x"
  wait_until 10 eval '[[ $(check .text) == "it ended with signal 11"*": x" ]]'
  say 0 fine
  wait_until 10 node_is r1 '.marks | length' 0
  # another user than root's: the script could not write beside itself, so it is asked
  if [[ $EUID -eq 0 ]]; then
    printf '#!/bin/sh\nid -un\nexit 1\n' >"$FARM/node-check.new"; chmod 755 "$FARM/node-check.new"; mv "$FARM/node-check.new" "$FARM/node-check"
    wait_until 10 node_is r1 '.marks[0].reason' nobody
  fi
  [ -z "$(pgrep -f "$FARM/node-check" | head -1)" ] || wait_until 5 eval '[ "$(pgrep -fc "$FARM/node-check")" -le 1 ]'
}

@test "site checks follow the configuration of sluiced: a reload alone brings others, another period, or none" {
  check() { printf '#!/bin/bash\necho x >>%s/%s.ran\necho "%s"\nexit %s\n' "$FARM" "$1" "$2" "$3" >"$FARM/$1"; chmod 755 "$FARM/$1"; }
  plan() { sed -i '/^health/d' "$FARM/conf"; [[ -z $1 ]] || printf 'health { %s }\n' "$1" >>"$FARM/conf"; kill -HUP "$PID_sluiced"; }
  runs() { wc -l <"$FARM/$1.ran"; }
  said() { sluice nodes -n r1 --json | jq -r '.nodes[0].marks | map(.owner + ": " + .reason) | sort | join(", ")'; }
  said_is() { local got; got=$(said); [[ $got == "$1" ]] || { echo "$got"; return 1; }; }
  check first "one thing" 1; check second "another thing" 1
  printf '#!/bin/bash\necho x >>%s/hangs.ran\nsleep 300 & echo $! >%s/child; wait\n' "$FARM" "$FARM" >"$FARM/hangs"; chmod 755 "$FARM/hangs"
  chmod 777 "$FARM"
  real_class
  cp "$FARM/conf" "$FARM/worker.conf"            # the worker's own file names none
  daemon
  nodes_real r1
  worker r1 -- --config "$FARM/worker.conf"
  plan "program = $FARM/first  period = 0.2"
  wait_until 10 said_is "first: one thing"
  plan "program = { \"$FARM/first\", \"$FARM/second\", \"$FARM/hangs\" }  period = 86400  timeout = 300"
  wait_until 10 said_is "first: one thing, second: another thing"
  wait_until 10 test -s "$FARM/child"
  # the new period holds: the first is not run anew
  n=$(runs first); sleep 0.6; [ "$(runs first)" -eq "$n" ]
  # what is not named any more ends, with its children, and its note goes; what is named as before goes on
  plan "program = \"$FARM/second\"  period = 0.2  timeout = 1"
  wait_until 10 said_is "second: another thing"
  wait_until 10 ended "$(cat "$FARM/child")"
  n=$(runs second); wait_until 10 eval '[ "$(runs second)" -gt "$((n + 2))" ]'
  # a file with a mistake changes nothing
  plan 'period = 0'
  wait_until 10 alarm ConfigRefused
  n=$(runs second); wait_until 10 eval '[ "$(runs second)" -gt "$((n + 2))" ]'
  plan ""
  wait_until 10 said_is ""
  wait_until 10 eval '[ "$(sluice health --json | jq "[.health[0].nodes[].checks[]] | length")" -eq 0 ]'          # the worker's next report
  [ "$(grep -c 'registered as node' "$FARM/r1.log")" -eq 1 ]
}

@test "B59 the number of series depends on the farm alone: jobs, names and reasons add none" {
  farm_up --nodes mi50:2 --nominal mi50=5 >/dev/null
  sluice move mi50-002 --to async --wait --timeout 20s
  job=$(sluice submit "$(sample 2)" --workflow none --name first)
  sluice wait job "$job" --timeout 30s
  sluice mark mi50-001 "first"; sluice clear mi50-001 "first"
  before=$(sluice metrics | grep -vc '^#')
  local i n
  n=${SLUICE_SOAK:+10000}; n=${n:-$(scaled 30)}
  for ((i = 0; i < n; i++)); do
    sluice submit "$(sample 2)" --workflow none --name "name-$i-$RANDOM" >"$FARM/last"
    if ((i % 10 == 0)); then
      sluice mark mi50-001 "reason-$i-$RANDOM" --severity info
      sluice clear mi50-001 "because-$i-$RANDOM" --repeat-ok
    fi
  done
  sluice wait job "$(cat "$FARM/last")" --timeout 300s
  sluice metrics >"$FARM/metrics"
  [ "$(grep -vc '^#' "$FARM/metrics")" = "$before" ]
  ! grep -E 'name-|reason-|because-' "$FARM/metrics"
}

@test "time-frames that are bad themselves fail at several nodes and blame none of them" {
  printf 'class real {\n  devices = 1\n  shm = 16M\n  nominal_ms = 10\n}\n' >>"$FARM/conf"
  daemon
  local i n=6 files=()
  for i in 1 2 3; do
    sluice node add "r$i" --class real --pool async >/dev/null
    worker "r$i" --
  done
  wait_until 20 is '[.nodes[].usable] | all' true sluice nodes
  for ((i = 0; i < n; i++)); do
    cp "$(sample 2)" "$FARM/bad-$i.tf"
    cp "$(sample 2)" "$FARM/good-$i.tf"
    files+=("$FARM/bad-$i.tf" "$FARM/good-$i.tf")
  done
  # accepted while they were good; when a node reads them they are cut short
  sluice mark r[1-3] "wait" >/dev/null
  job=$(sluice submit "${files[@]}" --workflow decode)
  truncate -s 5000 "$FARM"/bad-*.tf
  sluice clear r[1-3] "go" >/dev/null
  sluice wait job "$job" --timeout 60s || [ $? -eq 10 ]
  sluice job show "$job" --json >"$FARM/job"
  jq -c '.jobs[0] | [.done, .failed, .retried, .failures]' "$FARM/job"
  jq -e --argjson n "$n" '.jobs[0] | .done == $n and .failed == $n and .retried >= $n' "$FARM/job"
  [ "$(event failures_blamed)" = 0 ]
  [ "$(sluice nodes --json | jq '[.nodes[].marks[]] | length')" = 0 ]
}
