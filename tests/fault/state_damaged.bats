#!/usr/bin/env bats
# A damaged state: sluiced says so within seconds and names what to do; --recover brings the marks back.
load ../lib
load ../rig

setup() { rig_setup; }
teardown() { farm_teardown; }

# flip N [FIRST LAST]: N bytes of the database get another value, at random places; prints the seed.
flip() { perl -e '
  my ($file, $n, $seed) = @ARGV; srand($seed); print "seed $seed\n";
  open(my $f, "+<:raw", $file) or die; my $size = -s $file;
  for (1 .. $n) { my $at = int(rand($size)); seek($f, $at, 0); read($f, my $c, 1); seek($f, $at, 0); print $f chr(ord($c) ^ (1 + int(rand(255)))); }
  close($f) or die;' "$FARM/state/state.db" "$1" "$SEED"; }

# filled_state: marks on many nodes, pools moved, a run with time-frames; then an end in order. It is kept for the next damage.
filled_state() {
  daemon
  nodes_add 'n[001-040]'
  local i
  for i in {1..12}; do sluice mark "n[001-0$((10 + i))]" "reason $i"; done >/dev/null
  sluice move n040 --to async --when now --wait --timeout 20s
  workers 2 --seconds-per-tf 0.001 --first 38
  run_start --sources 1
  "$FAKES/fake-source" --server "unix:$SLUICE_SOCKET" --run "$RUN" --count 1 --hold --rate 2000 --tfs 2000 --size 1K --quiet >/dev/null
  sluice run stop "$RUN"
  sluice nodes --json | jq -c '[.nodes[] | .name as $n | .marks[] | [$n, .reason, .owner, .severity]] | sort' >"$FARM/marks"
  [ "$(jq length "$FARM/marks")" = 198 ]
  kill -TERM "$PID_workers" "$PID_sluiced"; wait_until 10 ended "$PID_sluiced"
  cp -a "$FARM/state" "$FARM/good"
}
fresh() { rm -rf "$FARM/state"; cp -a "$FARM/good" "$FARM/state"; }
# starts_not WORDS...: it ends within 10 s, in error, with one sentence that has the words.
starts_not() {
  local word
  run timeout 10 sluiced --config "$FARM/conf" --state "$FARM/state" --socket "$SLUICE_SOCKET"
  echo "$output"
  [[ $status -ne 0 && $status -ne 124 ]] || return 1
  for word; do [[ $output == *"$word"* ]] || { echo "no word of $word"; return 1; }; done
}
# It says what it kept aside, up to when the history goes, and what is lost.
recovers() {
  local kept
  run timeout 30 sluiced --config "$FARM/conf" --state "$FARM/state" --recover
  echo "$output"
  [ "$status" -eq 0 ] || return 1
  kept=$(ls -d "$FARM"/state/state.db.corrupt-* | grep -v -e -wal | tail -n 1)
  [[ $output == *"the damaged file is kept in $kept"* ]] || return 1
  [[ $output == *"the last line of the history that was saved is of $(date -u +%Y)-"* || $output == *"nothing of the history was saved"* ]] || return 1
  if [[ $output == *"more may be lost"* || $output == *"made no sense"* ]]; then
    [[ $output == *"is lost, whatever its age"*"--state $FARM/state --restore FILE"* ]]
  else
    [[ $output == *"no loss was found"* ]]
  fi
}
# check_says STATUS WORDS...: what --check finds, which is what a start would say.
check_says() {
  local word wanted=$1
  shift
  run timeout 20 sluiced --config "$FARM/conf" --state "$FARM/state" --check
  echo "$output"
  [ "$status" -eq "$wanted" ] || return 1
  for word; do [[ $output == *"$word"* ]] || { echo "no word of $word"; return 1; }; done
}
# marks_lost: how many of them are not there as they were. A byte of a text may have changed; none is there that nobody made.
marks_lost() {
  daemon
  sluice nodes --json | jq -c '[.nodes[] | .name as $n | .marks[] | [$n, .reason, .owner, .severity]] | sort' >"$FARM/there"
  kill -TERM "$PID_sluiced"; wait_until 10 ended "$PID_sluiced"
  jq -es '.[1] | length <= 198' "$FARM/there" "$FARM/there" >/dev/null || { echo "marks that nobody made"; return 1; }
  LOST=$(jq -s '.[0] - .[1] | length' "$FARM/marks" "$FARM/there")
  echo "$LOST of 198 marks lost"
}

@test "B38 100 random bytes flipped: no start, in seconds, with the command that recovers; it works, and the marks are there" {
  filled_state
  for ((i = 0; i < $(scaled 3); i++)); do
    fresh
    flip 100
    starts_not "sluiced --state $FARM/state --recover" damaged
    cmp -s "$FARM/good/state.db" "$FARM/state/state.db" && false
    recovers
    marks_lost
    # a byte in a mark costs that mark, one in the head of a page those that lie on it; it is said, and the others are there
    [ "$LOST" -le 130 ]
  done
}

@test "B38 damage beside the marks costs none of them" {
  filled_state
  page=$(sqlite3 "$FARM/state/state.db" 'PRAGMA page_size')
  # every page of what time-frames left behind, and the header of the file
  sqlite3 "$FARM/state/state.db" "SELECT pageno FROM dbstat WHERE name = 'run_tf'" >"$FARM/pages" 2>/dev/null || root=1
  if [ ! -s "$FARM/pages" ]; then sqlite3 "$FARM/state/state.db" "SELECT rootpage FROM sqlite_schema WHERE name = 'run_tf'" >"$FARM/pages"; fi
  rm -f "$FARM/state/state.db-wal" "$FARM/state/state.db-shm"
  while read -r p; do
    dd if=/dev/urandom of="$FARM/state/state.db" bs=1 seek=$(((p - 1) * page)) count=60 conv=notrunc status=none
  done <"$FARM/pages"
  starts_not --recover damaged
  recovers
  marks_lost
  [ "$LOST" -eq 0 ]
}

@test "B38 a file cut short, an empty one, none at all, garbage: refused, never an empty start" {
  filled_state
  truncate -s "$(($(stat -c %s "$FARM/state/state.db") / 2))" "$FARM/state/state.db"
  starts_not --recover damaged
  recovers
  marks_lost
  fresh; : >"$FARM/state/state.db"
  starts_not --re
  fresh; rm "$FARM/state/state.db"
  starts_not --restore gone
  fresh; head -c 100000 /dev/urandom >"$FARM/state/state.db"
  starts_not --re
  # what is no file holds up neither a start nor a check, however long nobody writes into it
  fresh; rm "$FARM/state/state.db"; mkfifo "$FARM/state/state.db"
  starts_not "not a file that can be read"
  check_says 1 "not a file that can be read"
  fresh; rm -f "$FARM/state/state.reserve"; mkfifo "$FARM/state/state.reserve"
  marks_lost
  [ "$LOST" -eq 0 ]
  [ -f "$FARM/state/state.reserve" ]
  # a good backup in its place
  fresh; : >"$FARM/state/state.db"
  cp "$FARM/good/state.db" "$FARM/backup.db"
  timeout 30 sluiced --config "$FARM/conf" --state "$FARM/state" --restore "$FARM/backup.db"
  marks_lost
  [ "$LOST" -eq 0 ]
}

@test "B38 a newer schema is refused with both versions, by --recover too, and left as it is" {
  filled_state
  have=$(sqlite3 "$FARM/state/state.db" 'PRAGMA user_version')
  sqlite3 "$FARM/state/state.db" 'PRAGMA user_version = 99'
  sum=$(sha256sum <"$FARM/state/state.db")
  starts_not 99 " $have" newer
  check_says 4 99 " $have" newer
  run timeout 10 sluiced --config "$FARM/conf" --state "$FARM/state" --recover
  [ "$status" -ne 0 ]
  [[ $output == *99* ]]
  [ "$(sha256sum <"$FARM/state/state.db")" = "$sum" ]
  # a number that no schema will have is damage
  sqlite3 "$FARM/state/state.db" 'PRAGMA user_version = 9999'
  starts_not "makes no sense"
  check_says 1 "makes no sense"
  sqlite3 "$FARM/state/state.db" "PRAGMA user_version = $have"
  check_says 0 "schema version $have" "agree with their rows"
  # nor is the database of another folder taken
  mv "$FARM/state/state.id" "$FARM/id"; sed 's/[0-9a-f]/7/g' "$FARM/id" >"$FARM/state/state.id"
  starts_not "not the database that this folder had"
  check_says 4 "not the database that this folder had"
  mv "$FARM/id" "$FARM/state/state.id"
  marks_lost
  [ "$LOST" -eq 0 ]
}

advice() { sluice status --json | jq -er --arg w "$1" '.status[0].alarms[] | select(.word == $w) | .advice'; }
# The alarm must not send anybody after free space when the file itself is what is wrong.
file_is_blamed() {
  local said
  said=$(sluice status --json | jq -r '.status[0].alarms[] | select(.word == "StateNotWritable") | .text + " / " + .advice')
  echo "$said"
  [[ $said == *"$1"*"changes wait in memory / "*"put the file right"* && $said != *"free space"* ]]
}
says_the_file() { wait_until 20 file_is_blamed "$1"; }

@test "state.db taken away or damaged while sluiced runs: the alarm says what to do about that; put back, all goes on by itself" {
  daemon
  nodes_add 'n[001-003]'
  mv "$FARM/state/state.db" "$FARM/state/aside.db"
  run sluice mark n001 "acts, is not stored"
  [ "$status" -eq 4 ]
  says_the_file "was removed or replaced while in use"
  [[ $(advice MarksNotStored) == *"put the file right"* ]]
  mv "$FARM/state/aside.db" "$FARM/state/state.db"
  wait_until 30 no_alarm StateNotWritable
  wait_until 30 no_alarm MarksNotStored
  sluice mark n002 "stored"
  # cut short: damaged, with both commands in full
  sluice backup "$FARM/backup.db"
  truncate -s 0 "$FARM/state/state.db"
  run sluice run start --workflow none
  [ "$status" -ne 0 ]
  says_the_file "puts a backup in its place"
  kill -TERM "$PID_sluiced"; wait_until 10 ended "$PID_sluiced"
  starts_not --restore
  timeout 30 sluiced --config "$FARM/conf" --state "$FARM/state" --restore "$FARM/backup.db"
  daemon
  is '[.nodes[] | select(.marks | length > 0) | .name] | join(" ")' 'n001 n002' sluice nodes
}
