#!/usr/bin/env bats
# As a service: being ready, the watchdog, units, logs that are turned, a configuration that is read again.
load ../lib
load ../rig

setup() { rig_setup; }
teardown() { farm_teardown; }

# manager: what a service manager would hear, a line a message, in $FARM/heard.
manager() {
  background manager perl -MIO::Socket::UNIX -MSocket -e '
    my $s = IO::Socket::UNIX->new(Type => SOCK_DGRAM, Local => $ARGV[0]) or die "$!"; $| = 1; print "listening\n";
    while (defined $s->recv(my $m, 4096)) { print join(" ", split /\n/, $m), "\n" }' "$1"
  wait_until 10 grep -q listening "$FARM/manager.out"
}
heard() { [[ $(grep -cx "$1" "$FARM/manager.out") -ge ${2:-1} ]]; }

@test "sluiced and worker say over NOTIFY_SOCKET that they are ready, that they live, and that they end" {
  manager "$FARM/notify"
  real_class
  daemon env NOTIFY_SOCKET="$FARM/notify" WATCHDOG_USEC=400000
  wait_until 10 heard READY=1         # it serves now
  sluice ping
  wait_until 10 heard WATCHDOG=1 3
  kill -STOP "$PID_sluiced"           # a loop that stands still is not alive
  sleep 0.3; before=$(grep -c WATCHDOG "$FARM/manager.out"); sleep 1
  [ "$(grep -c WATCHDOG "$FARM/manager.out")" -eq "$before" ]
  kill -CONT "$PID_sluiced"
  wait_until 10 heard WATCHDOG=1 $((before + 1))
  kill -TERM "$PID_sluiced"
  wait_until 10 heard STOPPING=1
  wait_until 10 ended "$PID_sluiced"
  : >"$FARM/manager.out"
  daemon
  worker w1 env NOTIFY_SOCKET="$FARM/notify" WATCHDOG_USEC=400000 --
  wait_until 10 heard READY=1
  wait_until 10 heard WATCHDOG=1 2
}

@test "not ready when the state cannot be loaded; a watchdog of another process is none of ours" {
  manager "$FARM/notify"
  mkdir "$FARM/state"; echo "no database at all, by far too short" >"$FARM/state/state.db"
  run daemon env NOTIFY_SOCKET="$FARM/notify"
  [ "$status" -ne 0 ]
  heard READY=1 && false
  rm -r "$FARM/state"
  daemon env NOTIFY_SOCKET="$FARM/notify" WATCHDOG_USEC=200000 WATCHDOG_PID=1
  wait_until 10 heard READY=1
  sleep 0.5
  heard WATCHDOG=1 && false
  # a socket that nobody reads, or of no sense, stops nothing
  kill -TERM "$PID_sluiced"; wait_until 10 ended "$PID_sluiced"
  daemon env NOTIFY_SOCKET=nowhere
  wait_until 10 grep -q "NOTIFY_SOCKET 'nowhere': a path" "$FARM/sluiced.log"
}

@test "the units: what they start is there, takes these options, and systemd has nothing to say against them" {
  units=$SLUICE_BUILDDIR/etc/systemd
  for unit in sluiced sluice-worker; do
    grep -q '^Type=notify' "$units/$unit.service"
    ! grep -q '@' "$units/$unit.service"
    grep -qE "^ExecStart=/[^ ]*/$unit " "$units/$unit.service"
    grep -q '^WatchdogSec=' "$units/$unit.service"
    grep -q '^LimitNOFILE=' "$units/$unit.service"
    for option in $(sed -n 's/^Exec[A-Za-z]*=\(.*sluice.*\)/\1/p' "$units/$unit.service" | grep -oE -- '--[a-z-]+'); do
      "$unit" --help | grep -q -- " $option\b" || { echo "$unit has no $option"; false; }
    done
    # the programs of this build in place of the installed ones
    sed -E "s|=[^ ]*/(sluiced?(-worker)?) |=$SLUICE_BUILDDIR/\1 |" "$units/$unit.service" >"$FARM/$unit.service"
  done
  grep -q '^LimitMEMLOCK=infinity' "$units/sluice-worker.service"
  command -v systemd-analyze >/dev/null || skip "no systemd-analyze to ask about the units"
  run systemd-analyze verify --man=no "$FARM/sluiced.service" "$FARM/sluice-worker.service"
  [ "$status" -eq 0 ] || { echo "$output"; [[ $output != *.service:* ]] || false; }
  [[ $output != *Unknown* && $output != *"not executable"* ]] || { echo "$output"; false; }
}

@test "a log that is turned: every line stands once, in the old file or in the new one" {
  real_class
  daemon
  worker w1 --
  for i in 1 2 3; do
    mv "$FARM/sluiced.log" "$FARM/sluiced.log.$i"
    mv "$FARM/w1.log" "$FARM/w1.log.$i"
    kill -HUP "$PID_sluiced" "$PID_w1"
    wait_until 10 grep -qs 'configuration: read again' "$FARM/sluiced.log"
    wait_until 10 test -e "$FARM/w1.log"
    sluice node add "x$i" --class fake
    wait_until 10 grep -q "x$i" "$FARM/sluiced.log"
  done
  for i in 1 2 3; do [ "$(cat "$FARM"/sluiced.log* | grep -c "node x$i")" -ge 1 ]; done
  [ "$(cat "$FARM"/sluiced.log* | sort | uniq -d | wc -l)" -eq 0 ]
  # what a worker said before it was killed: from its log file, and without one from its run folder
  bare() { start w2 -- sluice-worker --server "unix:$SLUICE_SOCKET" --node w2 --class real --config "$FARM/conf" --run-dir "$FARM/run2" --shm-dir "$FARM/shm" --shm 16M; }
  bare
  local first1=$PID_w1 first2=$PID_w2
  kill -KILL "$PID_w1" "$PID_w2"
  worker w1 --
  bare
  sluice logs --node w1 --lines 500 | grep -F "sluice-worker[$first1]"
  sluice logs --node w1 --lines 500 | grep -F "sluice-worker[$PID_w1] info: worker: state running"
  sluice logs --node w2 --lines 500 | grep -F "sluice-worker[$first2] info: sluiced: registered as node w2"
}

@test "limits.run_tfs: of a run so many time-frames are kept, the newest, also when it is changed while sluiced runs" {
  printf 'limits {\n  run_tfs = 1000\n}\n' >>"$FARM/conf"
  daemon
  nodes_add n001; workers 1 --seconds-per-tf 0
  run_start
  source_start --tfs 100 --rate 200
  wait_until 20 eval '[ "$(run_number done)" -eq 100 ]'
  kept() { sqlite3 "$FARM/state/state.db" "SELECT count(*), min(tf) FROM run_tf WHERE run = $RUN"; }
  wait_until 10 eval '[ "$(kept)" = "100|1" ]'
  sed -i 's/run_tfs = .*/run_tfs = 20/' "$FARM/conf"
  kill -HUP "$PID_sluiced"
  wait_until 20 eval '[ "$(kept)" = "20|81" ]'
  [ "$(run_number done)" -eq 100 ]
  sluice check
}

@test "reload is all or nothing: a mistake is named with file and line, what wants a restart by its keys, and the old one holds" {
  daemon
  printf 'pool async { min_good = 3 }\nnode "a[1-2]" { class = fake }\n' >>"$FARM/conf"
  kill -HUP "$PID_sluiced"
  wait_until 10 is '[.nodes[] | .name] | join(" ")' "a1 a2" sluice nodes
  sluice config show --running >"$FARM/before"
  cp "$FARM/conf" "$FARM/good"
  while IFS='|' read -r line said; do
    echo "$line"
    printf 'node a3 { class = fake }\nclass new { shm = 7G }\n%b\n' "$line" | cat "$FARM/good" - >"$FARM/conf"
    kill -HUP "$PID_sluiced"
    wait_until 10 eval 'alarm ConfigRefused | grep -qF "$said"'
    sluice config show --running | diff "$FARM/before" -
    is '.nodes | length' 2 sluice nodes
    grep -qF "$said" "$FARM/sluiced.log"
  done <<END
colour = red|$FARM/conf:9: no such option 'colour'
pool online { min_good = many }|$FARM/conf:9: min_good 'many'
node a1 { class = fake }|$FARM/conf:9: node a1 is given twice
node b1 { class = none }|$FARM/conf:9: node b1: there is no class 'none'
limits {\\nclients = 0\\n}|$FARM/conf:10: clients '0'
listen = "localhost:7000"|$FARM/conf:9: listen needs a method
auth = munge\\nlog = /y|a restart is wanted for auth ('munge' instead of 'none'), log ('/y' instead of '')
END
  [ "$(event reloads_refused)" -eq 7 ]
  # an emptied file, one without a class, one that lost a node in use: they strip no farm, and name what they would have
  start a1 -- "$FAKES/fake-worker" --server "unix:$SLUICE_SOCKET" --name-prefix a --width 1 --count 1 --quiet
  wait_until 10 is '.nodes[0].usable' true sluice nodes
  sluice mark a2 "fan"
  while IFS='|' read -r text said; do
    printf '%b' "$text" >"$FARM/conf"
    kill -HUP "$PID_sluiced"
    wait_until 10 eval 'alarm ConfigRefused | grep -qF "$said"'
    sluice config show --running | diff "$FARM/before" -
    [ "$(sluice nodes --json | jq -r '[.nodes[] | .usable] | join(" ")')" = "true false" ]
  done <<END
|2 nodes of the farm would be of a class that is not there any more: a1, a2; \`sluice node retire\`
# nothing\n|2 nodes of the farm would be of a class that is not there any more: a1, a2;
class fake { devices = 1 }\nnode a2 { class = fake }|1 node in use would be named no more: a1;
END
  # one that is not in use may go without its line: it stays, with its mark, until it is retired, and when it comes back
  printf 'class fake { devices = 1 }\nnode a1 { class = fake }\n' >"$FARM/conf"; kill -HUP "$PID_sluiced"
  wait_until 10 no_alarm ConfigRefused
  is '[.nodes[].name, (.nodes[1].marks[0].reason)] | join(" ")' "a1 a2 fan" sluice nodes
  sluice node retire a2 "sold"; sluice node retire a1 "sold too"
  printf 'class other { devices = 1 }\n' >"$FARM/conf"; kill -HUP "$PID_sluiced"
  has_class() { sluice config show --running | grep "^class .*$1" >/dev/null; }
  wait_until 10 has_class other
  [ -z "$(has_class fake && echo there)" ]
  wait_until 10 is '[.nodes[] | .name + " " + .why[-1]] | join(",")' "a1 NotAdded,a2 NotAdded" sluice nodes
  cp "$FARM/good" "$FARM/conf"; kill -HUP "$PID_sluiced"
  wait_until 10 has_class fake
  sluice node add 'a[1-2]' --class fake
  is '.nodes[] | select(.name == "a2") | .marks[0].reason' fan sluice nodes
  is '.nodes[] | select(.name == "a1") | .usable' true sluice nodes
  cp "$FARM/good" "$FARM/conf"; echo 'node a3 { class = fake }' >>"$FARM/conf"
  kill -HUP "$PID_sluiced"
  wait_until 10 no_alarm ConfigRefused
  is '.nodes | length' 3 sluice nodes
}
