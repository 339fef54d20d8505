#!/usr/bin/env bats
# What a job may be made of, what is refused before it is one, and what people are told of it afterwards.
load ../lib

setup() { farm_setup; }
teardown() { farm_teardown; }

async_farm() {
  farm_up --nodes mi50:2 --nominal mi50="${1:-50}"
  sluice move mi50-001 --to async --wait --timeout 20s
}

# refused STATUS TEXT COMMAND...: it ends with that status and says that on stderr, and there is no new job or run.
refused() {
  local want=$1 text=$2 jobs runs
  shift 2
  jobs=$(json '.jobs | length' sluice jobs --all) runs=$(json '.runs | length' sluice runs --all)
  run --separate-stderr "$@"
  [[ $status -eq $want && $stderr == *"$text"* ]] || { echo "status $status instead of $want: $stderr"; return 1; }
  [[ $(json '.jobs | length' sluice jobs --all) == "$jobs" && $(json '.runs | length' sluice runs --all) == "$runs" ]]
}

@test "folders, lists and rubbish: every TF of every file once, bad ones named, counted, exit status 10" {
  async_farm
  mkdir -p "$FARM/in/deep/er" "$FARM/in/.hidden" "$FARM/none"
  cp "$(sample 2)" "$FARM/in/a.tf"; cp "$(sample 2)" "$FARM/in/deep/er/b.tf"; cp "$(sample 2)" "$FARM/in/.hidden/no.tf"; echo no >"$FARM/in/notes.txt"
  [ "$(json '.jobs[0] | [.tasks, .skipped] | join(" ")' sluice submit "$FARM/in" --workflow none)" = "2 0" ]
  run --separate-stderr sluice submit "$FARM/in" --workflow none
  [[ $status -eq 0 && $stderr == *"passed over: 1 folder whose name begins with a dot"* ]]
  # nothing that a folder has is left out in silence: links to folders (in circles, too), links to nowhere, files with a dot
  mkdir "$FARM/links" "$FARM/else"; cp "$(sample 2)" "$FARM/else/d.tf"
  ln -s ../in/deep "$FARM/links/run1"; ln -s ../else "$FARM/links/run2.tf"; ln -s ../links "$FARM/else/back"; ln -s ../else "$FARM/links/again"
  [ "$(json '.jobs[0] | [.tasks, .skipped] | join(" ")' sluice submit "$FARM/links" --workflow none)" = "2 0" ]
  ln -s ../gone "$FARM/links/run3"; cp "$(sample 2)" "$FARM/links/.x.tf"; cp "$(sample 2)" "$FARM/links/.tf"
  run --separate-stderr sluice submit "$FARM/links" --workflow none
  [ "$status" -eq 10 ]
  for bad in run3 .x.tf .tf; do [[ $stderr == *"skipped $FARM/links/$bad: "* ]]; done
  [[ $stderr == *"skipped in all: 3 of 5 files"* ]]
  # named twice, in another way, from a list with CRLF, comments and empty lines: taken once
  printf '# a list\r\n\r\n%s\r\n%s\n%s' "$FARM/in/a.tf" "$FARM/in" "$FARM/in/a.tf" >"$FARM/list"
  run --separate-stderr sluice submit --input - --workflow none <"$FARM/list"
  [ "$status" -eq 0 ]
  [[ $stderr == *"named more than once and taken once: 2 files"* && $stderr == *"passed over: 1 comment line of the list"* ]]
  is '.jobs[0].tasks' 2 sluice job show "$output"
  # a name that begins with #: as it is among the arguments, ./# in a list
  cp "$(sample 2)" "$FARM/in/#x.tf"
  printf '#x.tf\n# no\n./#x.tf\n' >"$FARM/list"
  run --separate-stderr bash -c 'cd "$1" && sluice submit --input "$2" --workflow none' - "$FARM/in" "$FARM/list"
  [ "$status" -eq 0 ]
  [[ $stderr == *"passed over: 2 comment lines of the list (a name that begins with # is ./#NAME there)"* ]]
  is '.tasks[0].input' "$FARM/in/#x.tf" sluice job tfs "$output"
  id=$(cd "$FARM/in" && sluice submit "#x.tf" --workflow none)
  is '.tasks | length' 1 sluice job tfs "$id"
  rm "$FARM/in/#x.tf"
  # the same folder by other names: once; a link of another name in it is an input of its own
  ln -s in "$FARM/alias"; ln -s a.tf "$FARM/in/z.tf"
  cd "$FARM"
  run --separate-stderr sluice submit "$FARM/in" "$FARM/alias" in//a.tf in/./a.tf in/deep/../a.tf "$FARM/alias/deep/er" --workflow none
  [ "$status" -eq 0 ]
  [[ $stderr == *"named more than once and taken once: 7 files"* ]]
  is '.jobs[0].tasks' 3 sluice job show "$output"
  rm "$FARM/in/z.tf" "$FARM/alias"
  # a FIFO, a folder without files, something that is none, an empty one, what is not there
  mkfifo "$FARM/fifo.tf"; head -c 5000 /dev/urandom >"$FARM/rubbish.tf"; : >"$FARM/empty.tf"
  run --separate-stderr sluice submit "$FARM/in/a.tf" "$FARM/fifo.tf" "$FARM/none" "$FARM/rubbish.tf" "$FARM/empty.tf" "$FARM/gone.tf" --workflow none
  [ "$status" -eq 10 ]
  id=$output
  for bad in fifo.tf none rubbish.tf empty.tf gone.tf; do [[ $stderr == *"skipped $FARM/$bad: "* ]]; done
  [[ $stderr == *"skipped in all: 5 of 6 files"* ]]
  run sluice wait job "$id" --timeout 30s
  [ "$status" -eq 10 ]
  is '.jobs[0] | [.tasks, .done, .skipped] | join(" ")' "1 1 5" sluice job show "$id"
  [ "$(json '.tasks | length' sluice job tfs "$id" -t skipped)" -eq 5 ]
  json '.tasks[] | select(.input | endswith("fifo.tf")).text' sluice job tfs "$id" -t skipped | grep -q FIFO
  refused 1 "at most 4 may be (--max-bad)" sluice submit "$FARM/in/a.tf" "$FARM/fifo.tf" "$FARM/none" "$FARM/rubbish.tf" "$FARM/empty.tf" "$FARM/gone.tf" --max-bad 4
  refused 1 "no time-frame in any" sluice submit "$FARM/rubbish.tf" "$FARM/none"
  refused 3 "No such file" sluice submit "$FARM/gone.tf"
  refused 2 "without zero bytes" sluice submit --input /dev/zero
  refused 2 "a folder, or --input" sluice submit
  refused 2 'no job of yours has the key "never"; for a new one a file' sluice submit --key never
  refused 2 "PATH... is empty" sluice submit ""
  # one line that cannot even be told does not stop the others
  { echo "$FARM/in/a.tf"; printf '%s/\xff\xfe.tf\n' "$FARM"; printf 'x%.0s' {1..5000}; echo; echo "../../../nowhere/../x.tf"; } >"$FARM/list"
  run --separate-stderr sluice submit --input "$FARM/list" --workflow none
  [ "$status" -eq 10 ]
  [[ $stderr == *'\xFF\xFE.tf: its name is not UTF-8'* && $stderr == *"longer than 4000 bytes"* ]]
  is '.jobs[0] | [.tasks, .skipped] | join(" ")' "1 3" sluice job show "$output"
}

@test "what cannot work is refused at submit and at run start, with the file and what was wanted, and nothing is left of it" {
  async_farm
  f=$(sample 2)
  : >"$FARM/file"; mkdir "$FARM/closed"; chmod 500 "$FARM/closed"
  for out in /proc/x "$FARM/file" "$FARM/file/below"; do
    refused 4 "output folder $out" sluice submit "$f" --output "$out"
    refused 4 "output folder $out" sluice run start --output "$out"
  done
  refused 3 "nosuch" sluice submit "$f" --workflow nosuch
  refused 2 "its stages are decode" sluice submit "$f" --backend nosuch=cpu
  refused 2 "" sluice submit "$f" --set decode.nosuch=1
  refused 4 "workflow decode is to run on hip, which no class that is allowed can have: mi50 (emulated) has cpu" sluice submit "$f" --backend hip
  refused 4 "mi50 (emulated) has cpu" sluice submit "$f" --workflow cluster --backend decode=cpu,cluster=gpu --class mi50
  refused 4 "mi50 (emulated) has cpu" sluice run start --backend cuda
  refused 3 "class 'mi300'" sluice submit "$f" --class mi300
  refused 2 "" sluice submit "$f" --begin yesterday
  refused 2 "ok:ID, any:ID or notok:ID" sluice submit "$f" --after 1
  refused 3 "no job 77" sluice submit "$f" --after ok:77
  [ ! -e "$FARM/file/below" ]
  sluice submit "$f" --output "$FARM/fresh/folder" --wait --quiet
  [ -z "$(find "$FARM/fresh" -name '.sluice-check*')" ]
}

@test "roots are held against where symbolic links lead, at submit and by the worker" {
  farm_up --nodes mi50:2 >/dev/null
  sluice down --dir "$FARM/farm"
  mkdir -p "$FARM/data" "$FARM/results" "$FARM/elsewhere"
  cp "$(sample 2)" "$FARM/data/a.tf"; cp "$(sample 2)" "$FARM/elsewhere/b.tf"
  ln -s "$FARM/elsewhere/b.tf" "$FARM/data/link.tf"; ln -s "$FARM/elsewhere" "$FARM/results/link"
  printf 'roots_input = { "%s" }\nroots_output = { "%s" }\n' "$FARM/data" "$FARM/results" >>"$FARM/farm/sluice.conf"
  farm_up --nodes mi50:2
  sluice move mi50-001 --to async --wait --timeout 20s
  refused 5 "leads to" sluice submit "$FARM/data/link.tf" --output "$FARM/results"
  refused 5 "below none of the configured roots" sluice submit "$FARM/elsewhere/b.tf" --output "$FARM/results"
  refused 5 "below none of the configured roots" sluice submit "$FARM/data/a.tf" --output "$FARM/elsewhere"
  refused 5 "leads to" sluice submit "$FARM/data/a.tf" --output "$FARM/results/link"
  refused 5 "leads to" sluice submit "$FARM/data/a.tf" --output "$FARM/results/link/deep/er"
  [ "$(ls "$FARM/elsewhere")" = b.tf ]                           # what is refused has made nothing there
  id=$(sluice submit "$FARM/data/a.tf" --output "$FARM/results/own" --hold)
  rmdir "$FARM/results/own"; ln -s "$FARM/elsewhere" "$FARM/results/own"
  sluice job release "$id"
  run sluice wait job "$id" --timeout 30s
  [ "$status" -eq 10 ]
  is '.tasks[0].code' OutputDenied sluice job tfs "$id"
  json '.tasks[0].text' sluice job tfs "$id" | grep -q 'leads to'
  [ "$(ls "$FARM/elsewhere")" = b.tf ]
  # nor is a node to blame for what its owner may not
  is '[.nodes[] | .marks[]] | length' 0 sluice nodes
  is '[.nodes[] | .why[] | select(. == "Cooldown")] | length' 0 sluice nodes
  id=$(sluice submit "$FARM/data/a.tf" --output "$FARM/results" --hold)
  ln -sf "$FARM/elsewhere/b.tf" "$FARM/data/a.tf"                # changed behind our back
  sluice job release "$id"
  run sluice wait job "$id" --timeout 30s
  [ "$status" -eq 10 ]
  is '.tasks[0].code' InputDenied sluice job tfs "$id"
  json '.tasks[0].text' sluice job tfs "$id" | grep -q 'leads to'
}

@test "why says what a job, a TF and a node wait for; logs tell of every try; a rerun keeps both" {
  async_farm
  f=$(sample 2)
  held=$(sluice submit "$f" --workflow none --hold)
  later=$(sluice submit "$f" --workflow none --begin now+1h)
  after=$(sluice submit "$f" --workflow none --after "ok:$held")
  has() { json '.why[].code' sluice why "$1" | grep -qx "$2" || { sluice why "$1"; return 1; }; }
  run --separate-stderr sluice wait job "$held" --timeout 1s
  [[ $status -eq 7 && $stderr == *"job $held: is not over yet, it waits: Held"* ]]
  has "$held" Held; has "$later" BeginTime; has "$after" DependencyNotDone
  is '.jobs[0].why' DependencyNotDone sluice job show "$after"
  [ "$(json '.jobs[0] | [.after, .key] | tojson' sluice job show "$after")" = "[\"ok:$held\",null]" ]
  sluice job release "$held"
  sluice wait job "$after" --timeout 30s
  sluice mark mi50-001 "fan is loud"
  id=$(sluice submit "$f" --output "$FARM/out")
  has "$id" MarkedByOperator; has "$id" OtherPool; has "${id}_0" MarkedByOperator; has mi50-001 MarkedByOperator
  json '.why[] | select(.code == "Mark").text' sluice why mi50-001 | grep -q 'fan is loud'
  json '.why[] | select(.code == "MarkedByOperator") | [.count, .nodes[0]] | join(" ")' sluice why "$id" | grep -qx '1 mi50-001'
  sluice clear mi50-001 "fan replaced" >/dev/null
  sluice wait job "$id" --timeout 30s
  has "$id" Done; has "${id}_0" Done
  # a result tells by itself what it was made of, and for whom
  json=$(echo "$FARM"/out/*.0.digits.json)
  [ "$(jq -r '[.input, .input_offset, .owner] | join(" ")' "$json")" = "$f 0 $(id -un)" ]
  # names too long for results are shortened, each to one of its own; what refuses others is told whole
  long=$(printf 'n%.0s' {1..200})
  cp "$f" "$FARM/${long}a.tf"; cp "$f" "$FARM/${long}b.tf"
  first=$(sluice submit "$FARM/${long}a.tf" --output "$FARM/long" --hold)
  other=$(sluice submit "$FARM/${long}b.tf" --output "$FARM/long")
  run --separate-stderr sluice submit "$FARM/${long}a.tf" --output "$FARM/long"
  [[ $status -eq 4 && $stderr == *"job $first is on and delivers results of the name nnnn"*"another --output is wanted"* ]]
  sluice job release "$first"
  sluice wait job "$first" --timeout 30s
  sluice wait job "$other" --timeout 30s
  [ "$(ls "$FARM/long"/*.digits | wc -l)" -eq 2 ]
  run --separate-stderr sluice submit "$FARM/${long}a.tf" --output "$FARM/long"
  [[ $status -eq 4 && $stderr == *"nnnn"*".digits"*" is there already: results are never put over other files" ]]
  run --separate-stderr sluice why "${id}_9"; [ "$status" -eq 3 ]
  run --separate-stderr sluice why 9x; [ "$status" -eq 2 ]
  (cd "$FARM/out" && find . -type f | sort | xargs md5sum) >"$FARM/before"
  sluice job rerun "$id"
  sluice wait job "$id" --timeout 30s
  (cd "$FARM/out" && md5sum --quiet -c "$FARM/before")
  cmp "$FARM"/out/*.digits "$FARM"/out/rerun-1/*.digits
  [ "$(json '[.attempts[] | .id, .state] | join(" ")' sluice logs "${id}_0")" = "${id}_0.1 done ${id}_0.2 done" ]
  is '.attempts[0].output' "$FARM/out/$(basename "$f" .tf).0" sluice logs "${id}_0.1"
  run --separate-stderr sluice logs "${id}_0.3"; [ "$status" -eq 3 ]
  is '.logs | length' 3 sluice logs --node mi50-001 --lines 3
  is '.hostlists[0] | [.list, .count] | join(" ")' 'n[1-3] 3' sluice hostlist fold n1 n2 n3
  is '[.hosts[].name] | join(" ")' 'n1 n2 n3' sluice hostlist unfold 'n[1-3]'
  sluice job cancel "$later"
  sluice check
}

@test "a job that runs tells its rate and how long it will take; of one that does not move it tells neither" {
  async_farm 200
  for ((i = 0; i < 40; i++)); do ln -s "$(sample 2)" "$FARM/in-$i.tf"; done
  held=$(sluice submit "$FARM"/in-*.tf --workflow decode --hold)
  is '.jobs[0] | [.rate, .remaining] | tojson' '[null,null]' sluice job show "$held"
  sluice job release "$held"
  wait_until 20 eval '[ "$(json ".jobs[0].rate != null and .jobs[0].done >= 10" sluice job show '"$held"')" = true ]'
  # 200 ms a TF on one device: 5 a second; 30 of them about 6 s
  json '.jobs[0] | .rate > 1 and .rate < 7 and (.remaining - (.waiting + .running) / .rate | fabs) < 0.5' sluice job show "$held" | grep -qx true
  sluice job cancel "$held"
  is '.jobs[0] | [.rate, .remaining] | tojson' '[null,null]' sluice job show "$held"
}

@test "somebody removes files of tries and moves the output folder in mid-job: what is done has its whole result, nothing else has a final name" {
  async_farm 200
  mkdir "$FARM/in"
  for i in $(seq 30); do ln -s "$(sample 2)" "$FARM/in/f$i.tf"; done
  id=$(sluice submit "$FARM/in" --output "$FARM/out")
  n=0 deadline=$((SECONDS + 60))
  until ended=$(json '.jobs[0].ended // empty' sluice job show "$id"); [ -n "$ended" ] || ((SECONDS > deadline)); do
    for _ in 1 2 3 4 5 6 7 8; do rm -f "$FARM"/out/*.digits.a[0-9]*; done
    mv "$FARM/out" "$FARM/old$((n++))" || true
  done
  [ -n "$ended" ]
  is '.jobs[0] | .done + .failed' 30 sluice job show "$id"
  sluice job tfs "$id" --json | jq -r '.tasks[] | select(.state == "done") | .input' >"$FARM/done"
  while read -r input; do
    found=0
    for f in "$FARM"/out/"$(basename "$input" .tf)".0.digits "$FARM"/old*/"$(basename "$input" .tf)".0.digits; do
      if [ -e "$f" ]; then [ -s "$f.json" ]; found=$((found + 1)); fi
    done
    [ "$found" -eq 1 ] || { echo "$input: done, and $found results"; false; }
  done <"$FARM/done"
  for f in "$FARM"/out/*.json "$FARM"/old*/*.json; do [ ! -e "$f" ] || [ -e "${f%.json}" ]; done
  # what failed of it was tried as often as it may be, and can be had with a rerun
  if json '.tasks[].attempt' sluice job tfs "$id" -t failed | grep -qvx 3; then sluice job tfs "$id" -t failed; false; fi
  if [ "$(json '.jobs[0].failed' sluice job show "$id")" -gt 0 ]; then sluice job rerun "$id" --failed; fi
  sluice wait job "$id" --timeout 60s
  is '.jobs[0].done' 30 sluice job show "$id"
  sluice check
}

@test "B24 a worker is killed, half of a result is on its disk: only whole results are seen, both tries are kept, the job is not failed" {
  farm_up --nodes mi50:2 --nominal mi50=1500
  sluice move mi50-001 --to async --wait --timeout 20s
  f=$(sample 2)
  sluice submit "$f" --output "$FARM/whole" --wait --quiet
  whole=("$FARM"/whole/*.digits)
  id=$(sluice submit "$f" --output "$FARM/out")
  wait_until 20 is '.tasks[0].state' running sluice job tfs "$id"
  kill -9 "$(jq -r .pid "$FARM/farm/run/mi50-001/status.json")"
  [ -z "$(find "$FARM/out" -type f)" ]
  # as far as it had come: the try's own name, and half of the bytes
  half=$FARM/out/$(basename "${whole[0]}").a1-1-j$id
  head -c $(($(stat -c %s "${whole[0]}") / 2)) "${whole[0]}" >"$half"
  farm_up
  sluice wait job "$id" --timeout 60s
  cmp "${whole[0]}" "$FARM"/out/*.digits
  is '.jobs[0] | [.state, .done, .failed] | join(" ")' 'done 1 0' sluice job show "$id"
  [ "$(json '[.attempts[] | .id, .state] | join(" ")' sluice logs "${id}_0")" = "${id}_0.1 failed ${id}_0.2 done" ]
  is '.attempts[0].code' NodeLost sluice logs "${id}_0.1"
  [ "$(find "$FARM/out" -name '*.digits' | wc -l)" -eq 1 ]
  wait_until 10 test ! -e "$half"
  sluice check
}

@test "a worker is killed and never comes back, the job is cancelled: another node removes what lies there half, also after a restart; results stay" {
  farm_up --nodes mi50:3 --nominal mi50=1500
  sluice move mi50-001,mi50-002 --to async --wait --timeout 20s
  f=$(sample 2)
  mkdir "$FARM/in"; cp "$f" "$FARM/in/first.tf"
  kept=$(sluice submit "$FARM/in/first.tf" --output "$FARM/out" --wait --quiet)
  cp "$FARM"/out/first.0.digits "$FARM/whole"
  for i in 1 2 3 4; do cp "$f" "$FARM/in/more-$i.tf"; done
  id=$(sluice submit "$FARM"/in/more-*.tf --output "$FARM/out")
  wait_until 20 eval '[ -n "$(json ".tasks[] | select(.state == \"running\" and .node == \"mi50-001\") | .id" sluice job tfs '"$id"')" ]'
  kill -9 "$(jq -r .pid "$FARM/farm/run/mi50-001/status.json")"
  for name in more-1.0.digits.a1-1 more-2.0.digits.json.a1-2; do head -c 1000 "$FARM/whole" >"$FARM/out/$name-j$id"; done
  head -c 1000 "$FARM/whole" >"$FARM/out/more-1.0.digits.a1-1-j$((id + 1))"
  wait_until 20 is '.nodes[] | select(.name == "mi50-001") | .state' down sluice nodes
  sluice job cancel "$id" "wrong list"
  run sluice wait job "$id" --timeout 60s
  [ "$status" -eq 11 ]
  wait_until 30 eval '[ -z "$(find "$FARM/out" -name "*-j'"$id"'")" ]'
  [ -e "$FARM/out/more-1.0.digits.a1-1-j$((id + 1))" ]           # of another job
  cmp "$FARM/whole" "$FARM/out/first.0.digits"
  # who could do it is away: it is done when there is somebody
  id=$(sluice submit "$FARM"/in/more-*.tf --output "$FARM/out2")
  wait_until 20 eval '[ -n "$(json ".tasks[] | select(.state == \"running\" and .node == \"mi50-002\") | .id" sluice job tfs '"$id"')" ]'
  kill -9 "$(jq -r .pid "$FARM/farm/run/mi50-002/status.json")" "$(jq -r .pid "$FARM/farm/run/mi50-003/status.json")"
  head -c 1000 "$FARM/whole" >"$FARM/out2/more-3.0.digits.a1-1-j$id"
  wait_until 20 is '[.nodes[].state] | unique | join(" ")' down sluice nodes
  sluice job cancel "$id"
  run sluice wait job "$id" --timeout 60s
  [ "$status" -eq 11 ]
  kill -9 "$(json '.status[0].pid' sluice status)"
  farm_up
  wait_until 30 eval '[ -z "$(find "$FARM/out2" -name "*-j'"$id"'")" ]'
  sluice check
}

@test "names of results never collide: refused at submit while it can be seen, else the TF fails; nothing is done without a result of its own" {
  async_farm 300
  mkdir "$FARM/a" "$FARM/b"; cp "$(sample 2)" "$FARM/a/x.tf"; cp "$(sample 2)" "$FARM/b/x.tf"; cp "$(sample 2)" "$FARM/b/y.tf"
  first=$(sluice submit "$FARM/a/x.tf" --output "$FARM/out" --hold)
  refused 4 "job $first is on and delivers results of the name x into that folder" sluice submit "$FARM/b/x.tf" --output "$FARM/out"
  # so it is when one came to that folder by another path, also after a restart
  ln -s out "$FARM/alias"; mkdir -p "$FARM/deep"; ln -s ../alias "$FARM/deep/alias"
  refused 4 "job $first is on and delivers results of the name x into that folder" sluice submit "$FARM/b/x.tf" --output "$FARM/alias"
  sluice down --dir "$FARM/farm"; farm_up
  for out in "$FARM/deep/alias" "$FARM//deep/../out/./" "$FARM/out/"; do
    refused 4 "job $first is on and delivers results of the name x into that folder" sluice submit "$FARM/b/x.tf" --output "$out"
  done
  # what leads there only later cannot be seen: the second to be done fails
  second=$(sluice submit "$FARM/b/x.tf" --output "$FARM/later" --hold)
  rmdir "$FARM/later"; ln -s out "$FARM/later"
  sluice job release "$first"
  sluice wait job "$first" --timeout 60s
  sluice job release "$second"
  run sluice wait job "$second" --timeout 60s
  [ "$status" -eq 10 ]
  is '.tasks[0] | [.state, .code, .attempt] | map(tostring) | join(" ")' 'failed OutputExists 1' sluice job tfs "$second"
  json '.tasks[0].text' sluice job tfs "$second" | grep -q 'x.0.digits is there already'
  is '.jobs[0].failures | map("\(.name) \(.value)") | join(" ")' 'OutputExists 1' sluice job show "$second"
  # of a job that is over the files are what counts
  refused 4 "x.0.digits" sluice submit "$FARM/b/x.tf" --output "$FARM/out"
  [ "$(jq -r '"\(.job) \(.tf)"' "$FARM/out/x.0.digits.json")" = "$first 0" ]
  mkdir "$FARM/kept"; mv "$FARM"/out/x.* "$FARM/kept"
  sluice job rerun "$second" --failed
  sluice wait job "$second" --timeout 60s
  cmp "$FARM/kept/x.0.digits" "$FARM/out/x.0.digits"
  # a rerun of all has a folder of its own, which somebody else may have named as his, or filled
  held=$(sluice submit "$FARM/a/x.tf" --output "$FARM/alias/rerun-1" --hold)
  refused 4 "job $held is on and delivers results of the name x into that folder, too: its end is to be waited for" sluice job rerun "$first"
  sluice job cancel "$held"
  echo precious >"$FARM/out/rerun-1/x.0.digits"
  sluice job rerun "$second"
  run sluice wait job "$second" --timeout 60s
  [ "$status" -eq 10 ]
  is '.tasks[0].code' OutputExists sluice job tfs "$second"
  [ "$(cat "$FARM/out/rerun-1/x.0.digits")" = precious ]
  # a run's results and a foreign file: that TF has failed
  run=$(sluice run start --output "$FARM/runs" --policy buffer)
  mkdir -p "$FARM/runs/$run"; for i in {0..9}; do echo precious >"$FARM/runs/$run/tf-$i.digits"; done
  sluice replay "$FARM/b/y.tf" --run "$run" || true
  sluice run stop "$run" || true
  is '.runs[0] | [.done, .failed] | map(tostring) | join(" ")' '0 1' sluice run show "$run"
  json '.runs[0].text' sluice run show "$run" | grep -q OutputExists
  [ "$(cat "$FARM"/runs/"$run"/* | sort -u)" = precious ]
  [ -z "$(find "$FARM" -name '*.a[0-9]*-*')" ]
  sluice check
}
