#!/usr/bin/env bats
# A source stopped, continued, ended: the farm goes on without it.
load ../lib

setup() { farm_setup; }
teardown() { farm_teardown; }

source_pid() { pgrep -f -- "sluice-source .*$FARM/.*--run $1 "; }     # of this farm: others may run beside it
number() { sluice run show "$1" --json | jq ".runs[0].$2"; }
at_least() { [[ $(number "$1" "$2") -ge $3 ]]; }

@test "a source is stopped in mid-run: the other run goes on; continued, it announces again and nothing is lost" {
  farm_up --nodes mi50:2 --nominal mi50=20
  a=$(sluice run start --workflow none); b=$(sluice run start --workflow none)
  sluice replay "$(sample 2)" --run "$a" --loop 200 --rate 40 --json >"$FARM/a.json" 2>"$FARM/a.err" &
  replay=$!
  wait_until 10 at_least "$a" done 20
  pid=$(source_pid "$a")
  kill -STOP "$pid"
  run timeout 40 sluice replay "$(sample 2)" --run "$b" --loop 100 --rate 40
  [ "$status" -eq 0 ]
  wait_until 10 eval '[ "$(sluice run show '"$a"' --json | jq ".runs[0].sources_connected")" -eq 0 ]'    # seen as gone
  kill -CONT "$pid"
  wait "$replay"
  [ "$(jq '.replay[0] | [.tfs, .released] | join(" ")' -r "$FARM/a.json")" = "200 200" ]
  [ "$(jq '.replay[0].reconnects' "$FARM/a.json")" -ge 1 ]
  sluice run stop "$a"; sluice run stop "$b"
  is '.runs[0] | [.state, .announced, .done, .lost, .failed] | join(" ")' "done 200 200 0 0" sluice run show "$a"
  is '.runs[0] | [.state, .announced, .done, .lost, .failed] | join(" ")' "done 100 100 0 0" sluice run show "$b"
  sluice check
}

@test "a source is stopped and never continued: what only it had ends with a reason, nodes get everything back" {
  farm_up --nodes mi50:2 --nominal mi50=100
  id=$(sluice run start --workflow none)
  sluice replay "$(sample 2)" --run "$id" --loop 200 --rate max >/dev/null 2>&1 &
  wait_until 10 at_least "$id" done 4
  pid=$(source_pid "$id")
  kill -STOP "$pid"
  run timeout 40 sluice run stop "$id" --data-timeout 2s
  kill -KILL "$pid"
  n=$(number "$id" announced)
  is '.runs[0] | .done + .failed + .lost + ([.dropped[].value] | add // 0)' "$n" sluice run show "$id"
  wait_until 10 is '[.nodes[] | .tfs, .buffer_charged] | add' 0 sluice nodes
  wait_until 10 is '[.nodes[] | .buffer_used] | add' 0 sluice nodes
  sluice check
}

@test "SIGTERM ends a source within 2 s with TFs in flight, and leaves no socket" {
  farm_up --nodes mi50:1 --nominal mi50=500
  id=$(sluice run start --workflow none)
  sluice-source replay --server "unix:$SLUICE_SOCKET" --run "$id" --loop 50 --json "$(sample 2)" >"$FARM/s.json" 2>"$FARM/s.err" 3>&- &
  replay=$!
  wait_until 10 at_least "$id" in_flight 2
  kill -TERM "$replay"
  wait_until 5 ended "$replay"
  rc=0; wait "$replay" || rc=$?
  [ "$rc" -eq 143 ]
  [ "$(jq -r '.replay[0].ended' "$FARM/s.json")" = interrupted ]
  [ -z "$(find "$FARM/farm" -name 'source-*.sock')" ]
  timeout 40 sluice run stop "$id" --data-timeout 2s || true
  sluice check
}

@test "a second sluice-source for the same part is refused and says whose it is" {
  farm_up --nodes mi50:1 --nominal mi50=100
  id=$(sluice run start --workflow none)
  sluice replay "$(sample 2)" --run "$id" --loop 40 --rate 20 >/dev/null 2>&1 &
  replay=$!
  wait_until 10 at_least "$id" done 1
  run sluice replay "$(sample 2)" --run "$id"
  [ "$status" -eq 4 ]
  [[ $output == *"has its source for part 0 already"* ]]
  wait "$replay"
  sluice run stop "$id"
  is '.runs[0] | [.done, .lost] | join(" ")' "40 0" sluice run show "$id"
}
