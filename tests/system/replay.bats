#!/usr/bin/env bats
# Files in every condition, buffers of every size.
load ../lib

setup() { farm_setup; }
teardown() { farm_teardown; }

# damaged FOLDER: a file of each kind that cannot be played, and a good one.
damaged() {
  local d=$1
  : >"$d/empty.tf"
  head -c 50 "$(sample 2)" >"$d/cut-in-header.tf"
  head -c 1000000 "$(sample 2)" >"$d/cut-in-payload.tf"
  { printf 'XXXX'; tail -c +5 "$(sample 2)"; } >"$d/wrong-magic.tf"
  cp "$(sample 2)" "$d/size-2^63.tf"
  printf '\0\0\0\0\0\0\0\x80' | dd of="$d/size-2^63.tf" bs=1 seek=72 conv=notrunc status=none
  mkdir "$d/folder.tf"; mkfifo "$d/fifo.tf"
  cp "$(sample 2)" "$d/good.tf"
}

@test "B80 damaged files are skipped, counted and named with the offset; the good ones are replayed; exit 10" {
  farm_up --nodes mi50:1 --nominal mi50=10
  d=$FARM/in; mkdir "$d"
  damaged "$d"
  run timeout 60 sluice replay "$d"/*.tf --json
  echo "$output"
  [ "$status" -eq 10 ]
  run --separate-stderr timeout 60 sluice replay "$d"/*.tf --json
  [ "$(jq -r '.replay[0] | [.tfs, .files_skipped] | join(" ")' <<<"$output")" = "1 7" ]
  # each by its name, where it is wrong, and why
  while IFS='|' read -r name said; do
    [[ $stderr == *"$name.tf: skipped at byte $said"* ]] || { echo "nothing of $name: $stderr"; false; }
  done <<'END'
empty|0: the file is empty
cut-in-header|0: block header: 96 bytes wanted, 50 are left
cut-in-payload|104: a TF of 1675304 bytes announced, 1000000 are left
wrong-magic|0: block header: magic is 58 58 58 58
size-2^63|72: block FILE_STF_META/FLP/0x0: payload of 9223372036854775808 bytes announced
folder|0: is a folder
fifo|0: is a FIFO
END
  # and no more of them than allowed
  run timeout 60 sluice replay "$d"/*.tf --max-bad 6
  [ "$status" -eq 1 ]
  [[ $output == *"7 bad files"* ]]
  run timeout 60 sluice replay "$d"/*.tf --max-bad 7
  [ "$status" -eq 10 ]
}

@test "B80 a job over damaged files ends done with N skipped, and its wait says 10" {
  farm_up --nodes mi50:2 --nominal mi50=10
  sluice move mi50-002 --to async --wait --timeout 20s
  d=$FARM/in; mkdir "$d"
  damaged "$d"
  run timeout 60 sluice submit "$d"/*.tf --workflow decode --output "$FARM/out" --max-bad 6
  [ "$status" -ne 0 ]
  [ "$status" -ne 10 ]
  is '.jobs | length' 0 sluice jobs --all
  rc=0; id=$(sluice submit "$d"/*.tf --workflow decode --output "$FARM/out" 2>"$FARM/said") || rc=$?
  cat "$FARM/said"
  [ "$rc" -eq 10 ]
  for f in empty cut-in-header cut-in-payload wrong-magic 'size-2^63' folder fifo; do grep -qF "$f.tf" "$FARM/said"; done
  run sluice wait job "$id" --timeout 60s
  [ "$status" -eq 10 ]
  is '.jobs[0] | [.state, .done, .failed, .skipped_files] | join(" ")' 'done 1 0 7' sluice job show "$id"
  [ "$(xxh3 "$FARM/out/good.0.digits")" = "${DIGITS[2]}" ]
}

@test "B79 a buffer too small is refused at the start with the size needed; at 1x it runs" {
  # the largest sample TF has 6789640 bytes
  # half of it, it, one and a half and three times of it
  for size in 3316K:refused 6632K:runs 9947K:runs 19893K:runs; do
    for preread in 1 8; do
      rm -rf "$FARM/farm"
      farm_up --nodes mi50:1 --nominal mi50=10 --shm "${size%:*}"
      run timeout 60 sluice replay "$(samples)" --loop 3 --preread "$preread" --workflow none
      echo "$size preread $preread: $status $output"
      if [ "${size#*:}" = refused ]; then
        [ "$status" -eq 4 ]
        [[ $output == *"needs a buffer of at least "*"6789640 bytes"* ]]
      else
        [ "$status" -eq 0 ]
        is '[.runs[] | .done] | add' 9 sluice runs --all
      fi
      sluice down --dir "$FARM/farm"
    done
  done
}

@test "the summary's figures add up" {
  farm_up --nodes mi50:2 --nominal mi50=10
  run --separate-stderr sluice replay "$(samples)" --loop 10 --rate 20 --workflow none --verify --json
  [ "$status" -eq 0 ]
  jq -e '.replay[0] | .tfs == 30 and .bytes == 10 * 11443544 and .rate_wanted == 20 and .rate_offered < 20.1 and .rate_achieved > 8 and .rate_achieved <= .rate_offered * 30 / 29' <<<"$output"
  # what is offered is not what is done: two devices that hold each for 200 ms do ten a second, whatever was asked of them
  sluice down --dir "$FARM/farm"
  farm_up --nodes mi50:2 --nominal mi50=200
  run --separate-stderr sluice replay "$(samples)" --loop 10 --rate 100 --workflow decode --json
  [ "$status" -eq 0 ]
  jq -e '.replay[0] | .tfs == 30 and .rate_achieved <= 10.1 and .rate_achieved < .rate_offered' <<<"$output"
}

@test "status: a move at a time says when, and of a run each time-frame in flight is counted once" {
  farm_up --nodes mi50:2 --nominal mi50=1
  sluice move mi50-002 --to async --when now+7h >/dev/null
  at=$(json '.moves[0].at' sluice moves)
  sluice status >"$FARM/status"
  grep -qF "  move 1: mi50-002 to async, pending, begins at ${at:0:19}" "$FARM/status"
  # nobody takes the six: all of them are queued, and none is anywhere else
  sluice mark @all "nobody takes it" >/dev/null
  sluice replay "$(sample 2)" --loop 6 --workflow none --in-flight 6 >/dev/null 2>&1 3>&- &
  replay=$!
  wait_until 20 is '.runs[0] | [.in_flight, .queued] | join(" ")' "6 6" sluice run show 1
  sluice status >"$FARM/status"
  grep -qE "^  run 1 replay: [a-z]+, 0 done, 0 with nodes, 6 queued, 0 failed, 0 lost" "$FARM/status"
  sluice clear @all "they take it" >/dev/null
  wait "$replay"
}
