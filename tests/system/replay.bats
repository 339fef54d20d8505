#!/usr/bin/env bats
# Files in every condition, buffers of every size.
load ../lib

setup() { farm_setup; }
teardown() { farm_teardown; }

@test "B80 damaged files are skipped, counted and named with the offset; the good ones are replayed; exit 10" {
  farm_up --nodes mi50:1 --nominal mi50=10
  d=$FARM/in; mkdir "$d"
  : >"$d/empty.tf"
  head -c 50 "$(sample 2)" >"$d/cut-in-header.tf"
  head -c 1000000 "$(sample 2)" >"$d/cut-in-payload.tf"
  { printf 'XXXX'; tail -c +5 "$(sample 2)"; } >"$d/wrong-magic.tf"
  cp "$(sample 2)" "$d/size-2^63.tf"
  printf '\0\0\0\0\0\0\0\x80' | dd of="$d/size-2^63.tf" bs=1 seek=72 conv=notrunc status=none
  mkdir "$d/folder.tf"; mkfifo "$d/fifo.tf"
  cp "$(sample 2)" "$d/good.tf"
  run timeout 60 sluice replay "$d"/*.tf --json
  echo "$output"
  [ "$status" -eq 10 ]
  run --separate-stderr timeout 60 sluice replay "$d"/*.tf --json
  [ "$(jq -r '.replay[0] | [.tfs, .files_skipped] | join(" ")' <<<"$output")" = "1 7" ]
  for f in empty cut-in-header cut-in-payload wrong-magic 'size-2^63' folder fifo; do
    [[ $output == *"$f.tf"* || $stderr == *"$f.tf"* ]]
  done
  [[ $output$stderr == *72* ]]        # the offset of the size field, or what follows from it
}

@test "B80 a job over damaged files ends done with N skipped, and its wait says 10" {
  farm_up --nodes mi50:2 --nominal mi50=10
  sluice move mi50-002 --to async --wait --timeout 20s
  d=$FARM/in; mkdir "$d"
  head -c 1000000 "$(sample 2)" >"$d/cut.tf"; cp "$(sample 2)" "$d/good.tf"; : >"$d/empty.tf"
  rc=0; id=$(sluice submit "$d/cut.tf" "$d/good.tf" "$d/empty.tf" --workflow decode --output "$FARM/out") || rc=$?
  [ "$rc" -eq 10 ]
  run sluice wait job "$id" --timeout 60s
  [ "$status" -eq 10 ]
  is '.jobs[0] | [.state, .done, .failed, .skipped_files] | join(" ")' 'done 1 0 2' sluice job show "$id"
  [ "$(xxh3 "$FARM/out/good.0.digits")" = "${DIGITS[2]}" ]
}

@test "B79 a buffer too small is refused at the start with the size needed; at 1x it runs" {
  # the largest sample TF has 6789640 bytes
  for size in 3M:refused 7M:runs 10M:runs 21M:runs; do
    for preread in 1 8; do
      rm -rf "$FARM/farm"
      farm_up --nodes mi50:1 --nominal mi50=10 --shm "${size%:*}"
      run timeout 60 sluice replay "$(samples)" --loop 3 --preread "$preread" --workflow none
      echo "$size preread $preread: $status $output"
      if [ "${size#*:}" = refused ]; then
        [ "$status" -eq 4 ]
        [[ $output == *67896* || $output == *6.5* || $output == *7M* ]]
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
