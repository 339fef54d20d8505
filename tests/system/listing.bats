#!/usr/bin/env bats
# What people read: nodes in groups, one node on a page, the state of it all with what to do.
load ../lib
load ../rig

setup() { rig_setup; daemon; nodes_add 'n[01-12]'; workers 8 --width 2 --devices 8; }
teardown() { farm_teardown; }

lines() { sluice nodes --parsable -h "$@"; }

@test "nodes of equal pool, state and reason stand on one line, folded; each option of nodes picks its own" {
  sluice mark n02,n07 "fan is loud" >/dev/null
  sluice mark n03 "disk" >/dev/null
  sluice move n08 --to async --wait --timeout 20s
  diff <(lines | cut -d'|' -f1,2,4-6 | sort) - <<'END'
async|idle|1|n08|
online|bad|1|n03|disk
online|bad|2|n[02,07]|fan is loud
online|down|4|n[09-12]|NeverRegistered
online|idle|4|n[01,04-06]|
END
  [ "$(lines -N -o name | paste -sd' ')" = "n01 n02 n03 n04 n05 n06 n07 n08 n09 n10 n11 n12" ]
  [ "$(lines -N -o name -p async)" = n08 ]
  [ "$(lines -N -o name -t bad,down | paste -sd' ')" = "n02 n03 n07 n09 n10 n11 n12" ]
  [ "$(lines -N -o name -n 'n[01-03]' -x n02 | paste -sd' ')" = "n01 n03" ]
  [ "$(lines -N -o name -x 'n[02-12]')" = n01 ]
  [ "$(lines -N -o name --class fake | wc -l)" -eq 12 ]
  [ "$(lines -R -o name,reason | paste -sd' ')" = "n02|fan is loud n03|disk n07|fan is loud" ]
  [ "$(lines -l -n n01 | tr '|' '\n' | wc -l)" -ge 18 ]
  run sluice nodes -R
  [[ $output == *OWNER*AGE*REASON* && $output == *"$(id -un)"* ]]
  run timeout 2 sluice nodes -i 0.2 -n n01 -N -h -o name
  [ "$(grep -c n01 <<<"$output")" -ge 3 ]
}

@test "node show is one page, whatever the node has, and nothing of it drives a terminal" {
  serial=$(sluice node show n01 --json | jq -r '.nodes[0].devices[3].serial')
  for i in 1 2 3; do sluice mark n01 $'loud \e[31m fan '"$i" >/dev/null; done
  sluice mark n01 "ECC errors" --gpu "$serial" --class hw --until now+2h >/dev/null
  run sluice node show n01
  [ "$status" -eq 0 ]
  [ "${#lines[@]}" -le 30 ]
  [[ ${lines[0]} == "n01 "*"bad, takes no work: "*MarkedByOperator* ]]
  [ "$(grep -c '^device ' <<<"$output")" -eq 8 ]
  [ "$(grep -c '^mark ' <<<"$output")" -eq 4 ]
  [ "$(grep -c '^event ' <<<"$output")" -eq 5 ]
  grep -q "^mark .*$serial, block hw, by $(id -un) (person), .* ago, until .*: ECC errors" <<<"$output"
  for word in pool TFs buffer class contact; do grep -q "^$word " <<<"$output"; done
  [[ $output != *$'\e'* ]]
  # the same node in the machine modes
  [ "$(sluice node show n01 --parsable -h -o name,state)" = "n01|bad" ]
  [ "$(sluice node show n01 --json | jq -c .)" != "" ]
  run sluice node show nobody
  [ "$status" -eq 3 ]
}

@test "status is one screen; each alarm says what to do" {
  printf 'pool online { min_good = 20 }\n' >>"$FARM/conf"; kill -HUP "$PID_sluiced"
  alarm_there() { sluice status | grep -q 'alarm PoolMinimum'; }
  wait_until 10 alarm_there
  run sluice status
  [ "${#lines[@]}" -le 24 ]
  [ "$(grep -c '^  alarm ' <<<"$output")" -eq "$(grep -c '^    what to do: .' <<<"$output")" ]
  [[ $output == *"pool online: 8 of 12 nodes usable, at least 20 wanted"* ]]
}

@test "B14 a mark outlives the device it is about: the machine is replaced, the mark is shown as about a part no longer present and offered for clearing; an opt-in clears those of health alone" {
  local serial=old-n12-0
  machine() { start "$1" -- "$FAKES/fake-worker" --server "unix:$SLUICE_SOCKET" --count 1 --first 12 --width 2 --machine "$1" --quiet; wait_until 10 node_is n12 '.devices[0].serial' "$1-n12-0"; }
  machine old
  sluice mark n12 "ECC on gpu0" --gpu "$serial" --class hw
  mark=$(sluice nodes -n n12 --json | jq '.nodes[0].marks[0] | {id, part, owner, reason, created, severity}')
  node_is n12 .usable false
  kill -TERM "$PID_old"; wait_until 10 ended "$PID_old"
  machine new
  # the new device works, the mark is what it was
  node_is n12 .usable true
  [ "$(sluice nodes -n n12 --json | jq --arg s "$serial" '.nodes[0].marks[] | select(.part == $s) | {id, part, owner, reason, created, severity}')" = "$mark" ]
  sluice nodes -R | grep -F "ECC on gpu0 (about a part no longer present: $serial)"
  sluice node show n12 | grep -E "^mark .*$serial.*ECC on gpu0 \\(about a part no longer present\\)"
  is '.nodes[0].marks[] | select(.part == "old-n12-0") | .part_present' false sluice node show n12
  [[ $(alarm PartGone) == *n12* ]]
  sluice status --json | jq -e '.status[0].alarms[] | select(.word == "PartGone") | .advice | test("sluice clear NODE REASON --id MARK")'
  event reboots | grep -x 1
  # kept by kill -9, cleared by a person
  daemon_kill; daemon
  wait_until 10 node_is n12 .usable true
  sluice nodes -R | grep -F "(about a part no longer present: $serial)"
  # as the configuration asks: what health noted about the machine goes, a person's mark does not
  echo 'health { clear_automatic = yes }' >>"$FARM/conf"; kill -HUP "$PID_sluiced"
  kill -TERM "$PID_new"; wait_until 10 ended "$PID_new"
  machine third
  sluice nodes -R | grep -F "(about a part no longer present: $serial)"
  wait_until 10 node_is n12 '[.marks[] | select(.owner_kind == "health" and .part_present == false)] | length' 0
  sluice clear n12 "it is another machine" --id "$(jq .id <<<"$mark")"
  no_alarm PartGone
}

# completed_names WORDS: what is offered for the last of them. A busy machine may be too slow for its 30 ms, now and then.
completed_names() {
  bash -c 'source "$0"; COMP_WORDS=(sluice '"$1"'); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); for _ in {1..40}; do _sluice; [[ ${#COMPREPLY[@]} -lt 3 ]] || break; done; echo "${COMPREPLY[@]}"' \
    "$SLUICE_BUILDDIR/etc/completion/sluice"
}

@test "a worker that never came is told from one that went; the logs of neither are there" {
  sluice why n09 | grep -F "its worker has not registered yet"
  kill -KILL "$PID_workers"; wait_until 10 ended "$PID_workers"
  wait_until 10 node_is n01 '.why | join(" ")' ContactLost
  node_is n09 '.why | join(" ")' NeverRegistered
  # who was there before sluiced was started anew is lost, not new
  daemon_kill; daemon
  node_is n01 '.why | join(" ")' ContactLost
  node_is n09 '.why | join(" ")' NeverRegistered
  for n in n01 n09 'n[01-02]'; do
    run -4 sluice logs --node "$n"
    [[ $output == *": no contact with its worker"* ]]
  done
}

@test "completion offers the names of nodes" {
  for words in "mark n01,n1" "move n01,n02,n1"; do
    offered=$(completed_names "$words")
    [ "$offered" = "${words#* }0 ${words#* }1 ${words#* }2" ] || { echo "$offered"; false; }
  done
  for words in "mark n0" "node show n0" "why n0"; do
    [ "$(completed_names "$words")" = "n01 n02 n03 n04 n05 n06 n07 n08 n09" ]
  done
}

# The best of many: what the machine takes beside it is not completion's.
@test "completion takes less than 50 ms, with the names of nodes, and while sluiced stands still" {
  quickest_ms() {
    bash -c 'source "$0"; COMP_WORDS=(sluice mark n0); COMP_CWORD=2; best=999999
      for _ in {1..20}; do from=${EPOCHREALTIME/./}; _sluice; took=$((${EPOCHREALTIME/./} - from)); ((took >= best)) || best=$took; done; echo $((best / 1000))' "$SLUICE_BUILDDIR/etc/completion/sluice"
  }
  [ "$(quickest_ms)" -lt 50 ]
  kill -STOP "$PID_sluiced"
  [ "$(quickest_ms)" -lt 50 ]
  kill -CONT "$PID_sluiced"
}

@test "nodes with many marks: a table shows three, what blocks first, and how many more there are; whoever asks for columns, or reads as a program, has all" {
  for i in 1 2; do sluice mark n01 "note $i" --severity info; done >/dev/null
  for i in 3 4 5 6 7 8; do sluice mark n01 "fault $i"; done >/dev/null
  sluice mark n02 "one" >/dev/null; sluice mark n02 "two" >/dev/null; sluice mark n02 "three" --severity info >/dev/null
  [ "$(sluice nodes -R --no-header | sed -E 's/ +$//; s/  +/|/g' | cut -d'|' -f1,3,4,8)" = "n01|3,4,5|block,block,block|fault 3,fault 4,fault 5,and 5 more
n02|9,10,11|block,block,info|one,two,three" ]
  for way in "" -N -l; do
    sluice nodes $way >"$FARM/table"
    grep -q ' fault 3,fault 4,fault 5,and 5 more$' "$FARM/table"
    grep -q ' one,two,three$' "$FARM/table"
  done
  all="note 1,note 2,fault 3,fault 4,fault 5,fault 6,fault 7,fault 8"
  [ "$(sluice nodes -R --parsable --no-header -n n01 | cut -d'|' -f8)" = "$all" ]
  [ "$(sluice nodes -o marks --no-header -n n01)" = "$all" ]
  is '.nodes[0].marks | map(.reason) | join(",")' "$all" sluice nodes -n n01
  [ "$(sluice node show n01 | grep -cE '(note|fault) [1-8]')" -ge 8 ]
}
