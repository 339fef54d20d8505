#!/usr/bin/env bats
# sluice simulate: files that the other commands take, parts, padding, the same bytes for a seed, refusals.
load ../lib

setup() { FARM=$(mktemp -d "${TMPDIR:-/tmp}/sluice-test.XXXXXX"); cd "$FARM"; }
teardown() { cd /; rm -rf "$FARM"; }

@test "simulated TFs are sound, and the reconstruction finds the digits and clusters that are written beside them" {
  run --separate-stderr sluice simulate -o out --frames 2 --tracks 10 --orbits 2 --seed 3
  [ "$status" -eq 0 ]
  [ -z "$stderr" ]
  [ "${#lines[@]}" -eq 2 ]
  [ "$(ls out | tr '\n' ' ')" = "sim-3-1.clusters sim-3-1.digits sim-3-1.tf sim-3-1.truth sim-3-2.clusters sim-3-2.digits sim-3-2.tf sim-3-2.truth " ]
  sluice tf verify out/*.tf
  sluice reco out/sim-3-1.tf out/sim-3-2.tf -w cluster -b cpu -o own >/dev/null
  for k in 1 2; do
    for what in digits clusters; do
      cmp "out/sim-3-$k.$what" "own/sim-3-$k.$what"
      sluice compare "out/sim-3-$k.$what" "own/sim-3-$k.$what"
    done
  done
  run ! cmp -s out/sim-3-1.digits out/sim-3-2.digits
  [ "$(sluice tf info --json out/*.tf | jq -c '[.tfs[] | [.first_orbit, .counter]]')" = "[[128,1],[130,2]]" ]
}

@test "a seed gives the same files again, another seed others; files that stand there are replaced" {
  sluice simulate -o a --tracks 5 --orbits 1 --seed 9 >/dev/null
  sluice simulate -o b --tracks 5 --orbits 1 --seed 9 >/dev/null
  diff -r a b
  sluice simulate -o b --tracks 5 --orbits 1 --seed 10 >/dev/null
  run ! cmp -s a/sim-9-1.tf b/sim-10-1.tf
  echo damaged >b/sim-9-1.tf
  sluice simulate -o b --tracks 5 --orbits 1 --seed 9 >/dev/null
  cmp a/sim-9-1.tf b/sim-9-1.tf
}

@test "--sources: the parts joined in order are the TF, also when there are more parts than blocks" {
  sluice simulate -o whole --tracks 3 --orbits 1 >/dev/null
  for n in 1 7 12 1000; do
    sluice simulate -o parts-$n --tracks 3 --orbits 1 --sources $n >/dev/null
    [ "$(ls parts-$n/*.tf.part-* | wc -l)" -eq "$n" ]
    [ ! -e parts-$n/sim-1-1.tf ]
    cat parts-$n/sim-1-1.tf.part-* | cmp - whole/sim-1-1.tf
    cmp parts-$n/sim-1-1.truth whole/sim-1-1.truth
  done
}

@test "--pad-to: the size to the byte, that many more blocks of another detector, the same digits" {
  sluice simulate -o plain --tracks 3 --orbits 1 >/dev/null
  sluice simulate -o padded --tracks 3 --orbits 1 --pad-to 5M --blocks 17 >/dev/null
  [ "$(stat -c %s padded/sim-1-1.tf)" -eq 5242880 ]
  sluice tf verify padded/sim-1-1.tf
  [ "$(sluice tf dump --json padded/sim-1-1.tf | jq '[.tfs[0].blocks_list[] | select(.origin == "ITS")] | length')" -eq 17 ]
  [ "$(sluice reco --digest -w decode -b cpu padded/sim-1-1.tf | cut -d' ' -f1)" = "$(sluice reco --digest -w decode -b cpu plain/sim-1-1.tf | cut -d' ' -f1)" ]
  cmp plain/sim-1-1.truth padded/sim-1-1.truth
  run --separate-stderr sluice simulate -o small --tracks 3 --orbits 1 --pad-to 1K --blocks 1
  [ "$status" -eq 1 ]
  [[ $stderr == *"1024 are asked for"* ]]
  [ -z "$(ls small)" ]
}

@test "nothing to simulate: noise only, and with --no-noise no digit at all; both are sound" {
  sluice simulate -o out --tracks 0 --seed 1 >/dev/null
  sluice simulate -o out --tracks 0 --seed 2 --no-noise >/dev/null
  [ "$(sluice tf verify --json out/sim-1-1.tf | jq '.tfs[0].digits > 3000 and .tfs[0].sound')" = true ]
  [ "$(sluice tf verify --json out/sim-2-1.tf | jq -c '[.tfs[0].digits, .tfs[0].sound]')" = "[0,true]" ]
  [ "$(stat -c %s out/sim-2-1.truth)" -eq 32 ]
}

@test "the stored figures of the reference are those of its sets" {
  tool=$SLUICE_BUILDDIR/tests/unit/simulate_test
  [ -x "$tool" ] || skip "built without unit tests"
  zstd -dqf "$SLUICE_SRCDIR/tests/data/tpc-3tf.tf.zst" -o sets.tf
  diff <("$tool" sets.tf | awk '{ print $1, $2, $3 }') <(grep -v '^#' "$SLUICE_SRCDIR/tests/data/simulate-reference.txt" | awk '{ print $1, $2, $3 }')
}

@test "usage errors: status 2, the option by its name, nothing written" {
  while IFS='|' read -r args words; do
    # shellcheck disable=SC2086
    run --separate-stderr sluice simulate $args
    [ "$status" -eq 2 ] || { echo "$args: $status"; false; }
    [ -z "$output" ]
    [[ $stderr == *"$words"* ]] || { echo "$args: $stderr"; false; }
  done <<'END'
|-o DIR is missing
-o out more|more
-o out --tracks -1|--tracks
-o out --tracks 65001|--tracks
-o out --tracks 1x|--tracks
-o out --frames 0|--frames
-o out --orbits 129|--orbits
-o out --seed 18446744073709551616|--seed
-o out --bins 1783|1782 bins
-o out --sources 0|--sources
-o out --pad-to 5M|go together
-o out --blocks 3|go together
-o out --pad-to 5Q --blocks 3|--pad-to
-o out --frobnicate|frobnicate
END
  [ ! -e out ]
}

@test "a folder that cannot be: 3 when its parent is not there, 1 when a file is in the way" {
  run sluice simulate -o no/where --tracks 0 --orbits 1
  [ "$status" -eq 3 ]
  [[ $output == *"no/where"* ]]
  touch file
  run sluice simulate -o file --tracks 0 --orbits 1
  [ "$status" -eq 1 ]
  [[ $output == *file* ]]
}

@test "20 000 tracks in one TF (soak)" {
  [ -n "${SLUICE_SOAK:-}" ] || skip "needs a gigabyte of memory and a minute"
  sluice simulate -o out --tracks 20000 --orbits 32 --no-noise
  [ "$(sluice tf verify --json out/sim-1-1.tf | jq '.tfs[0].sound')" = true ]
}
