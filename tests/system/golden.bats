#!/usr/bin/env bats
# The shapes of JSON documents: names and types of every field, held against the files of tests/golden. Within a version of a schema fields are only added.
#
# A file there is the document with each value replaced by its type; "null" was never seen with a value. SLUICE_GOLDEN=write writes them anew: look at the difference.
load ../lib

setup() { farm_setup; }
teardown() { farm_teardown; }

SHAPE='
  def merge($a; $b): if ($a | type) == "object" and ($b | type) == "object" then reduce ($b | keys[]) as $k ($a; .[$k] = merge($a[$k]; $b[$k]))
    elif ($a | type) == "array" and ($b | type) == "array" then [merge($a[0]; $b[0]) | select(. != null)]
    elif $a == null or $a == "null" then $b else $a end;
  def shape: if type == "object" then map_values(shape) elif type == "array" then (reduce (.[] | shape) as $s (null; merge(.; $s))) as $all | [$all | select(. != null)] else type end;
  # what is wrong with a document, by path
  def wrong($g; $at): if type == "null" then empty elif ($g | type) == "object" then
      (if type != "object" then "\($at): \(type) instead of an object" else . as $d | ($g | keys[]) as $k
        | if $d | has($k) then $d[$k] | wrong($g[$k]; "\($at).\($k)") else "\($at).\($k): is gone" end end)
    elif ($g | type) == "array" then
      (if type != "array" then "\($at): \(type) instead of a list" elif ($g | length) == 0 then empty else .[] | wrong($g[0]; "\($at)[]") end)
    elif $g == "null" or type == $g then empty else "\($at): \(type) instead of \($g)" end;'

# numbered FILE: the document says at which event it was made, and nothing that is not known is written as a value.
numbered() { jq -e '.meta.seq | type == "number"' "$1" >/dev/null || { echo "$1: meta.seq is $(jq .meta.seq "$1")"; return 1; }; }

# golden NAME COMMAND...: what the command says with --json fits the file.
golden() {
  local name=$1 file=$SLUICE_SRCDIR/tests/golden/$1.json
  shift
  "$@" --json >"$FARM/$name.json" || [[ $? -eq 8 ]]
  [[ $1 == fake || $2 == hostlist || "$2 $3" == "shm clean" ]] || numbered "$FARM/$name.json"
  if [[ ${SLUICE_GOLDEN:-} == write ]]; then
    jq -S "$SHAPE"' (.schema | tojson) as $s | shape | .schema = ($s | fromjson)' "$FARM/$name.json" >"$file"
    return
  fi
  jq -en --slurpfile doc "$FARM/$name.json" --slurpfile gold "$file" '$doc[0].schema == $gold[0].schema' >/dev/null ||
    { echo "$name: another schema or version: $(jq -c .schema "$FARM/$name.json")"; return 1; }
  # the file says what the version stands for; values of the schema were compared
  jq -r --slurpfile gold "$file" "$SHAPE"' wrong(($gold[0] | .schema = {name: "string", version: "number"}); "")' "$FARM/$name.json" >"$FARM/$name.wrong"
  [[ ! -s $FARM/$name.wrong ]] || { echo "$name:"; cat "$FARM/$name.wrong"; return 1; }
}

@test "B56 the documents of nodes, marks, moves, history, health, status, runs and jobs keep their names, types and versions" {
  farm_up --nodes mi50:3 --nominal mi50=20 >/dev/null
  serial=$(sluice nodes --json | jq -r '.nodes[0].devices[0].serial')
  sluice run start --workflow none --name shapes >"$FARM/run"
  golden replay sluice replay "$(sample 2)" --run "$(cat "$FARM/run")" --loop 4
  crash_is_there() { kill -KILL "$(sluice nodes --json | jq '.nodes[2].devices[0].pid')"; sluice crash list --json | jq -e '.crashes | length > 0'; }
  sluice replay "$(sample 2)" --workflow cluster --loop 100000 --name crashing >/dev/null 2>&1 3>&- &
  STARTED+=($!)
  wait_until 30 crash_is_there
  golden crashes sluice crash list
  sluice run stop "$(sluice runs --json | jq '.runs[] | select(.name == "crashing") | .id')" --data-timeout 1s >/dev/null
  [ "$(sluice watch --from 1 --jsonl | head -n 1 | jq -c 'keys')" = '["after","before","node","reason","seq","time","what","who"]' ]
  golden results sluice mark mi50-001 "ECC errors" --class hw --until now+1h
  sluice mark mi50-001 "its fan" --gpu "$serial" --class hw >/dev/null
  sluice move mi50-002 --to async --when now+1h --deadline now+2h >/dev/null
  golden moves sluice moves
  # a process that dies: health has something to tell; no usable node online: an alarm
  kill -KILL "$(sluice nodes --json | jq '.nodes[2].devices[0].pid')"
  sluice mark mi50-[002-003] "for the alarm" >/dev/null
  wait_until 20 is '.health[0].nodes | length' 1 sluice health
  wait_until 20 is '.status[0].alarms | length > 0' true sluice status
  golden nodes sluice nodes
  golden node-show sluice node show mi50-001
  golden node-history sluice node history mi50-001
  golden health sluice health
  golden status sluice status
  golden runs sluice runs --all
  golden run-tfs sluice run tfs "$(cat "$FARM/run")" --settled
  sluice clear mi50-[002-003] "enough" >/dev/null
  sluice move --cancel 1 >/dev/null
  sluice move mi50-002 --to async --wait --timeout 20s >/dev/null
  sluice submit "$(sample 2)" --workflow none >"$FARM/job"
  golden waits sluice wait job "$(cat "$FARM/job")" --timeout 30s
  golden jobs sluice jobs --all
  golden job-tfs sluice job tfs "$(cat "$FARM/job")"
  golden shm sluice shm
  golden buffers sluice shm clean --dry-run --dir "$(cat "$FARM/farm/shm-dir")"
  golden check sluice check
  golden why sluice why mi50-001
  golden why-job sluice why "$(cat "$FARM/job")"
  golden attempts sluice logs "$(cat "$FARM/job")_0"
  golden logs sluice logs --node mi50-001
  golden hostlists sluice hostlist fold n1 n2
  golden hosts sluice hostlist unfold 'n[1-2]'
  golden ping sluice ping
  golden config sluice config show --running
  golden crashes sluice crash list
  golden started sluice run start --workflow none
  golden submitted sluice submit "$(sample 2)" --workflow none
  golden waited sluice wait job "$(cat "$FARM/job")"
  is .meta.seq null sluice hostlist count n1
  is .meta.seq null sluice tf info "$(sample 2)"
  sluice dump | jq -se '[.[] | select(.kind == "config") | (.text | length > 0) and (has("seq") | not)] == [true]'
}

@test "B56 the comparison sees a field that is gone, another type and another version" {
  [[ ${SLUICE_GOLDEN:-} != write ]] || skip "the files are being written"
  farm_up --nodes mi50:1 >/dev/null
  sluice mark mi50-001 x >/dev/null
  fake() { jq "$CHANGE" <(sluice nodes --json); }
  CHANGE=.; golden nodes fake
  CHANGE='del(.nodes[0].marks[0].reason)'; run golden nodes fake
  [ "$status" -ne 0 ]; [[ $output == *".nodes[].marks[].reason: is gone"* ]]
  CHANGE='.nodes[0].tfs = "3"'; run golden nodes fake
  [ "$status" -ne 0 ]; [[ $output == *".nodes[].tfs: string instead of number"* ]]
  CHANGE='.schema.version = 2'; run golden nodes fake
  [ "$status" -ne 0 ]; [[ $output == *"another schema or version"* ]]
  CHANGE='.nodes[0].new = 1'; golden nodes fake
}

@test "B56 a version of the schema can be asked for; one that is not known is refused before anything is done" {
  farm_up --nodes mi50:1 >/dev/null
  [ "$(sluice nodes --json --schema 1 | jq -c .schema)" = '{"name":"nodes","version":1}' ]
  [ "$(sluice nodes --json --schema 1 | jq -cS 'del(.meta) | [paths | map(select(type == "string"))] | unique')" = "$(sluice nodes --json | jq -cS 'del(.meta) | [paths | map(select(type == "string"))] | unique')" ]
  sluice nodes --jsonl --schema 1 | jq -e .name
  for version in 2 99; do
    run sluice mark mi50-001 "not to be" --json --schema $version
    [ "$status" -eq 9 ]; [[ $output == *"--schema $version: this sluice knows the versions 1 to 1"* ]]
  done
  for version in 0 -1 one 1.5 ""; do
    run sluice mark mi50-001 "not to be" --json --schema "$version"
    [ "$status" -eq 2 ]
  done
  run sluice nodes --schema 1
  [ "$status" -eq 2 ]; [[ $output == *"--json or --jsonl is wanted"* ]]
  is '.nodes[0].marks | length' 0 sluice nodes
}
