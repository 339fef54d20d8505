#!/usr/bin/env bats
# sluice reco and workflow check: what cannot be is refused by name, with the choices and the reason; nothing is passed over in silence.
load ../lib

setup() { FARM=$(mktemp -d "${TMPDIR:-/tmp}/sluice-test.XXXXXX"); cd "$FARM"; INPUT=$SLUICE_SRCDIR/tests/fuzz/corpus/pages/two-links.tf; }
teardown() { cd /; rm -rf "$FARM"; }

# refused STATUS WORDS... -- COMMAND...: ends with it, says all of the words, writes nothing
refused() {
  local status_wanted=$1 words=()
  shift
  while [[ $1 != -- ]]; do words+=("$1"); shift; done
  shift
  run --separate-stderr "$@"
  [ "$status" -eq "$status_wanted" ] || { echo "$*: $status, $stderr"; return 1; }
  [ -z "$output" ] || { echo "$*: $output"; return 1; }
  for w in "${words[@]}"; do [[ $stderr == *"$w"* ]] || { echo "$*: no \"$w\" in: $stderr"; return 1; }; done
}

@test "a backend that is not here is refused with its stage, the reason and the choices; a named device that no stage runs on, too" {
  [ "$(sluice devices --json | jq '[.devices[] | select(.usable and .class != "cpu" and .backend != "cpu")] | length')" -eq 0 ] || skip "there is a GPU here"
  choices="choices are auto, gpu, cpu, cuda, hip, opencl"
  refused 1 "stage decode: gpu asked for" "cuda: no NVIDIA driver" "hip: no AMD runtime" "$choices" -- sluice reco -b gpu "$INPUT"
  refused 1 "stage cluster: gpu asked for" "$choices" -- sluice reco -b decode=cpu,cluster=gpu "$INPUT"
  refused 1 "stage decode: cuda asked for" "no NVIDIA driver" "$choices" -- sluice reco -b cuda "$INPUT"
  refused 1 "stage cluster: hip asked for" "no AMD runtime" "$choices" -- sluice reco -b decode=cpu,cluster=hip "$INPUT"
  cpu=$(sluice devices --json | jq -r '.devices[] | select(.backend == "cpu") | .id')
  refused 1 "no stage runs on device GPU-7" "decode on $cpu" -- sluice reco -b cpu --device GPU-7 "$INPUT"
  sluice reco -b cpu --device "$cpu" "$INPUT"
  # auto may fall back, and says that the device was not there
  sluice reco -b auto --device GPU-7 --json "$INPUT" | jq -e '.tfs[0].stages | map(.backend == "cpu" and (.fallback | test("no usable GPU"))) | all'
}

@test "a stage, an option or a default that is given twice with two values is refused, in one list or over several options" {
  refused 2 "stage decode is given twice" cpu opencl -- sluice reco -b decode=cpu,decode=opencl "$INPUT"
  refused 2 "stage decode is given twice" cpu opencl -- sluice reco -b decode=cpu -b decode=opencl "$INPUT"
  refused 2 "the default is given twice" cpu opencl -- sluice reco -b cpu,opencl "$INPUT"
  refused 2 "cluster.peak is given twice" 3 4 -- sluice reco -b cpu --set cluster.peak=3 --set cluster.peak=4 "$INPUT"
  refused 1 "stage decode is given twice" -- sluice workflow check cluster --backend decode=cpu,decode=gpu
  # the same once more changes nothing; a default stands beside a stage
  one=$(sluice reco -b cpu --digest "$INPUT")
  [ "$(sluice reco -b cpu,decode=cpu -b decode=cpu -b cpu --set cluster.peak=3 --set cluster.peak=3 --digest "$INPUT")" = "$one" ]
}

@test "numbers that do not fit: the option and what is wanted are named" {
  refused 2 '--threads: "0"' "a number from 1 to 512 is wanted" -- sluice reco -j 0 "$INPUT"
  refused 2 '--repeat: "x"' "a number from 1 to 1000000 is wanted" -- sluice reco --repeat x "$INPUT"
  refused 2 '--memory: "12Q"' "a size" -- sluice reco --memory 12Q "$INPUT"
  refused 2 '--tracks: "70000"' "a number from 0 to 65000 is wanted" -- sluice simulate -o out --tracks 70000
  refused 2 '--orbits: "0"' "a number from 1 to 128 is wanted" -- sluice simulate -o out --orbits 0
  [ ! -e out ]
}

@test "a file's name does not drive the terminal: shown escaped, on both outputs" {
  name="$FARM/a"$'\n\033'"[31m.tf"
  cp "$INPUT" "$name"
  for line in "sluice tf info" "sluice tf verify" "sluice reco -b cpu" "sluice reco -b cpu --digest"; do
    run $line "$name"
    [ "$status" -eq 0 ]
    [[ $output == *'a\x0a\x1b[31m.tf'* && $output != *$'\033'* ]]
  done
  printf '' >"$name"
  run sluice tf info "$name"
  [ "$status" -ne 0 ]
  [[ $output == *'a\x0a\x1b[31m.tf'* && $output != *$'\033'* ]]
}
