# shellcheck shell=bash
# rig.bash - for the bats files: sluiced with fakes, rooms of its own (mounts, network), processes beside the farm
#
# A room is a private mount (and network) namespace held by one process that dies with the test: whatever happens nothing stays mounted.
# Load it after lib.

FAKES=$SLUICE_BUILDDIR/tests/fake

# rig_setup: farm_setup, and a configuration with one class of nodes, which are added by hand.
rig_setup() {
  farm_setup
  mkdir -p "$FARM/farm"
  printf 'class fake {\n  devices = 1\n  shm = 1G\n}\n' >"$FARM/conf"
}

# room NAME [unshare options] -- SCRIPT: a room, prepared by SCRIPT. IN_NAME is the command that runs another one in there, ROOM_NAME its root as seen from here.
room() {
  local name=$1 options=() line fifo
  shift
  while [[ $1 != -- ]]; do options+=("$1"); shift; done
  fifo=$FARM/$name.room
  mkfifo "$fifo"
  [[ $EUID -eq 0 ]] || options+=(--map-root-user)
  unshare --mount --propagation private "${options[@]}" setpriv --pdeathsig KILL \
    bash -c "set -e; $2; echo ready >&9; exec 9>&- sleep infinity" 9>"$fifo" >>"$FARM/$name.out" 2>&1 3>&- &
  STARTED+=($!)
  if ! read -r -t 20 line <"$fifo" || [[ $line != ready ]]; then
    echo "no room $name:"; cat "$FARM/$name.out"
    return 1
  fi
  printf -v "PID_$name" %s "$!"
  printf -v "ROOM_$name" %s "/proc/$!/root"
  # its root too: entering the mounts alone would leave the root that this test may run in (a chroot)
  eval "IN_$name=(nsenter --target $! --mount --root=/proc/$!/root)"
  [[ " ${options[*]} " != *" --net "* ]] || eval "IN_$name+=(--net)"
  [[ $EUID -eq 0 ]] || eval "IN_$name+=(--user --preserve-credentials)"
}
# rooms_possible: private mounts can be made here.
rooms_possible() { if [[ $EUID -eq 0 ]]; then unshare -m true; else unshare -rm true; fi 2>/dev/null; }
need_rooms() { rooms_possible || skip "no private mounts can be made here"; }
need_root() { [[ $EUID -eq 0 ]] || skip "only root can $1"; need_rooms; }

# background NAME COMMAND...: something beside the farm, ended at the end. Its pid is in PID_NAME, its words in $FARM/NAME.out.
background() {
  local name=$1
  shift
  "$@" >>"$FARM/$name.out" 2>&1 3>&- &
  printf -v "PID_$name" %s $!
  STARTED+=($!)
}

daemon() { start sluiced "$@" -- sluiced --config "$FARM/conf" --state "$FARM/state" --socket "$SLUICE_SOCKET" --log "$FARM/sluiced.log"; }
daemon_kill() { kill -KILL "$PID_sluiced"; wait_until 10 ended "$PID_sluiced"; }
nodes_add() { sluice node add "$1" --class fake >/dev/null; }
# workers N [OPTION...]: fake workers n001 ..., all registered.
workers() { local n=$1; shift; start workers -- "$FAKES/fake-worker" --server "unix:$SLUICE_SOCKET" --count "$n" --quiet "$@"; }
run_start() { RUN=$(sluice run start --workflow none "$@"); }
# source_start [OPTION...]: fake sources of the run in the background.
source_start() { background source "$FAKES/fake-source" --server "unix:$SLUICE_SOCKET" --run "$RUN" --quiet "$@"; }

run_number() { sluice run show "$RUN" --json | jq ".runs[0].$1"; }
done_at_least() { [[ $(run_number done) -ge $1 ]]; }
# stream_goes_on [N]: N more TFs get done.
stream_goes_on() { local now; now=$(run_number done); wait_until 20 done_at_least $((now + ${1:-10})); }
alarm() { sluice status --json | jq -er --arg w "$1" '.status[0].alarms[] | select(.word == $w) | .text'; }
no_alarm() { ! alarm "$1" 2>/dev/null; }
# event NAME: how often sluiced counted it.
event() { sluice metrics | awk -v e="sluice_events_total{event=\"$1\"}" '$1 == e { n = $2 } END { print n + 0 }'; }
metric() { sluice metrics | awk -v m="$1" '$1 == m { print $2; found = 1 } END { exit !found }'; }
ticks() { awk '{ print $14 + $15 }' "/proc/$1/stat"; }
worker_status() { jq -er "$2" "$FARM/farm/run/$1/status.json"; }
worker_is() { local got; got=$(worker_status "$1" "$2") && [[ $got == "$3" ]] || { echo "$2 is '$got', not '$3'"; return 1; }; }
# run_settled: no TF is under way, nothing is charged, and sluiced can prove it.
run_settled() {
  wait_until 30 is '.runs[0].in_flight' 0 sluice run show "$RUN"
  sluice run stop "$RUN" >/dev/null
  sluice check >"$FARM/check.txt" || { cat "$FARM/check.txt"; return 1; }
  is '[.nodes[] | .tfs + .buffer_charged] | add' 0 sluice nodes
  [ "$(event illegal_steps)" = 0 ] || { grep 'no step it may take' "$FARM/sluiced.log"; return 1; }
}

# munge_script: for the script of a room: munged's folder where libmunge looks for it, the same for all rooms. Then munge_start ROOM runs munged.
munge_script() { mkdir -p -m 755 "$FARM/munge"; echo "mount -t tmpfs -o mode=755 tmpfs /run; mkdir -p /run/munge; mount --bind $FARM/munge /run/munge"; }
munge_start() {
  local in="IN_$1[@]"
  head -c 64 /dev/urandom >"$FARM/munge/key"; chmod 600 "$FARM/munge/key"
  background munged "${!in}" munged --foreground --force --num-threads=2 --key-file=/run/munge/key --socket=/run/munge/munge.socket.2 \
    --pid-file=/run/munge/pid --log-file=/run/munge/log --seed-file=/run/munge/seed
  wait_until 20 test -S "$FARM/munge/munge.socket.2"
}

# worker NODE [WRAPPER...] -- [OPTION...]: a real worker of class real, with folders in the farm's.
worker() {
  local node=$1 wrap=()
  shift
  while [[ $1 != -- ]]; do wrap+=("$1"); shift; done
  shift
  mkdir -p "$FARM/shm"
  START_LIMIT=40 start "${node//-/_}" "${wrap[@]}" -- sluice-worker --server "${SERVER:-unix:$SLUICE_SOCKET}" --node "$node" --class real --config "$FARM/conf" \
    --run-dir "$FARM/farm/run/$node" --log "$FARM/$node.log" --shm-dir "$FARM/shm" --shm 16M "$@"
}
# real_class [MS]: in the configuration: emulated devices.
real_class() { printf 'class real {\n  devices = 1\n  shm = 16M\n  nominal_ms = %d\n}\n' "${1:-20}" >>"$FARM/conf"; }
nodes_real() { sluice node add "$1" --class real >/dev/null; }
node_is() { is ".nodes[] | select(.name == \"$1\") | $2" "$3" sluice nodes; }
