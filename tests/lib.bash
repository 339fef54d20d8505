# shellcheck shell=bash
# lib.bash - for the bats files: farms in a scratch folder, daemons under a wrapper, waiting for a condition
#
# A test drives the real programs of $SLUICE_BUILDDIR through the real command. Every wait has a deadline and looks at the condition
# itself. teardown proves that nothing is left: no process of this farm, nothing of it in /dev/shm.

bats_require_minimum_version 1.5.0
: "${SLUICE_BUILDDIR:?the build tree to test}" "${SLUICE_SRCDIR:?the source tree}"
PATH=$SLUICE_BUILDDIR:$PATH
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=1:abort_on_error=0} UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}
SCALE=${SLUICE_TEST_SCALE:-1}
export NO_COLOR=1
unset SLUICE_SOCKET SLUICE_CONF
# What is random comes from SEED: the same every time, afresh in soak, given by SLUICE_TEST_SEED.
SEED=${SLUICE_TEST_SEED:-${SLUICE_SOAK:+$RANDOM$RANDOM}}
SEED=${SEED:-1}

# scaled N: N, or more of it in soak. For loops.
scaled() { awk -v n="$1" -v s="$SCALE" 'BEGIN { v = int(n * s); print v < 1 ? 1 : v }'; }

# farm_setup: FARM is this test's folder; SLUICE_SOCKET points to it. Readable by nobody, so that tests may run as that user.
farm_setup() {
  FARM=$(mktemp -d "${TMPDIR:-/tmp}/sluice-test.XXXXXX")
  chmod 755 "$FARM"
  export FARM SLUICE_SOCKET=$FARM/farm/sluiced.sock
  STARTED=()
}

# farm_up [UP OPTIONS]: a farm in $FARM/farm.
farm_up() { sluice up --dir "$FARM/farm" "$@" 3>&-; }

# jq: gojq where it is installed. It starts in a tenth of jq's time, which costs more than all the programs that are waited for.
# And its -e fails when there was nothing to read, as jq's does not.
if command -v gojq >/dev/null; then
  jq() {
    local arg args=()
    for arg; do
      case $arg in -S) ;; -[a-zA-Z]*S*) args+=("${arg//S/}") ;; *) args+=("$arg") ;; esac      # it sorts keys without being told
    done
    command gojq "${args[@]}"
  }
  export -f jq
fi

# wait_until SECONDS COMMAND...: until the command succeeds; fails, and shows what it said last, when the time is over. It asks seldom once
# it has waited a while, and without a search for leaks: what it asks costs more than what it waits for.
wait_until() {
  local limit=$1 end out tries=0
  shift
  end=$((SECONDS + limit))
  until out=$(ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0 "$@" 2>&1); do
    if [[ $SECONDS -ge $end ]]; then
      echo "not within $limit s: $*"; echo "$out"
      return 1
    fi
    if ((tries++ < 4)); then sleep 0.05; else sleep 0.2; fi
  done
}

# json FILTER COMMAND...: what the command's --json document says.
json() { local filter=$1; shift; "$@" --json | jq -er "$filter"; }

# is FILTER EXPECTED COMMAND...: for wait_until.
is() { local filter=$1 want=$2 got; shift 2; got=$("$@" --json | jq -r "$filter") && [[ $got == "$want" ]] || { echo "$filter is '$got', not '$want'"; return 1; }; }

# start NAME [WRAPPER...] -- PROGRAM ARGS...: a daemon in the background, its pid in PID_NAME; returns when it says that it is ready
# (or fails with its reason). The wrapper may be valgrind, faketime, prlimit, ….
start() {
  local name=$1 wrap=() line fifo
  shift
  while [[ $1 != -- ]]; do wrap+=("$1"); shift; done
  shift
  fifo=$FARM/$name.ready
  rm -f "$fifo"; mkfifo "$fifo"
  "${wrap[@]}" "$@" --ready-fd 9 9>"$fifo" >>"$FARM/$name.out" 2>&1 3>&- &
  printf -v "PID_$name" %s $!
  STARTED+=($!)
  if ! read -r -t "${START_LIMIT:-20}" line <"$fifo" || [[ $line != ready ]]; then
    echo "$name did not start: ${line:-no word within ${START_LIMIT:-20} s}"; tail -n 5 "$FARM/$name.out"
    return 1
  fi
}

# ON_ONE: for busy loops and what must live beside them: all on one processor, the last this test may use, so that the others stay free.
ON_ONE=(taskset -c "$(taskset -pc $$ | sed 's/.*[ ,-]//')")

# ended PID: true when the process has ended, with all its threads: a zombie has when it is alone. Until then files are open and locks held.
ended() {
  local stat threads
  { read -r stat <"/proc/$1/stat" && threads=(/proc/"$1"/task/[0-9]*); } 2>/dev/null || return 0
  [[ ${stat##*) } == Z* && ${#threads[@]} -le 1 ]]
}
export -f ended

# as_nobody COMMAND...: what root would make void runs as nobody.
as_nobody() {
  if [[ $EUID -eq 0 ]]; then
    setpriv --reuid=nobody --regid=nogroup --clear-groups env "HOME=$FARM" "$@"
  else
    "$@"
  fi
}

# farm_processes: pids of processes whose command line names this farm.
farm_processes() {
  local p exe
  while read -r p exe; do
    [[ $exe == *sluice* || $exe == *fake-* ]] && grep -qsaF "$FARM" "$p/cmdline" && echo "${p#/proc/}"
  done < <(find /proc/[0-9]*/exe -maxdepth 0 -printf '%h %l\n' 2>/dev/null)
}
no_processes() { [[ -z $(farm_processes) ]] || { echo "still there:"; ps -o pid,stat,args -p "$(farm_processes | paste -sd,)"; return 1; }; }

# farm_teardown: ends the farm, then proves that nothing is left.
farm_teardown() {
  local pid rc=0 leftover
  if [[ -e $FARM/farm/lock ]]; then          # up was at work there
    leftover=$(cat "$FARM/farm/shm-dir" 2>/dev/null || true)
    sluice down --dir "$FARM/farm" >"$FARM/down.out" 2>&1 || { cat "$FARM/down.out"; rc=1; }
  fi
  for pid in "${STARTED[@]}"; do
    kill -CONT "$pid" 2>/dev/null; kill -TERM "$pid" 2>/dev/null
  done
  for pid in "${STARTED[@]}"; do wait_until 10 ended "$pid" || { kill -KILL "$pid"; rc=1; }; done
  wait_until 10 no_processes || { kill -KILL $(farm_processes) 2>/dev/null; rc=1; }
  if [[ -n ${leftover:-} && -e $leftover ]]; then
    echo "left in shared memory: $(ls -lR "$leftover")"; rm -rf "$leftover"; rc=1
  fi
  if grep -lE 'ERROR: (Address|Leak|Thread)Sanitizer|runtime error:' -r "$FARM" --include='*.out' --include='*.log' >"$FARM/san" 2>/dev/null; then
    while read -r f; do echo "sanitizer report in $f:"; grep -m1 -A25 -E 'ERROR: (Address|Leak|Thread)Sanitizer|runtime error:' "$f"; done <"$FARM/san"
    rc=1
  fi
  [[ $rc -ne 0 ]] && { tail -n 15 "$FARM"/farm/log/*.log 2>/dev/null; tail -n 15 "$FARM"/*.out 2>/dev/null; }
  rm -rf "$FARM"
  return $rc
}

# samples: a file with the three sample time-frames, made once a build tree. SAMPLE_SIZES has their bytes.
samples() {
  local file=$SLUICE_BUILDDIR/tests/samples.tf
  [[ -f $file ]] || { mkdir -p "${file%/*}"; zstd -q -d -f "$SLUICE_SRCDIR/tests/data/tpc-3tf.tf.zst" -o "$file.$$" && mv "$file.$$" "$file"; }
  echo "$file"
}
SAMPLE_SIZES=(2978600 6789640 1675304)

# sample N: one sample time-frame (0, 1 or 2) as a file of its own.
sample() {
  local file=$SLUICE_BUILDDIR/tests/sample-$1.tf all offset=0 i
  all=$(samples)
  for ((i = 0; i < $1; i++)); do offset=$((offset + SAMPLE_SIZES[i])); done
  [[ -f $file ]] || { tail -c +$((offset + 1)) "$all" | head -c "${SAMPLE_SIZES[$1]}" >"$file.$$" && mv "$file.$$" "$file"; }
  echo "$file"
}

# XXH3-64 of the reference results for the three samples, in order (the layouts of doc/formats.md).
DIGITS=(75e9a39b9f994927 52d101151e3c4217 b378dea2b46187af)
CLUSTERS=(e4c449fc1a4b796d 40ac7aa6f7ac2ad2 1a5b4b9a344e4192)
xxh3() { xxhsum -H3 "$1" | sed 's/.* = //'; }
