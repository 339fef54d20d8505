# shellcheck shell=bash
# slurm.bash - for the bats files here: a real Slurm with nodes on this host, sluiced with its helper, fake workers of the same names; load it after lib and rig

LAB=$SLUICE_SRCDIR/tests/slurm/lab

need_slurm() {
  [[ -x $SLUICE_BUILDDIR/sluice-slurm ]] || skip "built without libslurm (libslurm-dev)"
  PATH=$PATH:/usr/sbin
  for p in slurmctld slurmd munged sbatch; do command -v $p >/dev/null || skip "no $p here (slurmctld slurmd slurm-client munge)"; done
}

# as the user under test: root, or nobody when AS is set
as() { if [[ ${AS:-} == nobody ]]; then as_nobody "$@"; else "$@"; fi; }

lab() { as env "SLURM_LAB_DIR=$LABDIR" "SLURM_LAB_CONF=${LAB_CONF:-}" "SLURM_LAB_NODE=${FEATURES:-}" "$LAB" "$@" 2>>"$LABDIR.out" 3>&- || { tail -n 20 "$LABDIR.out"; return 1; }; }
ctld() { cat "$LABDIR/run/ctld.pid"; }
sl() { as env "SLURM_CONF=$LABDIR/slurm.conf" timeout 20 "$@"; }

setup() {
  need_slurm
  rig_setup
  LABDIR=$(mktemp -d /tmp/sluice-lab.XXXXXX)      # its sockets want a short path
  chmod 755 "$LABDIR"
}
teardown() {
  [[ -n ${LABDIR:-} ]] || return 0
  local rc=0
  kill -CONT "$(ctld 2>/dev/null)" 2>/dev/null || true
  farm_teardown || rc=1
  lab stop || rc=1
  rm -rf "$LABDIR" "$LABDIR.out"
  return $rc
}

# cluster N LINE...: a Slurm of N nodes, its slurm.conf with these lines besides, and sluiced; the last node is Slurm's for good, n1 and what ONLINE says are ours at first.
cluster() {
  local n=$1
  shift
  LAB_CONF=$(printf '%s\n' 'SchedulerParameters=batch_sched_delay=0' 'KillWait=2' "$@")
  [[ ${AS:-} != nobody || $EUID -ne 0 ]] || chown nobody "$LABDIR" "$FARM" "$FARM/farm"
  touch "$LABDIR.out"; chmod 666 "$LABDIR.out"
  lab start "$n"
  sluiced_conf
  farm_start
}
sluiced_conf() {
  {
    echo "class fake { devices = 2 shm = 1G ${LEASE_CONSTRAINT:+slurm_constraint = '$LEASE_CONSTRAINT'} }"
    echo "node \"${ONLINE:-n[1-4]}\" { class = fake slurm = lend }"
    echo "node \"${ASYNC:-n[5-9]}\" { class = fake pool = async slurm = lend }"
    echo "slurm { poll = 0.2 settle = 1 timeout = ${TIMEOUT:-3} conf = $LABDIR/slurm.conf max_leases = ${LEASES:-0} lease_nice = 7 lease_time = ${LEASE_TIME:-600} ${LEASE_PARTITION:+partition = $LEASE_PARTITION} ${LEASE_ACCOUNT:+account = $LEASE_ACCOUNT} ${HELPER:+program = $HELPER} }"
    [[ ${AS:-} != nobody || $EUID -ne 0 ]] || echo 'role admin { users = { root } }'
  } >"$FARM/conf"
}
farm_start() {
  if [[ ${AS:-} == nobody && $EUID -eq 0 ]]; then
    start sluiced setpriv --reuid=nobody --regid=nogroup --clear-groups env "HOME=$FARM" -- sluiced --config "$FARM/conf" --state "$FARM/farm/state" --socket "$SLUICE_SOCKET" --log "$FARM/farm/sluiced.log"
  else
    daemon
  fi
}

# fakes N [OPTION...]: a fake worker a node
fakes() { local n=$1; shift; start workers -- "$FAKES/fake-worker" --server "unix:$SLUICE_SOCKET" --count "$n" --name-prefix n --width 1 --class fake --devices 2 --quiet "$@"; }

node_is() { is ".nodes[0].$2" "$3" sluice node show "$1"; }
# say NODE: what Slurm says of it
says() { sl sinfo -h -N -n "$1" -o '%T' | head -n 1; }
whole() { [[ $(says "$1") != *drain* && $(says "$1") != *down* ]] || { says "$1"; return 1; }; }
says_is() { [[ $(says "$1") == "$2" ]] || { says "$1"; return 1; }; }
has_res() { sl scontrol show res "sluice-$1" >/dev/null 2>&1; }
has_no_res() { ! has_res "$1"; }
job_is() { [[ $(sl squeue -h -j "$1" -o %T 2>/dev/null) == "$2" ]]; }
job_reason() { sl squeue -h -j "$1" -o %r; }

pool_of() { sluice node show "$1" --json | jq -r '.nodes[0].pool'; }
# shellcheck disable=SC2053
reason_is() { local r; r=$(sl sinfo -h -R -n "$1" -o %E); [[ $r == $2 ]] || { echo "$r"; return 1; }; }
# jobs_recorded NAME N: so many of that name have ended, at least
jobs_recorded() { [[ $(grep -c " Name=$1 " "$LABDIR/jobcomp") -ge $2 ]]; }
lease_of() { sl squeue -h -t R -o '%i %j' | awk -v n="sluice-lease-$1:" 'index($2, n) == 1 { print $1 }'; }
no_leases() { [[ -z $(sl squeue -h -o %j | grep sluice-lease) ]]; }
alarm() { is '[.status[0].alarms[] | select(.word == "'"$1"'") | .text | test("'"$2"'")] | any' true sluice status || { sluice status; return 1; }; }
no_alarm() { is '[.status[0].alarms[].word] | index("'"$1"'")' null sluice status || { sluice status; return 1; }; }
