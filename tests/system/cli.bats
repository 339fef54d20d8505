#!/usr/bin/env bats
# What the command does without a daemon: usage, help, host lists, the configuration, the programs it starts.
load ../lib

setup() { FARM=$(mktemp -d "${TMPDIR:-/tmp}/sluice-test.XXXXXX"); cd "$FARM"; }
teardown() { cd /; rm -rf "$FARM"; }

@test "without a command, with an unknown one, or with half of one: status 2 and what there is" {
  run sluice
  [ "$status" -eq 2 ]
  [[ $output == *"command is missing"* ]]
  run sluice frobnicate
  [ "$status" -eq 2 ]
  [[ $output == *"no command 'frobnicate'"* ]]
  run sluice node
  [ "$status" -eq 2 ]
  [[ $output == *"node show"*"node history"* ]]
  run sluice $'\e[31m'
  [ "$status" -eq 2 ]
  [[ $output != *$'\e'* ]]
}

@test "the first word of several commands has a help too: those commands" {
  for word in node tf run job crash; do
    run --separate-stderr sluice $word --help
    [ "$status" -eq 0 ]
    [[ -z $stderr && $output == *"  $word show"* || $word == tf && $output == *"  tf info FILE"* ]]
    together=$output
    run sluice help $word
    [[ $status -eq 0 && $output == "$together" ]]
  done
  run sluice frobnicate --help
  [ "$status" -eq 2 ]
}

@test "every command has a help, on standard output, with status 0, naming each of its options" {
  sluice help --table | tail -n +2 >table
  [ "$(wc -l <table)" -gt 40 ]
  while IFS='|' read -r name needs rest; do
    [[ $needs == yes || $needs == no ]]
    run --separate-stderr sluice help $name
    [ "$status" -eq 0 ]
    [ -z "$stderr" ]
    [[ $output == "sluice $name"* ]]
  done <table
  grep -vE '^(reco|simulate|compare|devices|workflows|workflow|tf|help) ?' table >own
  while IFS='|' read -r name needs rest; do
    run --separate-stderr sluice $name --help
    [ "$status" -eq 0 ]
    for option in $(grep -oE -- '--[a-z-]+' <<<"$rest"); do
      [[ $output == *"$option"* ]] || { echo "$name --help does not name $option"; false; }
    done
  done <own
}

@test "the table: names are unique, families stand together, each word is listed" {
  sluice help --table | tail -n +2 | cut -d'|' -f1 >names
  [ -z "$(sort names | uniq -d)" ]
  cut -d' ' -f1 names | uniq | sort | uniq -d >scattered
  [ ! -s scattered ] || { cat scattered; false; }
  run sluice help
  [ "$status" -eq 0 ]
  while read -r name; do [[ $output == *"$name"* ]]; done <names
}

@test "the manual page has every command with every option, and no other; it is clean mdoc" {
  page=$SLUICE_SRCDIR/doc/sluice.1
  [ -z "$(mandoc -T lint "$page" | grep -v 'referenced manual not found')" ]
  sed -n '/^\.Sh COMMANDS/,/^\.Sh ENVIRONMENT/p' "$page" >commands
  sluice help --table | tail -n +2 >table
  diff <(cut -d'|' -f1 table | sort) <(sed -n 's/^\.It Cm //p' commands | sed 's/ Ar .*//' | sort)
  common=' --json --jsonl --schema --parsable --no-header --fields --exclude '
  while IFS='|' read -r name needs rest; do
    awk -v name="$name" '/^\.It Cm / { sub(/^\.It Cm /, ""); sub(/ Ar .*/, ""); on = $0 == name; next } on' commands >entry
    sed -nE 's/^\.It Fl (. , )?-([a-z-]+).*/--\2/p' entry | sort >documented
    for option in $(grep -oE -- '--[a-z-]+' <<<"$rest"); do
      [[ $common == *" $option "* && $name != replay && $name != "crash rerun" ]] || echo "$option"
    done | sort >known
    diff known documented || { echo "of $name"; false; }
  done <table
  for option in $common; do grep -qE -- "^\.It Fl (. , )?${option#-}( |\$)" "$page"; done
}

@test "doc/protocol.md names every message there is, with doc/reco-contract.md" {
  local name n=0
  while read -r name; do
    n=$((n + 1))
    grep -qw "$name" "$SLUICE_SRCDIR/doc/protocol.md" "$SLUICE_SRCDIR/doc/reco-contract.md" || { echo "nothing of $name"; false; }
  done < <(sed -nE 's/^ *ROW\([A-Z_]+, *([a-z_]+),.*/\1/p' "$SLUICE_SRCDIR/proto/frame.c" | perl -pe 's/(^|_)([a-z])/\u$2/g')
  [ "$n" -gt 100 ]
}

@test "help and the manual name every workflow and every backend that there is, wherever one can be chosen" {
  sluice workflows --json >workflows
  jq -r '.workflows[].name' workflows >words
  jq -r '.workflows[].stages[].backends[]' workflows | sort -u >>words
  grep -qx cluster words && grep -qx opencl words
  for name in submit replay "run start"; do
    sluice $name --help >help
    awk -v name="$name" '/^\.It Cm / { sub(/^\.It Cm /, ""); sub(/ Ar .*/, ""); on = $0 == name; next } on' "$SLUICE_SRCDIR/doc/sluice.1" >entry
    while read -r word; do
      grep -qw -- "$word" help && grep -qw -- "$word" entry || { echo "$name: no $word"; false; }
    done <words
  done
}

# completed SHELL WORD...: what is offered for the last word, a line each, by the completion that is installed.
completed() {
  local shell=$1; shift
  if [[ $shell == bash ]]; then
    bash -c 'source "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _sluice; printf "%s\n" "${COMPREPLY[@]}"' "$SLUICE_BUILDDIR/etc/completion/sluice" "$@"
  else
    zsh -f -c 'words=("$@"); CURRENT=$#; cur=$words[CURRENT]; source "$0"; compadd() { shift; print -l -- ${(M)@:#${cur}*} }; compset() { cur=${cur##*,} }; _files() { print -l -- ${cur}*(N) }; _sluice' \
      "$SLUICE_BUILDDIR/etc/completion/_sluice" "$@"
  fi
}
shells() { echo bash; ! command -v zsh >/dev/null || echo zsh; }

@test "completion offers commands, second words, options, values and files, in bash and zsh" {
  bash -n "$SLUICE_BUILDDIR/etc/completion/sluice"
  touch tf-file
  while read -r shell; do
    echo "$shell"
    [ "$(completed "$shell" sluice stat)" = status ]
    [ "$(completed "$shell" sluice node hist)" = history ]
    [ "$(completed "$shell" sluice --socket x node hist)" = history ]
    [ "$(completed "$shell" sluice mark --sev)" = --severity ]
    [ "$(completed "$shell" sluice mark n1 --severity b)" = block ]
    [ "$(completed "$shell" sluice node history --si)" = --since ]
    [ "$(completed "$shell" sluice nodes --pars)" = --parsable ]
    [ "$(completed "$shell" sluice move n1 --to a)" = async ]
    [ "$(completed "$shell" sluice replay tf-f)" = tf-file ]
    [ "$(completed "$shell" sluice wait mo)" = move ]
    [ "$(completed "$shell" sluice hostlist unf)" = unfold ]
    [ "$(completed "$shell" sluice run start --workflow clu)" = cluster ]
    [ "$(completed "$shell" sluice mark n1 --class o)" = ops ]
    [ -z "$(completed "$shell" sluice mark n1 --id @)" ]           # a value of its own, not an operand
    for option in "shm set n1 --profile" "clear n1 --id" "run start --name"; do
      [ -z "$(completed "$shell" sluice $option tf-f)" ]           # nor a file
    done
    [ "$(completed "$shell" sluice submit --input tf-f)" = tf-file ]
    [ "$(completed "$shell" sluice diag --config tf-f)" = tf-file ]
    [ -z "$(completed "$shell" sluice mark tf-f)" ]
    [ "$(completed "$shell" sluice mark n1,@as)" = "$([[ $shell == zsh ]] || echo n1,)@async" ]      # zsh leaves alone what is before the comma
    [ -z "$(completed "$shell" sluice node show n1,@as)" ]         # one node alone
    # every command, and every option of each
    while IFS='|' read -r name needs rest; do
      [[ $name == *' '* ]] || completed "$shell" sluice "$name" | grep -qx -- "$name"
      [[ $name != *' '* ]] || completed "$shell" sluice "${name% *}" "${name#* }" | grep -qx -- "${name#* }"
    done < <(sluice help --table | tail -n +2)
  done < <(shells)
  for name in mark "node history" "run start"; do
    sluice help --table | grep "^$name|" | grep -oE -- '--[a-z-]+' | sort >known
    completed bash sluice $name -- | grep -- '^--' | sort | comm -23 known - >missing
    [ ! -s missing ] || { cat missing; false; }
  done
}

@test "completion is harmless without sluiced: words of the table, no message, no wait" {
  export SLUICE_SOCKET=$FARM/none.sock
  while read -r shell; do
    run --separate-stderr completed "$shell" sluice mark @on
    [ "$status" -eq 0 ]
    [ -z "$stderr" ]
    [ "$output" = @online ]
  done < <(shells)
}

@test "usage errors: status 2, nothing on standard output, a sentence" {
  while read -r line; do
    run --separate-stderr bash -c "sluice $line"
    [ "$status" -eq 2 ] || { echo "$line: $status $output $stderr"; false; }
    [ -z "$output" ]
    [ -n "$stderr" ]
  done <<'END'
mark n1
mark n1 ''
mark n1 '  '
mark n[3-1] reason
mark n1 reason --severity loud
mark n1 reason --until yesterday
mark n1 reason --until 2020-01-01T00:00:00Z
clear n1 reason --id x
clear n1 reason --id 0
move n1
move n1 --to nowhere
move n1 --to async --when whenever
move n1 --to async --timeout 5
move --to async
nodes --state lazy
nodes --pool spare
nodes -o
run start --policy fair
run start --keep forever
run start --sources 0
run start --name 'a b'
run show x
run show 0
run stop 1 --data-timeout 5
wait nothing 1
wait job x
submit
submit --priority x f
submit --time 0 f
submit --time unlimited f
job tfs 1 --state tired
crash purge
crash purge 1 --all
logs
replay --run 1 --workflow none x
replay --run 0 x
replay
up --nodes mi50
up --nodes mi50:0
up --shm 64MB
up --nominal mi50
node add n1
replay x --rate 0
replay x --output ''
run start --output ''
config show --config ''
hostlist fold
hostlist melt n1
hostlist diff n1
nodes extra
END
}

@test "a daemon that is not there: status 6, and where it was looked for" {
  for command in status ping nodes runs jobs moves metrics check shm "crash list" "run show 1" "node show n1" "mark n1 reason" "backup x"; do
    run sluice --socket "$FARM/none.sock" $command
    [ "$status" -eq 6 ] || { echo "$command: $status $output"; false; }
    [[ $output == *"$FARM/none.sock"* ]]
    [ "$(wc -l <<<"$output")" -eq 1 ]
  done
  SLUICE_SOCKET=$FARM/other.sock run sluice ping
  [ "$status" -eq 6 ]
  [[ $output == *other.sock* ]]
  run sluice ping
  [[ $output == */run/sluice/sluiced.sock* ]]
}

@test "TCP: a port where nobody listens is not reachable" {
  run timeout 20 sluice --server 127.0.0.1:1 ping
  [ "$status" -eq 6 ]
}

@test "B49 host lists: fold, unfold, count, diff, and" {
  [ "$(sluice hostlist fold n001 n002 n003 n010)" = "n[001-003,010]" ]
  [ "$(sluice hostlist fold 'n[01-04,10,007-009]')" = "n[01-04,007-009,10]" ]
  [ "$(sluice hostlist unfold 'n[9-11]' | paste -sd,)" = n9,n10,n11 ]
  [ "$(sluice hostlist unfold 'r[1-2]n[3-4]' | paste -sd,)" = r1n3,r1n4,r2n3,r2n4 ]
  [ "$(sluice hostlist count 'n[1-1],n1, n2')" = 2 ]
  [ "$(sluice hostlist diff 'n[1-9]' 'n[4-6]')" = "n[1-3,7-9]" ]
  [ "$(sluice hostlist and 'n[1-9]' 'n[4-12]')" = "n[4-9]" ]
  [ "$(sluice hostlist count 'n[1-65536]')" = 65536 ]
  [ "$(printf 'n1\nn2\nn3\n' | sluice hostlist fold -)" = "n[1-3]" ]
  [ "$(seq -f 'x%g-y' 7 7 35000 | sluice hostlist count -)" = 5000 ]
  for bad in 'n[010-9]:3' 'n[1-]:5' 'n[]:2' 'n[1-65537]:10' 'n1,,n2:4'; do
    run --separate-stderr sluice hostlist fold "${bad%:*}"
    [ "$status" -eq 2 ]
    [ -z "$output" ]
    [[ $stderr == *"column ${bad##*:}:"* ]]
  done
}

@test "an argument that is missing is named, with what is wanted" {
  while IFS='|' read -r command said; do
    # shellcheck disable=SC2086
    run sluice $command
    [ "$status" -eq 2 ]
    [ "${lines[0]}" = "sluice $said" ]
  done <<'END'
clear n1|clear: REASON is missing, wanted is clear LIST REASON
run show|run show: ID is missing, wanted is run show ID
replay|replay: PATH... is missing, wanted is replay PATH...
wait run|wait: ID is missing, wanted is wait job|run|move ID
END
}

@test "config show: the file, its defaults, its errors with file and line" {
  printf 'state_dir = /srv/x\n\nclass a { devices = 2 }\n' >good.conf
  [ "$(sluice config show --config good.conf)" = "$(cat good.conf)" ]
  run sluice config show --config good.conf --effective
  [ "$status" -eq 0 ]
  [[ $output == *"state_dir = '/srv/x'"*"queue = 4096"*"devices = 2"* ]]
  sluice config show --config good.conf --effective >effective.conf
  [ "$(sluice config show --config effective.conf --effective)" = "$(cat effective.conf)" ]
  [ "$(SLUICE_CONF=good.conf sluice config show --json | jq -r '.schema.name, .config[0].text')" = "$(echo config; cat good.conf)" ]
  printf 'state_dir = /srv/x\ncolour = red\n' >bad.conf
  run --separate-stderr sluice config show --config bad.conf
  [ "$status" -eq 2 ]
  [ -z "$output" ]
  [[ $stderr == *"bad.conf:2:"*colour* ]]
  run sluice config show --config none.conf
  [ "$status" -eq 3 ]
}

@test "config show finds the farm of this folder or a parent" {
  mkdir -p sluice-farm deep/er
  printf 'state_dir = /srv/farm\n' >sluice-farm/sluice.conf
  cd deep/er
  [ "$(sluice config show)" = "state_dir = /srv/farm" ]
  run sluice ping
  [ "$status" -eq 6 ]
  [[ $output == *"$FARM/sluice-farm/sluiced.sock"* ]]
}

@test "local commands become sluice-reco, found by SLUICE_LIBEXEC first" {
  mkdir bin
  printf '#!/bin/sh\nprintf "%%s|" "$@"\nexit 7\n' >bin/sluice-reco
  chmod +x bin/sluice-reco
  SLUICE_LIBEXEC=$FARM/bin run sluice tf info --some --options 'a b'
  [ "$status" -eq 7 ]
  [ "$output" = "tf|info|--some|--options|a b|" ]
  SLUICE_LIBEXEC=$FARM/bin run sluice workflow check x
  [ "$output" = "workflow|check|x|" ]
  SLUICE_LIBEXEC=$FARM/bin run sluice reco
  [ "$output" = "reco|" ]
}

@test "a full disk is a failure, a closed pipe is no crash" {
  for line in 'sluice help' 'sluice --version' 'sluice nodes --help' 'sluiced --version' 'sluiced --check-config' 'sluice-worker --version' 'sluice-source --version'; do
    run bash -c "$line >/dev/full"
    echo "$line: $status, $output"
    [ "$status" -eq 1 ]
    [[ $output == *"${line%% *}: standard output: "* ]]
  done
  run bash -c 'set -o pipefail; sluice hostlist unfold "n[1-65536]" | head -n 1'
  [ "${lines[0]}" = n1 ]
}

@test "down without a farm says so" {
  run sluice down
  [ "$status" -eq 3 ]
  run sluice down --dir "$FARM/none"
  [ "$status" -eq 3 ]
  [ ! -e "$FARM/none" ]
}

@test "--version and --help" {
  run sluice --version
  [ "$status" -eq 0 ]
  [[ $output == "sluice "[0-9]* ]]
  run sluice --help
  [ "$status" -eq 0 ]
  [[ $output == *--server*--socket* ]]
}

@test "B28 a time limit is what Slurm means by it, shown as it was read; anything else is refused with the forms, never unlimited" {
  limit() { sluice --socket "$BATS_TEST_TMPDIR/none" submit "$(sample 2)" --time "$1"; }
  while read -r given seconds; do
    run limit "$given"
    [ "$status" -eq 6 ]                        # taken, then nobody was there
    [[ $output == *"time limit of a try: "*" ($seconds s)"* ]] || { echo "$given: $output"; false; }
  done <<FORMS
10 600
4:00 240
1:30:00 5400
2-12 216000
3-0:00 259200
1-02:03:04 93784
FORMS
  for bad in 0 -1 99999999999 "" 1h30 "5 m"; do
    run limit "$bad"
    [ "$status" -eq 2 ]
    [[ $output == *"accepted, above 0 and at most 3650 days: 90s, 15m, 4h, 2d, or M, M:S, H:M:S, D-H, D-H:M, D-H:M:S"* ]] || { echo "'$bad': $output"; false; }
  done
}
