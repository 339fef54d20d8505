#!/usr/bin/env bats
# Jobs among nodes that refuse everything, and among workers that are killed.
load ../lib
load ../rig

setup() { rig_setup; }
teardown() { farm_teardown; }

crew() { local name=$1 first=$2 count=$3; shift 3; start "$name" -- "$FAKES/fake-worker" --server "unix:$SLUICE_SOCKET" --first "$first" --count "$count" --quiet --buffer 64M "$@"; }
async_nodes() { sluice node add "$1" --class fake --pool async >/dev/null; }
# links N: so many files, each a link to one time-frame; the list's path.
links() { local i; for ((i = 0; i < $1; i++)); do ln -s "$(sample 2)" "$FARM/in-$i.tf"; echo "$FARM/in-$i.tf"; done >"$FARM/list"; echo "$FARM/list"; }

@test "B16 jobs: a node that refuses everything is cooled down, then marked with what it says; all 100 TFs end elsewhere, none fails" {
  daemon
  async_nodes 'n[001-010]'
  crew bad 1 1 --reject 1 --buffer 16M
  crew good 2 9 --seconds-per-tf 0.7 --buffer 16M
  job=$(sluice submit --input "$(links 100)" --workflow none)
  marked() { sluice nodes -n n001 --json | jq -e '.nodes[0].marks[0] | .owner == "work" and (.reason | test("refused [0-9]+ time-frames in a row: NoSpace: .+"))'; }
  wait_until 40 marked
  sluice wait job "$job" --timeout 60s
  is '.jobs[0] | [.state, .done, .failed, .cancelled] | join(" ")' "done 100 0 0" sluice job show "$job"
  sluice nodes -n n001 --json | jq -e '.nodes[0] | .usable == false and .state == "bad" and .refused >= 5 and .refused < 20'
  [ "$(json '[.tasks[] | select(.node == "n001")] | length' sluice job tfs "$job")" = 0 ]
  sluice check
}

@test "B21 jobs: workers that forget and are killed: the job ends, no TF refers to one that is gone, the check proves it" {
  printf 'limits {\n  deaths = 50\n}\n' >>"$FARM/conf"         # it is no TF that kills them
  daemon
  async_nodes 'n[001-012]'
  n=$(scaled 400); [[ -z ${SLUICE_SOAK:-} ]] || n=10000
  four() { crew "crew$1" $((1 + 4 * $1)) 4 --seconds-per-tf 0.05 --forget 50; }
  for i in 0 1 2; do four $i; done
  job=$(sluice submit --input "$(links "$n")" --workflow none --attempts 100)
  over() { is '.jobs[0].state' done sluice job show "$job"; }
  for ((round = 0; round < $(scaled 6); round++)); do
    ! over >/dev/null || break
    i=$((RANDOM % 3)) pid=PID_crew$((i))
    kill -KILL "${!pid}"; wait_until 10 ended "${!pid}"
    four $i
  done
  sluice wait job "$job" --timeout "$((120 + n / 10))s" || { sluice job tfs "$job" --json | jq -r ".tasks[] | select(.state != \"done\") | \"\(.state) \(.code) attempt \(.attempt): \(.text)\"" | sort | uniq -c | sort -rn | head; false; }
  is '.jobs[0] | [.done, .failed, .running, .waiting] | join(" ")' "$n 0 0 0" sluice job show "$job"
  sluice nodes --json | jq -r '.nodes[].name' | sort >"$FARM/names"
  sluice job tfs "$job" --json | jq -r '.tasks[].node' | sort -u >"$FARM/used"
  [ -z "$(comm -13 "$FARM/names" "$FARM/used")" ]
  is '[.nodes[] | .tfs + .buffer_charged] | add' 0 sluice nodes
  sluice check
}
