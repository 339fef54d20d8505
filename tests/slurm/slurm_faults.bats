#!/usr/bin/env bats
# Slurm beside it, the real one, with faults: slurmctld, munged, the helpers and sluiced killed or stopped, answers that get lost, a broken slurm.conf, rights that are missing.
load ../lib
load ../rig
load slurm

# late_helper: the real one, but the first call of each command of Slurm is carried out and never comes back
late_helper() {
  command -v "${CC:-cc}" >/dev/null || skip "no compiler here"
  "${CC:-cc}" -shared -fPIC -D_GNU_SOURCE -o "$FARM/late.so" -x c - <<'C'
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static void late(const char *name)
{
    char path[300];

    snprintf(path, sizeof(path), "%s/late.%s", getenv("LATE_DIR"), name);
    if (open(path, O_CREAT | O_EXCL | O_WRONLY, 0644) >= 0)
        for (;;)
            pause();
}
#define LATE(type, name, args, pass) type name args { type (*real) args = (type (*) args)dlsym(RTLD_NEXT, #name); type r = real pass; late(#name); return r; }
LATE(int, slurm_update_node, (void *m), (m))
LATE(char *, slurm_create_reservation, (void *m), (m))
LATE(int, slurm_update_reservation, (void *m), (m))
LATE(int, slurm_delete_reservation, (void *m), (m))
LATE(int, slurm_submit_batch_job, (void *m, void **out), (m, out))
LATE(int, slurm_requeue2, (char *id, unsigned flags, void **out), (id, flags, out))
LATE(int, slurm_update_job2, (void *m, void **out), (m, out))
LATE(int, slurm_kill_job2, (const char *id, unsigned short signal, unsigned short flags, const char *more), (id, signal, flags, more))
C
  HELPER=$FARM/helper
  printf '#!/bin/sh\nexec env LD_PRELOAD=%s LATE_DIR=%s ASAN_OPTIONS=%s:verify_asan_link_order=0 %s "$@"\n' "$FARM/late.so" "$FARM" "$ASAN_OPTIONS" "$(realpath "$SLUICE_BUILDDIR/sluice-slurm")" >"$HELPER"
  chmod 755 "$HELPER"
}
was_late() { [[ -e $FARM/late.slurm_$1 ]] || { ls "$FARM"; return 1; }; }

@test "what was done, and whose answer got lost, is not done twice: reservations, drains, requeued jobs, leases" {
  local job never before
  late_helper
  ONLINE=n1 ASYNC="n[2-4]" LEASES=1 TIMEOUT=1 cluster 4 "JobCompType=jobcomp/filetxt" "JobCompLoc=$LABDIR/jobcomp"
  fakes 4 --seconds-per-tf 0.2
  wait_until 20 was_late create_reservation
  wait_until 20 node_is n1 slurm.reserved true
  sluice mark n1 "our own" >/dev/null
  wait_until 20 was_late update_node
  wait_until 20 says_is n1 drained
  wait_until 20 reason_is n1 "sluice: our own*"        # set by the second try: the first ended after the drain
  wait_until 20 node_is n1 slurm.trouble null
  sluice clear n1 "over" >/dev/null
  wait_until 20 whole n1
  # Slurm lets its job begin anew at once, and just once
  job=$(sl sbatch --parsable -w n2 --requeue -o /dev/null --chdir=/ --wrap 'sleep 600')
  never=$(sl sbatch --parsable -w n3 --no-requeue -o /dev/null --chdir=/ --wrap 'sleep 600')
  wait_until 10 job_is "$job" RUNNING
  wait_until 10 job_is "$never" RUNNING
  sluice move n2 --to online --when now >/dev/null
  wait_until 30 node_is n2 pool online
  was_late requeue2
  was_late update_job2
  sl scontrol show job "$job" | grep -q "Restarts=1"
  [[ $(job_reason "$job") != BeginTime ]]
  # when its time has come, not before
  before=$SECONDS
  sluice move n3 --to online --deadline 3s >/dev/null
  wait_until 10 has_res n3
  job_is "$never" RUNNING
  wait_until 30 node_is n3 pool online
  [ $((SECONDS - before)) -ge 2 ]
  was_late kill_job2
  wait_until 10 grep -q "^JobId=$never .*JobState=CANCELLED" "$LABDIR/jobcomp"
  sluice move n2,n3 --to async --wait --timeout 30s >/dev/null || { sluice moves; sluice node show n2; cat "$FARM/sluiced.log"; false; }
  was_late delete_reservation
  sl scancel "$job"
  # one lease
  J=$(sluice submit "$(sample 2)" --workflow none --output "$FARM/out")
  wait_until 20 was_late submit_batch_job
  sluice wait job "$J" --timeout 60s
  wait_until 30 no_leases
  wait_until 10 jobs_recorded "sluice-lease-n[2-4]:$J" 1
  [ "$(grep -c "Name=sluice-lease-" "$LABDIR/jobcomp")" -eq 1 ] || { cat "$LABDIR/jobcomp"; grep lease "$FARM/sluiced.log"; false; }
  sluice job show "$J" --json | jq -e '.jobs[0] | .done == 1 and .failed == 0'
}

# helpers_kill: both of them, by their parent
helpers_kill() { local p; for p in /proc/[0-9]*; do [[ $(awk '{print $4}' "$p/stat" 2>/dev/null) == "$PID_sluiced" ]] && kill -KILL "${p#/proc/}"; done; true; }

@test "slurmctld killed, stopped and restarted, helpers, sluiced and munged killed, slurm.conf broken: both sides agree again by themselves" {
  cluster 6
  local i
  fakes 6
  agree() {
    local n
    for n in n1 n2 n3; do has_res $n || return 1; done
    for n in n4 n5; do has_no_res $n || return 1; done
    [[ $(says n2) == drained ]] && node_is n5 'marks[0].reason' "admin: bad" && node_is n1 'slurm.reserved' true
  }
  ours() { for n in n1 n2 n3; do wait_until 20 has_res $n; done; }
  sl scontrol update nodename=n5 state=drain reason="admin: bad"          # first: slurmctld saves some seconds after its answer
  ours
  sluice move n4 --to async --wait --timeout 20s >/dev/null
  sluice mark n2 "our own" >/dev/null
  wait_until 20 agree
  wait_until 10 grep -aq "admin: bad" "$LABDIR/state/node_state"
  # killed right after its answer: what it had not saved is said again
  sluice mark n1 "short" >/dev/null; wait_until 10 says_is n1 drained
  lab down -9 ctld
  sluice clear n1 "gone" >/dev/null
  lab up ctld
  wait_until 20 whole n1
  wait_until 20 agree
  # stopped: the alarm, and nobody waits
  kill -STOP "$(ctld)"
  wait_until 20 is '[.status[0].alarms[].word] | index("SlurmSilent") != null' true sluice status
  wait_until 10 silent_says "has not answered since $(date -u +%Y-%m-%dT).*: .+"
  sluice mark n3 "while it stood" >/dev/null
  timeout 2 sluice ping >/dev/null
  kill -CONT "$(ctld)"
  wait_until 20 says_is n3 drained
  wait_until 20 is '[.status[0].alarms[].word] | index("SlurmSilent")' null sluice status
  sluice clear n3 "over" >/dev/null
  # helpers, and sluiced itself with a move under way
  helpers_kill
  wait_until 20 whole n3
  sluice move n4 --to online >/dev/null
  daemon_kill
  farm_start
  wait_until 20 node_is n4 pool online
  sluice move n4 --to async >/dev/null
  helpers_kill
  wait_until 20 node_is n4 pool async
  # munged
  lab down munged
  wait_until 20 silent_says munged
  lab up munged
  wait_until 20 is '[.status[0].alarms[].word] | index("SlurmSilent")' null sluice status
  # a typing error in slurm.conf ends the helpers only
  cp "$LABDIR/slurm.conf" "$FARM/good"
  echo "NoSuchKey=1" >>"$LABDIR/slurm.conf"
  helpers_kill
  wait_until 10 silent_says "$LABDIR/slurm.conf.*NoSuchKey"
  cat "$FARM/good" >"$LABDIR/slurm.conf"
  # the next helper is 5 s away at most
  wait_until 20 is '[.status[0].alarms[].word] | index("SlurmSilent")' null sluice status
  wait_until 20 agree
}
# silent_says REGEX: the alarm does
silent_says() { is '[.status[0].alarms[] | select(.word == "SlurmSilent") | .text | test("'"$1"'")] | any' true sluice status || { sluice status; return 1; }; }

# evidence_says NODE REGEX: its first mark's
evidence_says() { sluice node show "$1" --json | jq -e --arg r "$2" '.nodes[0].marks[0].evidence | test($r)' >/dev/null; }

@test "what slurmctld forgets with its state stays a mark, what is refused keeps no mark waiting, and a second farm with the same nodes is told of" {
  ONLINE="n[1-2]" ASYNC="n[3-4]" LEASES=1 LEASE_PARTITION=nosuch cluster 4
  local begun
  fakes 4
  wait_until 20 has_res n2
  # a lease is refused again and again; a mark on that node is told at the next look
  J=$(sluice submit "$(sample 2)" --workflow none --output "$FARM/out")
  wait_until 20 alarm SlurmRefused "Invalid partition"
  wait_until 20 refused 3                   # the next try is 4 s away
  begun=$SECONDS
  sluice mark n3 "hw is broken" >/dev/null
  wait_until 10 says_is n3 drained
  [ $((SECONDS - begun)) -le 2 ]
  sluice clear n3 "mended" >/dev/null
  wait_until 10 whole n3
  sluice job cancel "$J" >/dev/null
  wait_until 10 no_alarm SlurmRefused
  # slurmctld is started without its state
  sl scontrol update nodename=n4 state=drain reason="admin: keep n4"
  wait_until 10 node_is n4 'marks[0].reason' "admin: keep n4"
  lab down -9 ctld
  rm -f "$LABDIR"/state/node_state*
  lab up ctld
  wait_until 20 says_is n4 idle
  wait_until 20 evidence_says n4 "not said any more"
  sluice clear n4 "seen" --any-owner >/dev/null
  wait_until 10 is '.nodes[0].marks | length' 0 sluice node show n4
  # our reservation is opened to somebody else
  sl scontrol update reservationname=sluice-n2 users=daemon
  wait_until 10 node_is n2 'marks[0].reason' "reservation sluice-n2 in Slurm"
  wait_until 10 alarm SlurmRefused "sluice-n2 is not ours, or not any more: it is for daemon and has 1 node;"
  sl scontrol delete reservationname=sluice-n2
  wait_until 40 has_res n2
  wait_until 10 is '.nodes[0].marks | length' 0 sluice node show n2
  # a second farm that has n1 in pool async
  wait_until 20 has_res n1
  sed "s/n\[1-2\]/n2/; s/n\[3-4\]/n[1,3-4]/" "$FARM/conf" >"$FARM/conf2"
  mkdir "$FARM/farm2"
  start sluiced2 -- sluiced --config "$FARM/conf2" --state "$FARM/farm2/state" --socket "$FARM/farm2/sock" --log "$FARM/farm2/log"
  wait_until 30 alarm SlurmContested "n1 first: its reservation was removed"
  SLUICE_SOCKET=$FARM/farm2/sock wait_until 30 alarm SlurmContested "n1 first: its reservation was made again"
  kill "$PID_sluiced2"; wait_until 10 ended "$PID_sluiced2"
  wait_until 20 has_res n1
}
refused() { [[ $(metric 'sluice_events_total{event="slurm_commands_failed"}') -ge $1 ]]; }

@test "a right that is missing in Slurm is named with the user; what waits for Slurm says so" {
  [[ $EUID -eq 0 ]] || skip "needs two users"
  touch "$LABDIR.out"
  lab start 3
  AS=nobody ONLINE=n1 ASYNC="n[2-3]"
  chown nobody "$FARM" "$FARM/farm"
  chmod 666 "$LABDIR.out"
  sluiced_conf
  farm_start
  fakes 3
  wait_until 20 alarm SlurmRefused "user nobody is no operator of Slurm"
  run sluice move n2 --to online --wait --timeout 1s
  [ "$status" -ne 0 ]
  [[ $output == *"is not done yet: "*"user nobody is no operator"* ]]
  AS=
  lab down ctld
  wait_until 20 alarm SlurmSilent "has not answered since"
  no_alarm SlurmRefused
  sluice node show n1 | grep -E 'slurm +silent; said .* ago: idle'
  sluice nodes -o name,slurm | grep -F '(silent) idle'
  sluice submit "$(sample 2)" --workflow none --output "$FARM/out" >/dev/null
  wait_until 20 alarm JobsStuck "SlurmSilent"
  lab up ctld
}

@test "slurm.conf that is broken, gone or empty is named with what is wrong with it, whether the helpers were started before or after" {
  cluster 2
  wait_until 20 has_res n1
  cp "$LABDIR/slurm.conf" "$FARM/good"
  echo "NoSuchKey=1" >>"$LABDIR/slurm.conf"
  wait_until 10 silent_says "$LABDIR/slurm.conf.*NoSuchKey"
  rm "$LABDIR/slurm.conf"
  wait_until 20 silent_says "$LABDIR/slurm.conf.*No such file"
  : >"$LABDIR/slurm.conf"
  wait_until 20 silent_says "$LABDIR/slurm.conf.*ClusterName"
  cat "$FARM/good" >"$LABDIR/slurm.conf"
  wait_until 20 is '[.status[0].alarms[].word] | index("SlurmSilent")' null sluice status
  sluice mark n1 "again" >/dev/null
  wait_until 10 says_is n1 drained
}

# ---- faults at random points of moves and leases: FAULT does it and takes it back ----
STOOD=$(awk -v soak="${SLUICE_SOAK:-}" 'BEGIN { print soak == "" ? 5 : 30 }')
SILENT=$(awk -v soak="${SLUICE_SOAK:-}" 'BEGIN { print soak == "" ? 4 : 60 }')
fault_ctld_killed() { lab down -9 ctld; lab up ctld; }
fault_ctld_away() { lab down -9 ctld; sleep "$SILENT"; lab up ctld; }
fault_ctld_stopped() { local p; p=$(ctld); kill -STOP "$p"; sleep "$STOOD"; kill -CONT "$p"; }
fault_helpers_killed() { helpers_kill; }
fault_sluiced_killed() { daemon_kill; farm_start; }
fault_munged_killed() { lab down -9 munged; sleep 1; rm -f "$LABDIR/munge/socket"*; lab up munged; }
fault_conf_broken() { cp "$LABDIR/slurm.conf" "$FARM/good"; echo "NoSuchKey=1" >>"$LABDIR/slurm.conf"; helpers_kill; sleep 2; cat "$FARM/good" >"$LABDIR/slurm.conf"; }
FAULTS=(ctld_killed ctld_stopped helpers_killed sluiced_killed munged_killed conf_broken ctld_away)

# whose NODE...: the reservation is where pool says that it is ours
whose() { local n; for n; do if [[ $(pool_of "$n") == online ]]; then has_res "$n"; else has_no_res "$n"; fi || { echo "$n: $(pool_of "$n")"; return 1; }; done; }
step_to() { local to=async; [[ $(pool_of "$1") == online ]] || to=online; sluice move "$1" --to $to "${@:2}" >/dev/null 2>&1 || true; }
foreign_gone() {
  local n
  # "Duplicate jobid" and the like, after slurmctld was killed: Slurm's own, which an administrator resumes
  for n in n{1..6}; do [[ $(sl sinfo -h -N -n $n -o '%T %E' | head -n 1) == *d[or][wa][ni]*" sluice: "* ]] || sl scontrol update nodename=$n state=resume 2>/dev/null || true; done
  # gone with slurmctld's state: kept here until somebody says so
  for n in $(sluice nodes --json | jq -r '.nodes[] | select(any(.marks[]; .evidence // "" | test("not said any more"))) | .name'); do sluice clear "$n" "resumed" --any-owner >/dev/null || true; done
  is '[.nodes[].marks[] | select(.owner_kind == "slurm")] | length' 0 sluice nodes
}

@test "faults at random points of moves and leases: both sides agree again, no TF of a run or a job is lost, the loop never stands still" {
  local i n f t array
  RANDOM=$((SEED % 32768))
  ONLINE="n[1-3]" ASYNC="n[4-6]" LEASES=2 cluster 6
  fakes 6 --seconds-per-tf 0.1
  for n in n{1..3}; do wait_until 20 has_res $n; done
  for ((i = 0; i < 40; i++)); do ln -s "$(sample 2)" "$FARM/in$i.tf"; done
  array=$(sl sbatch --parsable --array=1-2000%3 --requeue -o /dev/null --chdir=/ --wrap 'sleep 0.5')
  run_start --sources 1
  source_start --count 1 --hold --rate 20 --size 100000 --tfs 1000000
  wait_until 20 done_at_least 5
  JOBS=()
  for ((i = 0; i < $(scaled 4); i++)); do
    f=${FAULTS[i < ${#FAULTS[@]} ? (i + SEED) % ${#FAULTS[@]} : RANDOM % ${#FAULTS[@]}]} t=$((RANDOM % 1200))
    echo "seed $SEED, step $i: $f after $t ms"
    step_to n$((3 + RANDOM % 4)) --when "$( ((RANDOM % 2)) && echo now || echo drained)"
    step_to n$((3 + RANDOM % 4))
    ((i % 2)) || JOBS+=("$(sluice submit "$FARM"/in*.tf --workflow none --output "$FARM/out$i")")
    sleep "$(awk "BEGIN { print $t / 1000 }")"
    "fault_$f"
    stream_goes_on 5
  done
  sl scancel "$array"                       # it was there first: leases would wait for its last task
  wait_until 60 is '.moves | length' 0 sluice moves
  for n in n{4..6}; do [[ $(pool_of $n) == async ]] || sluice move $n --to async --wait --timeout 60s >/dev/null; done
  wait_until 60 foreign_gone
  wait_until 60 whose n{1..6}
  wait_until 60 is '[.status[0].alarms[].word | select(startswith("Slurm"))] | length' 0 sluice status
  for i in "${JOBS[@]}"; do
    sluice wait job "$i" --timeout 120s
    sluice job show "$i" --json | jq -e '.jobs[0] | .done == 40 and .failed == 0'
  done
  wait_until 30 no_leases
  sluice run stop "$RUN" --data-timeout 20s >/dev/null
  sluice run show "$RUN" --json >"$FARM/run"
  jq -r --arg late "$(metric sluice_loop_stalled_seconds_max)" --arg jobs "${#JOBS[@]}" '.runs[0] | "TFs announced \(.announced), done \(.done), lost \(.lost), failed \(.failed); \($jobs) jobs of 40 each; the loop was late by \($late) s at most"' "$FARM/run"
  jq -e '.runs[0] | .announced == .done and .lost == 0 and .failed == 0 and .in_flight == 0' "$FARM/run"
  sluice check >/dev/null
  [[ $(metric sluice_loop_stalled_seconds_max) < 1 ]]
}
