#!/usr/bin/env bats
# What people do with jobs: hold, release, run again what failed; keys.
load ../lib

setup() { farm_setup; }
teardown() { farm_teardown; }

async_farm() {
  farm_up --nodes mi50:2 --nominal mi50=100
  sluice move mi50-001 --to async --wait --timeout 20s
}

state_of() { json '.jobs[0] | [.state, .done, .running] | join(" ")' sluice job show "$1"; }

# What was submitted after it is done: the job before had its chance.
overtaken() { sluice submit "$(sample 2)" --workflow none --wait --quiet >/dev/null; }

@test "a held job waits for its release, also over a restart of sluiced; history names both" {
  async_farm
  held=$(sluice submit "$(samples)" --workflow none --hold)
  overtaken
  [ "$(state_of "$held")" = "held 0 0" ]
  is '.jobs[0].why' Held sluice job show "$held"
  sluice down --dir "$FARM/farm"
  farm_up
  overtaken
  [ "$(state_of "$held")" = "held 0 0" ]
  [ "$(json '[.jobs[].id] | join(" ")' sluice jobs --state held)" = "$held" ]
  sluice job release "$held"
  sluice wait job "$held" --timeout 60s
  [ "$(state_of "$held")" = "done 3 0" ]
  run --separate-stderr sluice job hold "$held"
  [ "$status" -eq 4 ]
  [ "$stderr" = "sluice: job $held is over: done" ]
  id=$(sluice submit "$(sample 2)" --workflow none --hold)
  sluice job hold "$id" "disk is being cleaned"
  is '.jobs[0] | [.state, .why] | join(" ")' "held disk is being cleaned" sluice job show "$id"
  is '.jobs[0].state' waiting sluice job release "$id"
  sluice wait job "$id" --timeout 60s
  run --separate-stderr sluice job release 1000
  [ "$status" -eq 3 ]
  [ "$stderr" = "sluice: no job 1000" ]
  sluice dump | jq -es 'map(select(.kind == "event") | .what) | index("job submit") != null and index("job release") > index("job submit")'
}

@test "a job that runs can be held: what the node has ends, the rest waits" {
  async_farm
  n=40
  for ((i = 0; i < n; i++)); do ln -s "$(sample 2)" "$FARM/in-$i.tf"; echo "$FARM/in-$i.tf"; done >"$FARM/list"
  id=$(sluice submit --input "$FARM/list" --workflow none)
  wait_until 20 eval '[ "$(json ".jobs[0].done" sluice job show '"$id"')" -ge 1 ]'
  sluice job hold "$id"
  wait_until 20 is '.jobs[0].running' 0 sluice job show "$id"
  done=$(json '.jobs[0].done' sluice job show "$id")
  overtaken
  [ "$(state_of "$id")" = "held $done 0" ]
  sluice job release "$id"
  sluice wait job "$id" --timeout 60s
  [ "$(state_of "$id")" = "done $n 0" ]
  sluice check
}

@test "what a cancelled job did not do is run again, what it did is not" {
  async_farm
  id=$(sluice submit "$(samples)" --workflow decode --output "$FARM/out" --hold)
  sluice job cancel "$id" "wrong night"
  run sluice wait job "$id" --timeout 20s
  [ "$status" -eq 11 ]
  sluice job rerun "$id" --failed
  sluice wait job "$id" --timeout 60s
  is '.jobs[0] | [.state, .done, .failed, .cancelled] | join(" ")' 'done 3 0 0' sluice job show "$id"
  find "$FARM/out" -type f | sort | xargs md5sum >"$FARM/before"
  [ -s "$FARM/before" ]
  run --separate-stderr sluice job rerun "$id" --failed
  [ "$status" -eq 4 ]
  [ "$stderr" = "sluice: job $id: none of its TFs failed or was cancelled" ]
  md5sum --quiet -c "$FARM/before"
  sluice check
}

@test "--begin, --after and --priority do what they say, also over a restart" {
  farm_up --nodes mi50:3 --nominal mi50=60
  sluice move mi50-001,mi50-002 --to async --wait --timeout 20s
  f=$(sample 2); mkdir "$FARM/in"; for i in $(seq 8); do ln -s "$f" "$FARM/in/f$i.tf"; done
  says() { is ".jobs[0] | [.state, .why] | map(. // \"\") | join(\" \")" "$2" sluice job show "$1"; }
  first=$(sluice submit "$f" --workflow none --hold)
  begin=$(date -u -d '+10 seconds' +%FT%TZ)
  late=$(sluice submit "$f" --workflow none --begin "$begin")
  ok=$(sluice submit "$f" --workflow none --after "ok:$first")
  notok=$(sluice submit "$f" --workflow none --after "notok:$first")
  any=$(sluice submit "$f" --workflow none --after "any:$late")
  run --separate-stderr sluice submit "$f" --workflow none --after ok:999
  [[ $status -eq 3 && $stderr == *"no job 999"* ]]
  kill -9 "$(json '.status[0].pid' sluice status)"
  farm_up
  wait_until 5 says "$late" "waiting BeginTime"
  for job in "$ok" "$notok" "$any"; do wait_until 10 says "$job" "waiting DependencyNotDone"; done
  sluice wait job "$late" --timeout 60s
  [[ $(json '.jobs[0].ended' sluice job show "$late") > ${begin%Z} ]]
  sluice wait job "$any" --timeout 60s
  says "$ok" "waiting DependencyNotDone"
  sluice job release "$first"
  for job in "$first" "$ok"; do sluice wait job "$job" --timeout 60s; done
  wait_until 10 says "$notok" "waiting DependencyNeverSatisfied"
  sluice job cancel "$notok"
  # the later one goes first
  low=$(sluice submit "$FARM/in" --output "$FARM/low" --hold)
  high=$(sluice submit "$f" --output "$FARM/high" --priority 10 --hold)
  sluice mark mi50-001,mi50-002 "until both wait" >/dev/null
  sluice job release "$low"; sluice job release "$high"
  sluice clear mi50-001,mi50-002 "both wait" >/dev/null
  for job in "$low" "$high"; do sluice wait job "$job" --timeout 60s; done
  [[ $(json '.jobs[0].ended' sluice job show "$high") < $(json '.jobs[0].ended' sluice job show "$low") ]]
  sluice check
}

@test "--straggler: one that hangs at the end of its job is started a second time elsewhere; the job is over, the first try is none of its failures" {
  farm_up --nodes mi50:3 --nominal mi50=500
  sluice move mi50-001,mi50-002 --to async --wait --timeout 20s
  mkdir "$FARM/in"; for i in $(seq 20); do ln -s "$(sample 2)" "$FARM/in/f$i.tf"; done
  job=$(sluice submit "$FARM/in" --output "$FARM/out" --straggler 2)
  wait_until 20 eval '[ "$(json ".jobs[0].done" sluice job show "$job")" -ge 4 ]'
  reco=$(json '.nodes[] | select(.name == "mi50-001") | .devices[0].pid' sluice nodes)
  kill -STOP "$reco"
  sluice wait job "$job" --timeout 60s || { kill -CONT "$reco"; false; }
  kill -CONT "$reco" 2>/dev/null || true      # or it was ended with its try
  is '.jobs[0] | [.done, .failed, .retried] | map(tostring) | join(" ")' "20 0 0" sluice job show "$job"
  [ "$(for i in $(seq 0 19); do json '.attempts[].code' sluice logs "${job}_$i"; done | grep -c Superseded)" -ge 1 ]
  [ "$(sluice metrics | grep -c 'event="stragglers"} [1-9]')" -eq 1 ]
  wait_until 20 eval '[ "$(ls "$FARM/out" | wc -l)" -eq 40 ]'
  sluice check
}

# asked STATUS STDOUT COMMAND...: with that exit status and exactly that on standard output.
asked() {
  local expect=$1 text=$2
  shift 2
  run --separate-stderr "$@"
  [ "$status" -eq "$expect" ] && [ "$output" = "$text" ] || { echo "$*: $status"; echo "$output"; echo "$stderr"; false; }
}

@test "hold, release, cancel and rerun take several jobs and say of each what was done; what looks like a number is no reason" {
  async_farm
  for name in a b c d; do ids+=("$(sluice submit "$(samples)" --workflow none --hold --name "$name")"); done
  read -r a b c d <<<"${ids[*]}"
  asked 0 "job $a: released, it is waiting
job $b: released, it is waiting" sluice job release "$a" "$b" "$a"
  for j in "$a" "$b"; do sluice wait job "$j" --timeout 60s; done
  asked 0 "job $c: cancelled, 0 of 3 TFs were done: wrong night
job $d: cancelled, 0 of 3 TFs were done: wrong night" sluice job cancel "$c" "$d" "wrong night"
  [ "$(json '.jobs[] | select(.id == ('"$c,$d"')) | .state + " " + .why' sluice jobs --all)" = "cancelled wrong night
cancelled wrong night" ]

  # each on its own: what one is refused for keeps back nothing of the others, and its exit status is that of all
  asked 4 "job $c: runs again, 3 of 3 TFs
job $d: runs again, 3 of 3 TFs" sluice job rerun "$c" "$a" 999 "$d" --failed
  [ "$stderr" = "sluice: job $a: none of its TFs failed or was cancelled
sluice: no job 999" ]
  asked 3 "" sluice job rerun 999 "$a" --failed
  for j in "$c" "$d"; do sluice wait job "$j" --timeout 60s; done

  # quiet, a document, a reason by its option
  read -r a b <<<"$(sluice submit "$(sample 2)" --hold --name e) $(sluice submit "$(sample 2)" --hold --name f)"
  asked 0 "" sluice job hold "$a" "$b" --quiet --reason "3"
  is '[.jobs[].why] | join(" ")' "3 3" sluice jobs
  is '[.jobs[].id] | join(" ")' "$a $b" sluice job hold "$a" "$b"
  asked 0 "$a|held
$b|held" sluice job hold "$a" "$b" --parsable --no-header -o id,state

  # nothing is done when one of them is no number
  for wrong in "$b $a-$b" "$a words $b" "$a [1-9]" "$a $b," "$a 12x" "$a $b words --reason more"; do
    run --separate-stderr sluice job cancel $wrong
    [ "$status" -eq 2 ] || { echo "$wrong: $status $stderr"; false; }
  done
  run --separate-stderr sluice job hold "$a" 12x
  [ "$stderr" = "sluice: '12x': a job's number is wanted, or, last, a reason in words; --reason TEXT takes any" ]
  is '[.jobs[].state] | unique | join(" ")' held sluice jobs
  asked 0 "job $a: cancelled, 0 of 1 TFs were done: 3 disks are full
job $b: cancelled, 0 of 1 TFs were done: 3 disks are full" sluice job cancel "$a" "$b" "3 disks are full"
}

@test "wait tells the outcome with --json, too, and keeps its exit status" {
  farm_up --nodes mi50:2 --nominal mi50=1
  told() { local expect=$1 rc=0; shift; sluice wait "$@" --json >"$FARM/waited" || rc=$?; [ "$rc $(jq -c '.waits[0] | [.kind, .id, .exit, .text != null]' "$FARM/waited")" = "$expect" ]; }
  done=$(sluice submit "$(sample 2)" --workflow none --hold)
  cancelled=$(sluice submit "$(sample 2)" --workflow none --hold)
  told "7 [\"job\",$done,7,true]" job "$done" --timeout 200ms
  sluice job cancel "$cancelled"
  told "11 [\"job\",$cancelled,11,true]" job "$cancelled"
  told '12 ["job",999,12,true]' job 999
  sluice move mi50-001 --to async --wait --timeout 20s
  sluice job release "$done"
  told "0 [\"job\",$done,0,true]" job "$done"
  told '0 ["move",1,0,true]' move 1
  run sluice wait job "$done" --json -o nothing
  [ "$status" -eq 2 ]
  [ "$(sluice wait job "$done" -o exit,id --parsable --no-header)" = "0|$done" ]
}

@test "a key gives the same job after the client gave up and after a restart; to another key another one" {
  async_farm
  pid=$(json '.status[0].pid' sluice status)
  kill -STOP "$pid"
  run timeout 2 sluice submit "$(sample 2)" --workflow none --key night-7
  kill -CONT "$pid"
  [ "$status" -ne 0 ]
  id=$(sluice submit "$(sample 2)" --workflow none --key night-7)
  [ "$(sluice submit "$(sample 2)" --workflow none --key night-7 --quiet)" = "$id" ]
  sluice wait job "$id" --timeout 60s
  sluice down --dir "$FARM/farm"
  farm_up
  run --separate-stderr sluice submit "$(sample 2)" --workflow none --key night-7
  [ "$output" = "$id" ]
  [ "$stderr" = "the job of this key is there already" ]
  [ "$(json '.jobs | length' sluice jobs --all)" -eq 1 ]
  [ "$(sluice submit "$(sample 2)" --workflow none --key night-8)" != "$id" ]
  # without a path the job is looked for, and nothing else
  [ "$(sluice submit --key night-7)" = "$id" ]
  run --separate-stderr sluice submit --key night-9
  [ "$status" -eq 2 ]
  [[ $stderr == *"no job of yours has the key \"night-9\""* ]]
}

@test "job show says what each stage ran on and why auto fell back; so after a restart, and what is run again is added once" {
  [ "$(sluice devices --json | jq '[.devices[] | select(.usable and .class != "cpu" and .backend != "cpu")] | length')" -eq 0 ] || skip "there is a GPU here"
  async_farm
  cp "$(sample 2)" "$FARM/good.tf"
  cp "$(sample 2)" "$FARM/late.tf"
  id=$(sluice submit "$FARM"/{good,late}.tf --workflow cluster --backend decode=cpu,cluster=auto --hold)
  truncate -s 1000 "$FARM/late.tf"                       # it is damaged when its turn comes
  sluice job release "$id"
  run sluice wait job "$id" --timeout 60s
  ran() { is '.jobs[0].stages | map([.stage, .backend, .tfs, .fallbacks, (.reason // "-")[:13]] | map(tostring) | join(" ")) | join("; ")' "$1" sluice job show "$id"; }
  is '.jobs[0] | [.done, .failed] | join(" ")' "1 1" sluice job show "$id"
  ran "decode cpu 1 0 -; cluster cpu 1 1 no usable GPU"
  kill -KILL "$(sluice status --json | jq .status[0].pid)"
  farm_up
  ran "decode cpu 1 0 -; cluster cpu 1 1 no usable GPU"
  cp "$(sample 2)" "$FARM/late.tf"
  sluice job rerun "$id" --failed
  sluice wait job "$id" --timeout 60s
  ran "decode cpu 2 0 -; cluster cpu 2 2 no usable GPU"
  [[ "$(sluice job show "$id" -o ran --parsable -h)" == "decode on cpu: 2 TFs,cluster on cpu: 2 TFs, 2 fall-backs (no usable GPU"* ]]
}

@test "jobs: a cancelled job adds up on sight: its tasks are those waiting, running, done, failed and cancelled" {
  farm_up --nodes mi50:1
  id=$(sluice submit "$(samples)" --workflow none --hold)
  sluice job cancel "$id" >/dev/null
  run sluice wait job "$id" --timeout 20s
  [ "$status" -eq 11 ]
  # by the table as people have it
  sluice jobs --all | awk 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
    { print $at["TASKS"], $at["WAITING"] + $at["RUNNING"] + $at["DONE"] + $at["FAILED"] + $at["CANCELLED"], $at["CANCELLED"] }' >"$FARM/sum"
  [ "$(cat "$FARM/sum")" = "3 3 3" ]
}
