#!/usr/bin/env bats
# Slips of an operator: each is refused with what was wanted and found, and leaves nothing behind.
load ../lib

setup() { farm_setup; }
teardown() { farm_teardown; }

runs() { sluice runs --all --json | jq '.runs | length'; }

@test "an option of replay that makes no sense leaves no run behind" {
  farm_up --nodes mi50:1 --nominal mi50=1
  file=$(sample 2)
  while read -r line; do
    run --separate-stderr eval "sluice replay '$file' $line"
    [ "$status" -eq 2 ] || { echo "$line: $status $stderr"; false; }
    [ -z "$output" ]
    [[ $stderr != *sluice-source* ]]
  done <<'END'
--rate 0
--rate nan
--rate fast
--loop 0
--loop 1.5
--preread 0
--threads 1000
--sources 0
--max-bad x
--output ''
--name ''
END
  [ "$(runs)" -eq 0 ]
  run --separate-stderr sluice replay "$file" --run 7
  [ "$status" -eq 3 ]
  [ "$stderr" = "sluice: no run 7" ]
  id=$(sluice run start --workflow none)
  sluice run stop "$id"
  run --separate-stderr sluice replay "$file" --run "$id"
  [ "$status" -eq 4 ]
  [ "$stderr" = "sluice: run $id is over" ]
}

@test "a column that is not there is refused before anything is changed" {
  farm_up --nodes mi50:1 --nominal mi50=1
  for command in "mark mi50-001 x" "move mi50-001 --to async" "node retire mi50-001 x" "run start" "submit '$(sample 2)'"; do
    run --separate-stderr eval "sluice $command -o colour"
    [ "$status" -eq 2 ]
    [[ $stderr == *"'colour': there is no such column"* ]]
  done
  [ "$(runs)" -eq 0 ]
  [ "$(json '.jobs | length' sluice jobs --all)" -eq 0 ]
  [ "$(json '.nodes[0] | [.pool, .wanted_pool, (.marks | length)] | join(" ")' sluice nodes)" = "online online 0" ]
}

@test "text that is not UTF-8 is refused by name, and the connection lives" {
  farm_up --nodes mi50:1 --nominal mi50=1
  run --separate-stderr sluice mark mi50-001 $'\xff\xfe'
  [ "$status" -eq 2 ]
  [ "$stderr" = "sluice: reason '\\xFF\\xFE': text in UTF-8 is wanted" ]
  cp "$(sample 2)" "$FARM/"$'lat\xefn.tf'
  run --separate-stderr sluice submit "$FARM/"$'lat\xefn.tf'
  [ "$status" -eq 1 ]
  [[ $stderr == *'lat?n.tf'*UTF-8* ]]
  run --separate-stderr sluice submit "$FARM/"$'lat\xefn.tf' "$(sample 2)"
  [ "$status" -eq 10 ]
  [[ $stderr == "skipped "*'lat\xEFn.tf'*UTF-8* ]]
}

@test "a reason that says nothing retires no node" {
  farm_up --nodes mi50:1
  run sluice node retire mi50-001 '  '
  [ "$status" -eq 2 ]
  [ "$(json '.nodes | length' sluice nodes)" -eq 1 ]
}

@test "a job for a class that is not there is refused; for one without nodes in async it says what it waits for" {
  farm_up --nodes mi50:1,mi100:1 --nominal mi100=1
  run --separate-stderr sluice submit "$(sample 2)" --class mi500
  [ "$status" -eq 3 ]
  [[ $stderr == *"class 'mi500'"* ]]
  sluice move mi100-001 --to async --wait --timeout 20s
  job=$(sluice submit "$(sample 2)" --class mi50)
  wait_until 10 is '.jobs[0].why' WaitingForClass sluice jobs
  sluice job cancel "$job"
  run --separate-stderr sluice submit "$(sample 2)" --class mi50,mi100 --wait
  [ "$status" -eq 0 ]
  [[ $stderr == *"1 done"* ]]
}

@test "a copy of the state into a folder that is not there: the file is named, not the disk of the state" {
  farm_up --nodes mi50:1
  run --separate-stderr sluice backup "$FARM/none/copy.db"
  [ "$status" -eq 3 ]
  [ "$stderr" = "sluice: the copy $FARM/none/copy.db cannot be made: No such file or directory" ]
  [ "$(json .status[0].state sluice status)" = running ]
}

@test "crash purge of an id that is not there removes nothing and says so" {
  farm_up --nodes mi50:1
  run --separate-stderr sluice crash purge 7
  [ "$status" -eq 3 ]
  [[ $stderr == *"no crash 7"* ]]
}

@test "a replay on a farm where no node works can be interrupted, says what it waits for, and its run ends" {
  farm_up --nodes mi50:1
  sluice mark @all "all out"
  env --default-signal=INT sluice replay "$(sample 2)" --loop 100 --rate 20 2>"$FARM/replay.out" >/dev/null &
  replay=$!
  wait_until 10 eval '[ "$(sluice run show 1 --json | jq ".runs[0].announced")" -ge 2 ]'
  kill -INT "$replay"
  wait_until 10 grep -q "interrupt again" "$FARM/replay.out"
  kill -INT "$replay"
  wait_until 20 grep -q "stopping run 1" "$FARM/replay.out" || { cat "$FARM/replay.out"; false; }
  kill -INT "$replay" || true
  rc=0; wait "$replay" || rc=$?
  [ "$rc" -eq 130 ]
  wait_until 30 is '.runs[0].state' done sluice run show 1
}

@test "down in a folder that is no farm says so and leaves nothing there" {
  mkdir "$FARM/empty"
  run --separate-stderr sluice down --dir "$FARM/empty"
  [ "$status" -eq 3 ]
  [[ $stderr == *"no farm in this folder"* ]]
  [ -z "$(ls -A "$FARM/empty")" ]
}

@test "up with a buffer that no worker would take is refused before a configuration is written" {
  run --separate-stderr sluice up --dir "$FARM/farm" --shm 1K
  [ "$status" -eq 2 ]
  [[ $stderr == *"64K"* ]]
  [ ! -e "$FARM/farm" ]
}

@test "the socket was removed: up repairs it, and the run that is on goes on" {
  farm_up --nodes mi50:1 --nominal mi50=100
  sluice replay "$(sample 2)" --loop 40 --rate 8 --json >"$FARM/replay.json" 2>"$FARM/replay.out" &
  replay=$!
  wait_until 10 eval '[ "$(sluice run show 1 --json | jq ".runs[0].done")" -ge 2 ]'
  rm "$SLUICE_SOCKET"
  run sluice status
  [ "$status" -eq 6 ]
  run sluice up --dir "$FARM/farm" 3>&-
  [ "$status" -eq 0 ]
  [[ $output == *"socket of sluiced is gone"* ]]
  wait "$replay"
  [ "$(jq '.replay[0] | [.done, .failed, .lost] | join(" ")' -r "$FARM/replay.json")" = "40 0 0" ]
}

@test "the state folder was removed: up makes no empty one in its place, a backup goes there" {
  farm_up --nodes mi50:1
  sluice mark mi50-001 "bad fan"
  sluice backup "$FARM/copy.db"
  sluice down --dir "$FARM/farm"
  rm -r "$FARM/farm/state"
  mkdir -p "$FARM/farm/state/output"
  run --separate-stderr sluice up --dir "$FARM/farm" 3>&-
  [ "$status" -eq 4 ]
  [[ $stderr == *"the state in $FARM/farm/state is gone"* ]]
  # a backup that was copied there by hand is no state of this farm: it is said so, and what is to be done is right
  cp "$FARM/copy.db" "$FARM/farm/state/state.db"
  db=$FARM/farm/state/state.db
  run --separate-stderr sluice up --dir "$FARM/farm" 3>&-
  [ "$status" -eq 4 ]
  [ "$stderr" = "sluice: $db is there, but it is not the state that this farm had (no state.id is beside it); if it is a backup, have it put in place: mv $db FILE; sluiced --restore FILE --state $FARM/farm/state" ]
  mv "$db" "$FARM/by-hand.db"
  sluiced --restore "$FARM/by-hand.db" --state "$FARM/farm/state"
  farm_up
  is '.nodes[0].marks[0].reason' "bad fan" sluice nodes
}

@test "paths with .. in them are taken, of inputs and of outputs" {
  farm_up --nodes mi50:1 --nominal mi50=1
  mkdir -p "$FARM/a/b"
  cp "$(sample 2)" "$FARM/a/x.tf"
  cd "$FARM/a/b"
  sluice replay ../x.tf --output ../out
  [ -n "$(ls "$FARM"/a/out/*/*.digits)" ]
}

@test "the state folder is taken away under sluiced: nothing is acknowledged meanwhile, and it goes on when it is back" {
  farm_up --nodes mi50:1
  mv "$FARM/farm/state" "$FARM/taken"
  run --separate-stderr timeout 20 sluice mark mi50-001 "in the dark"
  [ "$status" -ne 0 ]
  [[ $stderr == *"removed or replaced"* ]] || { echo "$stderr"; false; }
  run --separate-stderr timeout 20 sluice submit "$(sample 2)"
  [ "$status" -ne 0 ]
  rm -rf "$FARM/farm/state"
  mv "$FARM/taken" "$FARM/farm/state"
  wait_until 15 sluice mark mi50-001 "seen again"
  kill -KILL "$(awk '$1 == "sluiced" { print $2 }' "$FARM/farm/started")"
  farm_up
  is '.nodes[0].marks | map(.reason) | index("seen again") != null' true sluice nodes
}

@test "what is no backup is not restored, and nobody waits for a FIFO" {
  farm_up --nodes mi50:1
  sluice mark mi50-001 "bad fan"
  sluice down --dir "$FARM/farm"
  mkfifo "$FARM/fifo"; echo rubbish >"$FARM/rubbish"; : >"$FARM/empty"
  for file in fifo rubbish empty farm none /dev/null; do
    [[ $file == /* ]] || file=$FARM/$file
    run timeout 20 sluiced --restore "$file" --state "$FARM/farm/state"
    [ "$status" -ne 0 ] && [ "$status" -ne 124 ]
    [[ $output == *"$file"* ]]
  done
  run sluiced --restore "$FARM/farm/state/state.db" --state "$FARM/farm/state"
  [ "$status" -eq 2 ]
  [[ $output == *"is the state itself"*"move it elsewhere"* ]]
  farm_up
  is '.nodes[0].marks[0].reason' "bad fan" sluice nodes
}

# refused STATUS PATTERN COMMAND...: with this status, nothing on stdout, and a sentence that matches.
refused() {
  local want=$1 pattern=$2
  shift 2
  run --separate-stderr "$@"
  echo "$*: status $status, '$output', '$stderr'"
  [ "$status" -eq "$want" ] && [ -z "$output" ] && [[ $stderr =~ $pattern ]]
}

@test "what is named and does not exist is exit 3 with its name and, where there are few, the choices" {
  farm_up --nodes mi50:1,mi100:1
  refused 3 "node nosuch: there is no such node" sluice node history nosuch
  refused 3 "node nosuch: there is no such node" sluice node history mi50-001,nosuch
  refused 3 "class nosuch: .*known are: .*mi50, mi100" sluice nodes --class nosuch
  refused 3 'no workflow "nosuch": choices are none, decode, cluster' sluice workflow check nosuch
  for command in "run start" "submit '$(sample 2)'" "replay '$(sample 2)'" "reco '$(sample 2)'"; do
    refused 3 'no workflow "nosuch": choices are none, decode, cluster' eval "sluice $command --workflow nosuch"
  done
  [ "$(runs)" -eq 0 ]
  refused 1 'has no stage "seed"' sluice workflow check decode -b seed=cpu
  refused 3 "$FARM/gone: No such file" sluice submit "$FARM/gone"
  refused 3 "$FARM/gone: .*No such file" sluice replay "$FARM/gone"
  refused 3 "no time-frame in any of the 2 files" sluice submit "$FARM/gone" "$FARM/gone.2"
  refused 3 "none of 2 files has a time-frame" sluice replay "$FARM/gone" "$FARM/gone.2"
  # a file that is there and is none of ours
  echo nonsense >"$FARM/text"
  refused 1 "$FARM/text: .*" sluice submit "$FARM/text"
  refused 1 "$FARM/text: .*" sluice replay "$FARM/text"
  refused 1 "no time-frame in any of the 2 files" sluice submit "$FARM/text" "$FARM/gone"
  refused 1 "none of 2 files has a time-frame" sluice replay "$FARM/text" "$FARM/gone"
  # what is there is shown; a class without nodes in the way that was asked for is an empty list
  [ "$(json '.nodes | length' sluice nodes --class mi50)" -eq 1 ]
  [ "$(json '.nodes | length' sluice nodes --class mi50 -p async)" -eq 0 ]
  # a node that is no more has its history
  sluice node retire mi100-001 "sold"
  sluice node history mi100-001 --json | jq -e '[.events[] | select(.reason == "sold")] | length == 1'
}

@test "a mark takes each device that is named, or none" {
  printf 'class two {\n  devices = 2\n  shm = 8M\n  nominal_ms = 1\n}\nnode n001 { class = two pool = online }\nstate_dir = "%s/state"\nworker { shm_dir = "%s/shm" }\n' "$FARM" "$FARM" >"$FARM/conf"
  mkdir -p "$FARM/shm"
  SLUICE_SOCKET=$FARM/s.sock
  start sluiced -- sluiced --config "$FARM/conf" --state "$FARM/state" --socket "$SLUICE_SOCKET" --log "$FARM/sluiced.log"
  start one -- sluice-worker --config "$FARM/conf" --server "unix:$SLUICE_SOCKET" --node n001 --run-dir "$FARM/run" --log "$FARM/worker.log"
  wait_until 20 is '.nodes[0].usable' true sluice nodes
  refused 3 "no device nosuch" sluice mark n001 --gpu emu-n001-0 --gpu nosuch "fans"
  [ "$(json '[.nodes[0].marks[]] | length' sluice nodes)" -eq 0 ]
  sluice mark n001 --gpu emu-n001-0 --gpu emu-n001-1 --gpu emu-n001-0 "fans"
  [ "$(json '[.nodes[0].marks[].part] | sort | join(" ")' sluice nodes)" = "emu-n001-0 emu-n001-1" ]
}

@test "a backup while the state is away names what is away" {
  farm_up --nodes mi50:1
  mv "$FARM/farm/state" "$FARM/away"
  refused 4 "the state cannot be read: $FARM/farm/state/state.db: No such file or directory" sluice backup "$FARM/copy"
  [ ! -e "$FARM/copy" ]
  mv "$FARM/away" "$FARM/farm/state"
  wait_until 20 sluice backup "$FARM/copy"
}

@test "a number below 0 is an argument like any other; an empty argument is refused by its name; an empty list of nodes is nothing to do" {
  farm_up --nodes mi50:2 --nominal mi50=1
  run -0 sluice nice --pool async -5
  run -0 sluice nice -5 --pool async
  run -0 sluice nice --pool=async -- -6
  while read -r line; do
    run --separate-stderr eval "sluice $line"
    [ "$status" -eq 2 ] || { echo "$line: $status $stderr"; false; }
    [[ $stderr == *"'-"[0-9]*"'"* && $stderr != *"invalid option"* ]] || { echo "$line: $stderr"; false; }
  done <<'END'
nice --pool async -21
run show -1
job cancel -2 "why not"
move --cancel -3
wait job -4
crash show -9
END
  run -2 sluice status -5
  run -2 sluice nice -- -5 --pool async
  [[ $output == *"'--pool' is one argument too many, wanted is nice N|pool; behind -- everything is an argument, options stand before it"* ]]
  run -2 sluice nice -- -5
  [[ $output == *"one of --pool online, --pool async, --job ID and --run ID is wanted" ]]
  run -2 sluice submit "$(sample 2)" --priority -1000001
  [[ $output == *"'-1000001': a whole number from -1000000 to 1000000 is wanted" ]]
  run -0 sluice submit "$(sample 2)" --priority -5 --nice -5 --workflow none
  while read -r line; do
    run --separate-stderr eval "sluice $line"
    [ "$status" -eq 2 ] || { echo "$line: $status $stderr"; false; }
    [[ $stderr == *"is empty, wanted is"* || $stderr == *"no node in it"* ]] || { echo "$line: $stderr"; false; }
  done <<'END'
node show ''
node history ''
node add '' --class mi50
node retire '' x
node retire mi50-001 ''
mark '' x
mark mi50-001 ''
clear '' x
move '' --to async
move ' ' --to async
nice --pool async ''
shm ''
shm set '' 64M
shm set mi50-001 ''
shm clean ''
run show ''
run stop ''
run tfs ''
replay ''
submit ''
job show ''
job cancel ''
job hold 1 ''
wait '' 1
wait job ''
why ''
logs ''
crash show ''
crash purge ''
backup ''
diag ''
help ''
END
  [ "$(sluice hostlist count '')" = 0 ]
  # what a word stands for may be nobody: no mistake, and not everybody
  while read -r line; do
    run --separate-stderr eval "sluice $line"
    [ "$status" -eq 0 ] || { echo "$line: $status $stderr"; false; }
    [[ $stderr == *"no node is in that list now: nothing to do" ]] || { echo "$line: $stderr"; false; }
    [ -z "$output" ]
    eval "sluice $line --json 2>/dev/null" | jq -e '.[.schema.name] == []' || { echo "$line --json"; false; }
  done <<'END'
clear @marked better
mark @async bad
mark mi50-001 bad -x @all
mark - bad </dev/null
move @async --to online --wait
node retire @marked bad
node history @marked
node add @marked --class mi50
nodes -n @marked
nodes -x @all
shm @async
shm set @async 64M
shm clean @async --dir .
logs --node @async
END
  run -0 sluice clear @all better
  [[ $output == *"mi50-001: has no open mark"*"mi50-002: has no open mark"* ]]
  run -3 sluice clear mi50-001 better --id 99
}

@test "what stands in the way is named with what takes it away; what is waited for and unknown is lost; a name that never was may be added" {
  farm_up --nodes mi50:2 --nominal mi50=1
  sluice move mi50-001 --to async --when now+1h 2>/dev/null
  for line in "node retire mi50-001 old" "move mi50-001 --to async" "move mi50-001 --to online"; do
    run -4 --separate-stderr eval "sluice $line"
    [[ $stderr == *"mi50-001: is to move to async at 20"*"(move 1 of "*"); 'sluice move --cancel 1' takes that back" ]] || { echo "$line: $stderr"; false; }
  done
  sluice move --cancel 1
  # beside its name a node's sentence does not name it again
  run -8 --separate-stderr sluice move @all --to async --keep-going --dry-run
  [ "$stderr" = "mi50-002: pool online would have 0 usable nodes, its min_good is 1" ]
  for what in job run move; do
    run -12 sluice wait $what 4711
    [[ $output == *"$what 4711: is not known here"* ]]
  done
  run -0 sluice node add mi50-009 --class mi50
  [[ $output == "mi50-009: added to online as mi50; no worker of that name was here yet" ]]
  is '.nodes[] | select(.name == "mi50-009") | [.added, .state, .contact] | map(tostring) | join(" ")' "true down never" sluice nodes
}

# asked PID: that client has its question at sluiced and sleeps.
asked() { [[ $(awk '/^State/ { print $2 }' "/proc/$1/status") == S ]] && compgen -G "/proc/$1/fd/*" >/dev/null && readlink /proc/"$1"/fd/* | grep -q socket; }

@test "the time of a wait holds also when sluiced dies meanwhile; one that comes back is waited for" {
  farm_up --nodes mi50:1 --nominal mi50=1
  run=$(sluice run start --workflow none)
  pid=$(json '.status[0].pid' sluice status)
  started=$(date +%s%N)
  sluice wait run "$run" --timeout 3s >"$FARM/short.out" 2>&1 3>&- & short=$!
  sluice wait run "$run" --timeout 60s >"$FARM/long.out" 2>&1 3>&- & long=$!
  wait_until 10 asked "$short"
  wait_until 10 asked "$long"
  kill -KILL "$pid"
  rc=0; wait "$short" || rc=$?
  [ "$rc" -eq 7 ]
  grep -F "run $run: not over within 3 s" "$FARM/short.out"
  [ $((($(date +%s%N) - started) / 1000000)) -lt 5000 ]
  farm_up >/dev/null
  sluice run stop "$run" >/dev/null
  wait "$long"
}

@test "a move whose deadline comes before its time is refused, and nothing is planned" {
  farm_up --nodes mi50:1
  run sluice move mi50-001 --to async --when now+60s --deadline 30s
  [ "$status" -eq 2 ]
  [[ $output == *"the deadline of the move comes before its time"* ]]
  is '.moves | length' 0 sluice moves
}
