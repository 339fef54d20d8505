#!/usr/bin/env bats
# nice.bats - nice levels by pool: set while processes run, refused by the kernel or by a rule; and who may do what at all

load ../lib
load ../rig

setup() {
  rig_setup; real_class
  [[ $EUID -eq 0 ]] || skip "only root can be several users"
  mkdir -p "$FARM/farm/run" "$FARM/shm"
  chmod 755 "$FARM/farm"; chmod 777 "$FARM/farm/run" "$FARM/shm"
  { echo 'pool async { nice = 10 }'; echo 'role worker { users = { "nobody" } }'; } >>"$FARM/conf"
}
teardown() { farm_teardown; }

# threads_have NODE LEVEL: every thread of every reconstruction process.
threads_have() {
  local pid got
  for pid in $(worker_status "$1" '.devices[].pid'); do
    got=$(cat /proc/"$pid"/task/*/stat | sed 's/.*) //' | awk '{ print $17 }' | sort -u | paste -sd' ')
    [[ $got == "$2" ]] || { echo "pid $pid has '$got'"; return 1; }
  done
}
nice_is() { node_is "$1" '[.nice_wanted, .nice_actual] | map(tostring) | join(" ")' "$2"; }
user() { setpriv --reuid="$1" --regid=nogroup --clear-groups env "HOME=$FARM" "${@:2}"; }
worker_of_nobody() { touch "$FARM/$1.log"; chmod 666 "$FARM/$1.log"; worker "$1" setpriv --reuid=nobody --regid=nogroup --clear-groups "${@:2}" --; }

@test "B74 a worker of an ordinary user: levels are raised, not lowered; what the kernel refuses is said and fails nothing; a move changes them" {
  daemon; nodes_real n001
  worker_of_nobody n001
  wait_until 20 node_is n001 .state idle
  wait_until 10 threads_have n001 5
  node_is n001 .nice_text 'wanted 0, has 5: processes stay behind the worker'"'"'s loop, which has 0'
  run -0 sluice nice --pool online 10
  [[ $output == *"nice of pool online from 0 to 10"* ]]
  wait_until 10 threads_have n001 10
  wait_until 10 nice_is n001 '10 10'
  node_is n001 '.nice_text // ""' ''
  sluice nice --pool online 15 >/dev/null
  wait_until 10 threads_have n001 15
  for wanted in 10 -5; do                      # lowering is not permitted
    sluice nice --pool online -- "$wanted" >/dev/null
    wait_until 10 nice_is n001 "$wanted 15"
    wait_until 10 node_is n001 .nice_text "wanted $wanted, has 15: the kernel does not permit it (RLIMIT_NICE, CAP_SYS_NICE)"
  done
  threads_have n001 15
  for bad in 20 -21 x "" 1.5; do
    run -2 sluice nice --pool online -- "$bad"
  done
  nice_is n001 '-5 15'
  node_is n001 '[.state, .usable] | map(tostring) | join(" ")' 'idle true'
  sluice nice --pool online 15 >/dev/null
  # the level of the pool it comes to, while it runs: async is 10, which is not permitted any more; 19 is
  sluice move n001 --to async --wait >/dev/null
  wait_until 10 nice_is n001 '10 15'
  sluice nice --pool async 19 >/dev/null
  wait_until 10 threads_have n001 19
  # kept over a restart
  daemon_kill; daemon
  wait_until 20 nice_is n001 '19 19'
}

@test "B74 a worker that was started at nice 15: its processes stay behind it, and it says so" {
  daemon; nodes_real n001
  worker_of_nobody n001 nice -n 15
  wait_until 20 node_is n001 .state idle
  for wanted in 10 -5 15; do
    sluice nice --pool online -- "$wanted" >/dev/null
    wait_until 10 nice_is n001 "$wanted 19"
    wait_until 10 node_is n001 '.nice_text | startswith("wanted '"$wanted"', has 19: ")' true
  done
  for bad in 20 x; do run -2 sluice nice --pool online "$bad"; done
  # no time-frame minds
  sluice replay "$(sample 2)" --workflow none >/dev/null
  is '.runs[0] | [.done, .failed] | join(" ")' "1 0" sluice run show 1
  sluice nice --pool online 19 >/dev/null
  wait_until 10 nice_is n001 "19 19"
  wait_until 10 threads_have n001 19
  wait_until 10 node_is n001 '.nice_text // ""' ''
}

@test "a worker that may: levels go down again too, in all threads" {
  daemon; nodes_real n001
  worker n001 --
  wait_until 20 node_is n001 .state idle
  for wanted in 12 3 19 0; do
    sluice nice --pool online "$wanted" >/dev/null
    wait_until 10 threads_have n001 "$wanted"
    wait_until 10 nice_is n001 "$wanted $wanted"
  done
  [ "$(worker_status n001 '.devices[0].restarts // 0')" = 0 ]
}

@test "roles: by default only root and who runs sluiced change anything; the author is the real one, refusals are counted and logged" {
  daemon; nodes_real n001
  worker n001 --
  wait_until 20 node_is n001 .state idle
  user nobody sluice nodes >/dev/null
  before=$(event refused_permission)
  for change in "mark n001 odd" "clear n001 odd" "move n001 --to async" "node retire n001 gone" "run start" "shm set n001 32M" "nice --pool online 5" \
                "logs --node n001" "backup $FARM/copy" "health --reset"; do
    run -5 user nobody sluice $change
    [[ $output == *nobody* ]] || { echo "$change: $output"; false; }
  done
  [ "$(event refused_permission)" = $((before + 10)) ]
  [ "$(grep -c 'refused to nobody (uid' "$FARM/sluiced.log")" = 10 ]
  [ "$(json '.nodes[0] | [.pool, .marks, .shm_active] | map(tostring) | join(" ")' sluice nodes)" = "online [] $((16 << 20))" ]
}

@test "roles and nice rules by user and group: each may what it may, and the history has who it was" {
  cat >>"$FARM/conf" <<'CONF'
role shift { users = { "games", "news" } }
role expert { users = { "daemon" } }
nice_rule "some" { users = { "games" } min = 5 max = 10 }
nice_rule "group" { groups = { "news", "games" } min = 12 max = 14 }
CONF
  daemon; nodes_real n001
  worker n001 --
  wait_until 20 node_is n001 .state idle
  user games sluice mark n001 'smells of smoke' --class hw >/dev/null
  node_is n001 '.marks[0] | [.owner, .reason] | join(": ")' 'games: smells of smoke'
  run -5 user games sluice shm set n001 32M
  [[ $output == *"wants the role expert"* ]]
  [ -n "$(user games sluice logs --node n001)" ]
  run -5 user nobody sluice logs --node n001
  user games sluice clear n001 'was the kitchen' >/dev/null
  user daemon sluice shm set n001 32M >/dev/null
  sluice node history n001 --json | jq -e '[.events[] | select(.who | startswith("games (uid ")) | .what] | length == 2'
  sluice node history n001 --json | jq -e '[.events[] | select(.what == "shm asked for")][0].who | startswith("daemon (uid ")'
  # two rules name games: by name and by group; one names nobody
  user games sluice nice --pool online 5 >/dev/null
  user games sluice nice --pool online 14 >/dev/null
  run -5 user games sluice nice --pool online 15
  [[ $output == *"games (uid "*") may set 5 to 14"* ]]
  user news sluice nice --pool online 12 >/dev/null
  run -5 user news sluice nice --pool online 5
  [[ $output == *"may set 12 to 14"* ]]
  run -5 user nobody sluice nice --pool online 13
  [[ $output == *"wants the role shift"* ]]
  # the state's copy is written with sluiced's own rights, at any place: no role gives that away
  mkdir -m 777 "$FARM/open"
  run -5 user daemon sluice backup "$FARM/open/copy"
  [[ $output == *"only root and who runs sluiced"* && ! -e $FARM/open/copy ]]
  user daemon sluice nice --pool online -- -3 >/dev/null
  wait_until 10 node_is n001 .nice_wanted -3
  # what a role alone does not say is counted and logged, too: others' jobs, others' marks, levels out of range
  job=$(sluice submit "$(sample 2)" --workflow none --hold --quiet)
  before=$(event refused_permission) logged=$(grep -c 'refused to games' "$FARM/sluiced.log")
  for change in "job cancel $job" "job hold $job" "nice --job $job 7" "clear n001 odd --any-owner" "nice --pool online 15"; do
    run -5 user games sluice $change
  done
  [ "$(event refused_permission)" = $((before + 5)) ]
  [ "$(grep -c 'refused to games (uid' "$FARM/sluiced.log")" = $((logged + 5)) ]
  is '.jobs[0].state' held sluice job show "$job"
}

# at_work NODE LEVEL FOR: its one device works for it, and has that level in all threads.
at_work() {
  node_is "$1" '.devices[0] | [.nice_for, .nice_wanted, .nice_actual] | map(tostring) | join(" ")' "$3 $2 $2" && threads_have "$1" "$2"
}
job_nice() { is '.jobs[0] | [.nice, .nice_from] | map(tostring) | join(" ")' "$2" sluice job show "$1"; }

@test "jobs and runs: a level of their own goes before a rule, a rule before the pool; it changes while they run, and is kept over kill -9" {
  sed -i 's/nominal_ms = 20/nominal_ms = 1500/' "$FARM/conf"
  cat >>"$FARM/conf" <<'CONF'
role shift { users = { "games", "news", "sys" } }
nice_rule "late" { users = { "games" } min = 12 max = 16 }
nice_rule "wide" { groups = { "news" } min = 4 max = 19 }
CONF
  daemon
  for n in n001 n002; do sluice node add $n --class real --pool async >/dev/null; worker $n --; done
  for n in n001 n002; do wait_until 20 node_is $n .state idle; wait_until 10 threads_have $n 10; done
  sluice mark n002 'kept for later' >/dev/null
  for ((i = 0; i < 40; i++)); do cat "$(sample 2)"; done >"$FARM/in.tf"
  mkdir -m 777 "$FARM/out"
  submit() { user "$1" sluice submit "$FARM/in.tf" --output "$FARM/out/$1" --quiet "${@:2}"; }
  # sys is named by no rule: the pool's, and no other
  run -5 submit sys --nice 11
  [[ $output == *"sys (uid "*") is neither"* ]]
  job=$(submit sys)
  wait_until 20 node_is n001 '.devices[0].state' busy
  job_nice "$job" '10 pool'
  run -5 user sys sluice nice --job "$job" 12
  # an expert may: while it runs, in all threads
  run -0 sluice nice --job "$job" 7
  [[ $output == *"nice of job $job from 10, the pool's to 7"* ]]
  wait_until 10 at_work n001 7 "job $job"
  job_nice "$job" '7 own'
  node_is n001 .nice_text "has 7: so job $job wants it"
  sluice nice --pool async 14 >/dev/null       # the pool's is none of its business
  wait_until 10 threads_have n002 14
  threads_have n001 7
  daemon_kill; daemon
  wait_until 20 job_nice "$job" '7 own'
  wait_until 20 at_work n001 7 "job $job"
  run -5 user news sluice nice --job "$job" 14
  [[ $output == *"others' jobs are for experts"* ]]
  run -0 sluice nice --job "$job" pool
  [[ $output == *"from 7 to 14, the pool's"* ]]
  wait_until 10 threads_have n001 14
  job_nice "$job" '14 pool'
  sluice job cancel "$job" >/dev/null
  wait_until 20 node_is n001 .tfs 0
  # games: the pool's level within 12 to 16
  run -5 submit games --nice 11
  [[ $output == *"nice 11: games (uid "*") may set 12 to 16"* ]]
  job=$(submit games)
  wait_until 20 node_is n001 '.devices[0].state' busy
  job_nice "$job" '14 pool'
  sluice nice --pool async 19 >/dev/null
  wait_until 10 at_work n001 16 "job $job"
  job_nice "$job" '16 rule'
  sluice nice --pool async 3 >/dev/null
  wait_until 10 at_work n001 12 "job $job"
  user games sluice nice --job "$job" 13 >/dev/null
  wait_until 10 at_work n001 13 "job $job"
  run -5 user games sluice nice --job "$job" 17
  job_nice "$job" '13 own'
  sluice job cancel "$job" >/dev/null
  wait_until 20 node_is n001 .tfs 0
  wait_until 10 threads_have n001 3            # nobody's work is there: the pool's again
  job=$(submit news --nice 5)
  wait_until 20 at_work n001 5 "job $job"
  sluice job cancel "$job" >/dev/null
  # runs
  sluice clear n002 'now it is' >/dev/null
  sluice move n002 --to online --wait >/dev/null
  RUN=$(sluice run start --nice 2 --output "$FARM/out/run")
  sluice replay "$FARM/in.tf" --run "$RUN" --rate 4 >"$FARM/replay.txt" 2>&1 &
  STARTED+=($!)
  wait_until 20 at_work n002 2 "run $RUN"
  is '.runs[0] | [.nice, .nice_from] | map(tostring) | join(" ")' '2 own' sluice run show "$RUN"
  sluice nice --run "$RUN" -- -3 >/dev/null     # as far as the loop's allows: said with the run, too
  wait_until 10 is '.runs[0].nice_text // ""' 'n002: emu-n002-0: wanted -3, has 0' sluice run show "$RUN"
  user news sluice nice --run "$RUN" 6 >/dev/null
  wait_until 10 at_work n002 6 "run $RUN"
  run -5 user news sluice nice --run "$RUN" -- -1
  [[ $output == *"may set 4 to 19"* ]]
  sluice run stop "$RUN" --data-timeout 1s --calib-timeout 1s >/dev/null || true
  run -4 sluice nice --run "$RUN" 6
  run -3 sluice nice --run 99 6
  run -3 sluice nice --job 99 6
  for bad in "--job $job" "5" "--job $job --run $RUN 5" "--job x 5" "--job $job 20" "--pool online pool"; do run -2 sluice nice $bad; done
  sluice watch --from 1 --jsonl >"$FARM/events" & STARTED+=($!)
  wait_until 10 eval '[ "$(jq -r "select(.what == \"nice\") | .reason" "$FARM/events" 2>/dev/null | grep -c "job\|run")" -ge 5 ]'
}
