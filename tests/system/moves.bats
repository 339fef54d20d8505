#!/usr/bin/env bats
# Nodes change pools: at once, drained, at a deadline, in crowds, to and fro under load; marks hold in both pools.
load ../lib
load ../rig

setup() { rig_setup; }
teardown() { farm_teardown; }

pool_of() { sluice nodes --json | jq -r ".nodes[] | select(.name == \"$1\") | .pool"; }
# milliseconds COMMAND...: how long it took.
milliseconds() { local start=${EPOCHREALTIME/./}; "$@" >/dev/null; echo $(((${EPOCHREALTIME/./} - start) / 1000)); }

@test "an idle node changes pool within 1 s, 350 nodes within 5 s; no process is restarted, all take part at once" {
  daemon
  nodes_add 'n[001-350]'
  workers 350 --seconds-per-tf 0.05 --buffer 64M
  ms=$(milliseconds sluice move n007 --to async --wait --timeout 20s)
  [ "$(pool_of n007)" = async ]
  echo "one idle node: $ms ms" | tee -a "${SLUICE_FIGURES:-/dev/null}"
  [ "$ms" -lt 1000 ]
  ms=$(milliseconds sluice move @online --to async --wait --timeout 60s)
  echo "349 nodes: $ms ms" | tee -a "${SLUICE_FIGURES:-/dev/null}"
  [ "$ms" -lt 5000 ]
  [ "$(sluice nodes --json | jq -r '[.nodes[] | [.pool, .wanted_pool, .usable] | join(" ")] | unique | join(",")')" = "async async true" ]
  sluice moves --all --json | jq -e '.moves | length == 350 and all(.state == "done")'
  sluice move n[001-100] --to online --wait --timeout 60s >/dev/null
  run_start --sources 1
  source_start --count 1 --hold --rate 2000 --tfs 1000 --size 1M
  wait_until 30 done_at_least 1000
  sluice run show "$RUN" --json | jq -e '[.runs[0].nodes[] | select(.done > 0) | .node] | length == 100 and (max == "n100")'
  run_settled
  # the same workers over the same connections
  [ "$(sluice nodes --json | jq '[.nodes[].contact] | unique | join(",")')" = '"up"' ]
  [ "$(event refused_workers)" = 0 ]
  kill -TERM "$PID_workers"; wait_until 10 ended "$PID_workers"
  grep '^{' "$FARM/workers.out" | jq -e '.losses == 0 and .accepted_twice == 0'
}

@test "a node that joins in mid-run takes part, one that leaves is done with it, and the run goes on" {
  daemon
  nodes_add 'n[001-003]'
  workers 3 --seconds-per-tf 0.05 --buffer 64M
  sluice move n003 --to async --wait --timeout 20s
  run_start --sources 1
  source_start --count 1 --hold --rate 60 --tfs 600 --size 1M
  wait_until 30 done_at_least 50
  done_by() { sluice run show "$RUN" --json | jq ".runs[0].nodes | map(select(.node == \"$1\") | .done) | add // 0"; }
  [ "$(done_by n003)" -eq 0 ]
  sluice move n003 --to online --wait --timeout 20s
  joined() { [ "$(done_by n003)" -gt 0 ]; }
  wait_until 20 joined
  sluice move n001 --to async --wait --timeout 20s
  left=$(done_by n001)
  wait_until 60 done_at_least 600
  [ "$(done_by n001)" -eq "$left" ]
  run_settled
}

@test "who waits for the moves of hundreds of nodes gets the end of each" {
  daemon
  nodes_add 'n[001-600]'
  workers 600 --buffer 64M
  sluice move @online --to async --wait --timeout 60s >/dev/null
  [ "$(sluice moves --all --json | jq -c '[.moves | length, ([.[].state] | unique)]')" = '[600,["done"]]' ]
}

# snapshots: while $FARM/go is there, the whole and both listings at one moment each; what is wrong stands in $FARM/wrong.
snapshots() {
  while [[ -e $FARM/go ]]; do
    sluice nodes --json | jq -r '[.nodes[] | select(.pool == "online" or .pool == "async") | .name] | if length == 5 and (unique | length) == 5 then "good" else "nodes: \(.)" end' >>"$FARM/snapshots"
    sluice status --json | jq -r '[.status[0].pools[].nodes] | if add == 5 then "good" else "pools: \(.)" end' >>"$FARM/snapshots"
  done
}

@test "B12 100 moves to and fro while a run and a job are on: nothing lost, nothing doubled, one pool in every snapshot" {
  local k=0 rounds from to end
  rounds=$(scaled 12); [[ $rounds -le 100 ]] || rounds=100
  farm_up --nodes mi50:5 --nominal mi50=15 >/dev/null
  sluice move mi50-005 --to async --wait --timeout 20s
  before=$(sluice nodes --json | jq -c '[.nodes[].devices[] | [.serial, .pid, .restarts]] | sort')
  run_start --sources 1
  background replay sluice replay "$(sample 2)" --run "$RUN" --loop 1000000 --rate 60
  wait_until 20 done_at_least 5
  # what the farm can do in the time, as a job of one file given often
  job=$(sluice submit $(for ((i = 0; i < 40; i++)); do ln -s "$(sample 2)" "$FARM/in-$i.tf"; echo "$FARM/in-$i.tf"; done) --workflow none)
  daemon_pid=$(json '.status[0].pid' sluice status)
  touch "$FARM/go"
  background snapshots snapshots
  for ((k = 0; k < rounds; k++)); do
    if ((k % 2 == 0)); then to=async; else to=online; fi
    sluice move mi50-[003-004] --to "$to" --wait --timeout 30s >/dev/null
    # both listings, and the whole: each node once
    sluice nodes --json >"$FARM/snap"
    jq -e '[.nodes[] | select(.pool == "online" or .pool == "async")] | length == 5' "$FARM/snap"
    [ "$(sluice status --json | jq '[.status[0].pools[].nodes] | add')" = 5 ]
    both=$(sluice nodes -p online --json | jq '.nodes | length')+$(sluice nodes -p async --json | jq '.nodes | length')
    [ $((both)) -eq 5 ]
    [ "$(pool_of mi50-003)" = "$to" ]
  done
  rm "$FARM/go"; wait_until 20 ended "$PID_snapshots"
  [ "$(wc -l <"$FARM/snapshots")" -gt "$rounds" ]
  [ "$(sort -u "$FARM/snapshots")" = good ]
  [ "$(json '.status[0].pid' sluice status)" = "$daemon_pid" ]
  sluice wait job "$job" --timeout 60s
  kill -INT "$PID_replay"; wait_until 30 ended "$PID_replay"
  run_settled
  sluice run show "$RUN" --json | jq -e '.runs[0] | .announced == .done + ([.dropped[]?] | add // 0) and .failed == 0 and .lost == 0 and .done > 0'
  sluice job show "$job" --json | jq -e '.jobs[0] | .tasks == 40 and .done == 40 and .failed == 0'
  sluice job tfs "$job" --json | jq -e '[.tasks[].id] | length == 40 and (unique | length == 40)'
  [ "$(sluice nodes --json | jq -c '[.nodes[].devices[] | [.serial, .pid, .restarts]] | sort')" = "$before" ]
  sluice check
}

@test "leaving async: what runs is finished, or at the deadline requeued elsewhere; a cancelled move leaves the node where it was" {
  daemon
  nodes_add 'n[001-002]'
  workers 2 --seconds-per-tf 600 --buffer 64M
  sluice move n[001-002] --to async --wait --timeout 20s
  job=$(sluice submit "$(samples)" --workflow none)
  wait_until 20 is '[.nodes[].tfs] | add' 3 sluice nodes
  sluice move n001 --to online
  run sluice move n001 --to online --wait --timeout 1s
  [ "$status" -eq 4 ]
  [[ $output == *"moving to online already"* ]]
  id=$(sluice moves --json | jq '.moves[0].id')
  [ "$(sluice moves --json | jq -r '.moves[0] | [.node, .state, .when] | join(" ")')" = "n001 draining drained" ]
  sluice move --cancel "$id"
  run sluice wait move "$id"
  [ "$status" -eq 11 ]
  node_is n001 '[.pool, .wanted_pool, .usable] | join(" ")' "async async true"
  had=$(sluice nodes --json | jq '.nodes[0].tfs')
  [ "$had" -gt 0 ]
  # the deadline: they go to the other node, and the job goes on
  ms=$(milliseconds sluice move n001 --to online --deadline 2s --wait --timeout 30s)
  [ "$ms" -ge 1900 ]
  [ "$(pool_of n001)" = online ]
  node_is n002 .tfs 3
  sluice job show "$job" --json | jq -e '.jobs[0] | .running == 3 and .failed == 0 and .retried == 0'
  # at once
  sluice move n002 --to online --when now --wait --timeout 30s
  [ "$(sluice nodes --json | jq '[.nodes[].tfs] | add')" = 0 ]
  sluice job show "$job" --json | jq -e '.jobs[0] | .waiting == 3 and .running == 0 and .failed == 0'
  sluice check
}

@test "a running run's minimum and the pool's stop a move with their numbers; --keep-going moves what can be spared" {
  printf 'pool online { min_good = 2 }\n' >>"$FARM/conf"
  daemon
  nodes_add 'n[001-005]'
  workers 5 --buffer 64M
  run sluice move n[001-004] --to async
  [ "$status" -eq 4 ]
  [[ $output == *"node n004: pool online would have 1 usable node, its min_good is 2"* ]]
  run_start --sources 1 --min-nodes 4
  run sluice move n[001-002] --to async
  [ "$status" -eq 4 ]
  [[ $output == *"node n002: pool online would have 3 usable nodes, run $RUN wants at least 4"* ]]
  [ "$(sluice nodes --json | jq -r '[.nodes[].wanted_pool] | unique | join(",")')" = online ]
  run --separate-stderr sluice move n[001-002] --to async --keep-going --json
  [ "$status" -eq 8 ]
  jq -e '[.results[] | [.node, .code]] == [["n001", 0], ["n002", 4]]' <<<"$output"
  wait_until 10 eval '[ "$(pool_of n001)" = async ]'
  [ "$(pool_of n002)" = online ]
  sluice run stop "$RUN" >/dev/null
}

@test "a marked node gets nothing in either pool; history says who and why, also --since and as JSON" {
  farm_up --nodes mi50:2 --nominal mi50=20 >/dev/null
  sluice move mi50-002 --to async --wait --timeout 20s
  since=$(date +%Y-%m-%dT%H:%M:%S.%N%:z)
  sluice mark mi50-002 "ECC errors"
  job=$(sluice submit "$(sample 2)" --workflow none)
  wait_until 10 is '.jobs[0].why' WaitingForNodes sluice job show "$job"
  sluice replay "$(sample 2)" --loop 4
  node_is mi50-002 '[.done, .tfs] | join(" ")' "0 0"
  sluice clear mi50-002 "new memory"
  sluice wait job "$job" --timeout 30s
  node_is mi50-002 .done 1
  sluice node history mi50-002 --json | jq -e '[.events[].what] | index("added") != null and index("moved") != null'
  # the four of the move and the registration are before
  sluice node history mi50-002 --since "$since" --json >"$FARM/history"
  jq -e --arg me "$(id -un)" '[.events[] | [.what, .reason, (.who | startswith($me))]] == [["marked", "ECC errors", true], ["cleared", "new memory", true]]' "$FARM/history"
  jq -e '.events[0].before == null and (.events[0].after | startswith("mark 1 (block")) and .events[1].after == null' "$FARM/history"
  [ "$(sluice node history mi50-002 --since "$(date +%Y-%m-%dT%H:%M:%S.%N%:z)" --json | jq '.events | length')" = 0 ]
}
