#!/usr/bin/env bats
# Slurm beside it, the real one: a run and jobs while nodes change hands, marks, leases. What fails meanwhile: slurm_faults.bats.
load ../lib
load ../rig
load slurm

@test "nodes go to and fro 20 times while jobs of Slurm and a run go on: slurmctld stays, jobs elsewhere are left alone, no TF is lost" {
  cluster 9
  local pid_before witness i a b t
  pid_before=$(ctld)
  fakes 9 --seconds-per-tf 0.02
  wait_until 10 is '[.nodes[] | select(.usable)] | length' 4 sluice nodes
  wait_until 10 has_res n4
  run has_res n5; [ "$status" -ne 0 ]
  witness=$(sl sbatch --parsable -w n9 -o /dev/null --wrap 'sleep 600')
  sl sbatch --array=1-"$(scaled 2000)" --requeue -o /dev/null --chdir=/ --wrap 'sleep 0.3' >/dev/null
  run_start --sources 1
  source_start --count 1 --hold --rate 40 --size 100000 --tfs 1000000
  wait_until 10 is '.runs[0].done > 5' true sluice run show "$RUN"
  wait_until 10 job_is "$witness" RUNNING
  ours=(n1 n2 n3 n4) theirs=(n5 n6 n7 n8)
  for ((i = 0; i < $(scaled 20); i++)); do           # in soak each node goes to and fro 20 times and more
    a=${ours[0]} b=${theirs[0]}
    sluice move "$b" --to online --when now --wait --timeout 20s >/dev/null || { sluice moves; false; }
    sluice move "$a" --to async --wait --timeout 20s >/dev/null || { sluice moves; false; }
    has_res "$b"; has_no_res "$a"
    ours=("${ours[@]:1}" "$b") theirs=("${theirs[@]:1}" "$a")
    [[ $(ctld) == "$pid_before" ]] && kill -0 "$pid_before"
  done
  # nothing of Slurm runs on what is ours
  run sl squeue -h -t R,CG -w "$(IFS=,; echo "${ours[*]}")" -o '%i %N'
  [ -z "$output" ]
  # work of Slurm began again where it was given back
  wait_until 20 jobs_run_on "$(IFS=,; echo "${theirs[*]}")"
  # who waits does so for a node, not for a begin time
  run sl squeue -h -t PD -o '%r'
  [[ $output != *BeginTime* ]]
  [[ $(sl squeue -h -j "$witness" -o '%T %N') == "RUNNING n9" ]]
  [[ $(sl scontrol show job "$witness") == *"Restarts=0"* ]]
  sluice run stop "$RUN" --data-timeout 20s >/dev/null
  t=$(sluice run show "$RUN" --json)
  jq -r --arg moves "$((2 * i))" '.runs[0] | "\($moves) moves meanwhile; TFs announced \(.announced), done \(.done), lost \(.lost), failed \(.failed)"' <<<"$t"
  [ "$(jq '.runs[0].done' <<<"$t")" -gt 50 ]
  jq -e '.runs[0] | .announced == .done and .lost == 0 and .failed == 0 and .in_flight == 0' <<<"$t"
  sluice check >/dev/null
}
jobs_run_on() { [[ -n $(sl squeue -h -t R -w "$1" -o %i) ]]; }

@test "an administrator's drain at any step survives the move, and a resume of a node of ours starts nothing there; as an unprivileged user" {
  [[ $EUID -ne 0 ]] || AS=nobody
  ASYNC="n[5-6]" cluster 6
  local job before
  fakes 6
  # before the move
  sl scontrol update nodename=n5 state=drain reason="admin: before"
  wait_until 10 node_is n5 'marks[0].reason' "admin: before"
  # while jobs end: n6 is being emptied
  job=$(sl sbatch --parsable -w n6 -o /dev/null --chdir=/ --wrap 'sleep 600')
  wait_until 10 job_is "$job" RUNNING
  sluice move n5,n6 --to online >/dev/null
  wait_until 10 has_res n6
  sl scontrol update nodename=n6 state=drain reason="admin: during"
  wait_until 10 node_is n6 'marks[0].reason' "admin: during"
  wait_until 10 node_is n5 pool online
  node_is n6 pool async
  sluice moves --json | jq -e '.moves[] | select(.node == "n6") | .text | test("jobs of Slurm are there")'
  # nobody waits for that job any longer
  before=$(sluice moves --json | jq '.moves[0].id')
  run sluice move n6 --to online
  [[ $output == *"the same with --when now ends its waiting"* ]]
  sluice move n6 --to online --when now --wait --timeout 20s | grep -F "move $before from async to online: now, it waited"
  node_is n6 pool online
  job_is "$job" PENDING
  sl scancel "$job"
  # ours now, and marked; n4 is ours and whole: it is resumed without need
  sl scontrol update nodename=n4 state=drain reason="admin: on ours"
  wait_until 10 node_is n4 'marks[0].reason' "admin: on ours"
  sluice mark n3 "our own" >/dev/null
  wait_until 10 says_is n3 drained
  job=$(sl sbatch --parsable -w n3 -o /dev/null --chdir=/ --wrap 'sleep 600')
  sl scontrol update nodename=n3 state=resume
  wait_until 10 says_is n3 drained          # said again, as our mark is still there
  [[ $(sl sinfo -h -R -n n3 -o %E) == "sluice: our own"* ]]
  job_is "$job" PENDING
  sl scancel "$job"
  # our words there are those of a mark that stands; an administrator's are nobody else's to change
  sluice mark n3 "its fan is loud" >/dev/null
  sluice clear n3 "mended" --id "$(sluice node show n3 --json | jq '.nodes[0].marks[] | select(.reason == "our own") | .id')" >/dev/null
  wait_until 10 reason_is n3 "sluice: its fan is loud (*)"
  says_is n3 drained
  sluice mark n4 "ours beside it" >/dev/null
  sluice clear n4 "mended" >/dev/null
  # given back: every foreign drain is as it was
  sluice move n4,n5,n6 --to async --wait --timeout 20s >/dev/null
  has_no_res n4; has_no_res n5; has_no_res n6
  [[ $(sl sinfo -h -R -n n4 -o %E) == "admin: on ours" ]]
  [[ $(sl sinfo -h -R -n n5 -o %E) == "admin: before" ]]
  [[ $(sl sinfo -h -R -n n6 -o %E) == "admin: during" ]]
  # a resume there takes the mark away here; our own is ours to clear
  sl scontrol update nodename=n[4-6] state=resume
  wait_until 10 is '[.nodes[] | select(.name != "n3") | .marks[]] | length' 0 sluice nodes
  sluice clear n3 "done" >/dev/null
  wait_until 10 whole n3
}

@test "async work of ours has leases while there is work; one that is cancelled or preempted costs no TF; what waits says why; Slurm's records name our job" {
  local i job lease first
  ONLINE=n1 ASYNC="n[2-4]" LEASES=3 LEASE_PARTITION=spare LEASE_ACCOUNT=reco LEASE_CONSTRAINT='fake&fast' FEATURES="Features=fake,fast" cluster 4 "JobCompType=jobcomp/filetxt" "JobCompLoc=$LABDIR/jobcomp" "PreemptType=preempt/partition_prio" "PreemptMode=CANCEL" \
    "PartitionName=spare Nodes=n[1-4] PriorityTier=1 MaxTime=INFINITE State=UP" "PartitionName=urgent Nodes=n[1-4] PriorityTier=9 MaxTime=INFINITE State=UP"
  fakes 4 --seconds-per-tf 0.3
  for ((i = 0; i < 60; i++)); do ln -s "$(sample 2)" "$FARM/in$i.tf"; done
  job=$(sl sbatch --parsable -w n2 -p urgent -o /dev/null --wrap 'sleep 600')
  wait_until 10 job_is "$job" RUNNING
  no_leases
  wait_until 10 node_is n3 'devices[0].state' parked
  J=$(sluice submit "$FARM"/in*.tf --workflow none --output "$FARM/out")
  # the idle ones are taken, n2 is left to its job, and a lease waits for it
  wait_until 20 is '[.nodes[] | select(.slurm.lease == "held") | .name] | join(" ")' "n3 n4" sluice nodes
  wait_until 20 node_is n2 slurm.lease queued
  [[ $(sl squeue -h -w n3 -o '%j %T %N %P %y %l %k') == "sluice-lease-n3:$J RUNNING n3 spare 7 10:00 sluice: job $J" ]]
  sl scontrol show job "$(lease_of n3)" >"$FARM/lease"
  grep -q 'Account=reco' "$FARM/lease" && grep -q 'Features=fake&fast ' "$FARM/lease" || { cat "$FARM/lease"; false; }
  sluice why "$J" >"$FARM/why"
  grep -E 'LeaseQueued.*waits there to hold it for us: [A-Z]' "$FARM/why" || { cat "$FARM/why"; false; }
  sluice why n2 --json | jq -e '[.. | .code? // empty] | index("NoLease") != null and index("LeaseQueued") != null'
  wait_until 20 is '.jobs[0].done > 3' true sluice job show "$J"
  # cancelled by an administrator: another one comes, under another number
  lease=$(lease_of n3)
  sl scancel "$lease"
  wait_until 20 is '[.nodes[] | select(.name == "n3") | .slurm.lease_job] | .[0] != null and .[0] != '"$lease" true sluice nodes
  # preempted by somebody's urgent job, which begins at once
  wait_until 20 node_is n4 slurm.lease held
  first=$(lease_of n4)
  i=$(sl sbatch --parsable -w n4 -p urgent -o /dev/null --wrap 'sleep 600')
  wait_until 20 job_is "$i" RUNNING
  wait_until 10 node_is n4 slurm.lease queued
  sl scancel "$i"
  sluice wait job "$J" --timeout 60s
  sluice job show "$J" --json | jq -e '.jobs[0] | .done == 60 and .failed == 0'
  wait_until 20 no_leases
  wait_until 10 node_is n3 'devices[0].state' parked
  job_is "$job" RUNNING
  sl scontrol show job "$lease" | grep -q "Comment=sluice: job $J"
  wait_until 10 grep -q "^JobId=$lease .*Name=sluice-lease-n3:$J JobState=CANCELLED" "$LABDIR/jobcomp"
  grep -q "^JobId=$first .*Name=sluice-lease-n4:$J JobState=PREEMPTED .*Account=reco" "$LABDIR/jobcomp" || { cat "$LABDIR/jobcomp"; false; }
}

@test "a node that Slurm knows as another class than we do is asked for no lease, and it is said why; the others get theirs" {
  local i
  ONLINE=n1 ASYNC="n[2-3]" LEASES=1 LEASE_CONSTRAINT='fake&(ib|eth)' FEATURES="Features=fake,eth" cluster 3
  sl scontrol update NodeName=n2 AvailableFeatures=other,ib ActiveFeatures=other,ib
  fakes 3 --seconds-per-tf 0.3
  wait_until 10 node_is n2 'devices[0].state' parked
  for ((i = 0; i < 40; i++)); do ln -s "$(sample 2)" "$FARM/in$i.tf"; done
  J=$(sluice submit "$FARM"/in*.tf --workflow none --output "$FARM/out")
  # the only lease that may be is not held up by the node that cannot have it
  wait_until 20 node_is n3 slurm.lease held
  [[ $(sl scontrol -o show job "$(lease_of n3)") == *" Features=fake&(ib|eth) "* ]]
  node_is n2 slurm.lease_why "its features are other,ib in Slurm, and class fake wants 'fake&(ib|eth)' there (slurm_constraint): no lease is asked for"
  sluice node show n2 | grep -E 'lease +none: its features are other,ib in Slurm'
  sluice why "$J" | grep -F "its features are other,ib in Slurm"
  sluice why n2 | grep -F "no lease is asked for"
  # slurmctld was not asked, so it has no record of a job that it refused
  mark_two_looks
  no_alarm SlurmRefused
  [ "$(event slurm_commands_failed)" = 0 ]
  [[ $(sl scontrol -o show job) != *sluice-lease-n2* ]]
  # it is told otherwise, and n3 is what cannot have one
  sl scontrol update NodeName=n2 AvailableFeatures=fake,ib ActiveFeatures=fake,ib
  sl scontrol update NodeName=n3 AvailableFeatures=eth ActiveFeatures=eth
  sl scancel "$(lease_of n3)"
  wait_until 20 node_is n2 slurm.lease held
  sluice job cancel "$J" >/dev/null
  wait_until 20 no_leases
}

@test "a lease of a minute: the worker yields before Slurm's limit, the next lease is taken, each TF is done once" {
  [ -n "${SLUICE_SOAK:-}" ] || skip "takes three minutes: Slurm's limits are whole minutes"
  local i again
  ONLINE=n1 ASYNC=n2 LEASES=1 LEASE_TIME=60 LEASE_PARTITION=short cluster 2 "JobCompType=jobcomp/filetxt" "JobCompLoc=$LABDIR/jobcomp" "OverTimeLimit=0" "PartitionName=short Nodes=n2 MaxTime=1 State=UP"
  fakes 2 --seconds-per-tf 7
  for ((i = 0; i < 24; i++)); do ln -s "$(sample 2)" "$FARM/in$i.tf"; done
  J=$(sluice submit "$FARM"/in*.tf --workflow none --output "$FARM/out")
  sluice wait job "$J" --timeout 300s
  wait_until 30 no_leases
  sluice job show "$J" --json | jq -e '.jobs[0] | .done == 24 and .failed == 0'
  # each was given back with time left, none was ended by Slurm
  wait_until 10 jobs_recorded "sluice-lease-n2:$J" 2
  cat "$LABDIR/jobcomp"
  run grep -c TIMEOUT "$LABDIR/jobcomp"
  [ "$output" = 0 ]
  grep -q "TimeLimit=1 " "$LABDIR/jobcomp"
  grep -o 'StartTime=[^ ]* EndTime=[^ ]*' "$LABDIR/jobcomp" | tr '=' ' ' | while read -r _ a _ b; do [ $(($(date -d "$b" +%s) - $(date -d "$a" +%s))) -lt 60 ]; done
  grep -q "lease: ends in 1[0-9] s, takes nothing new" "$FARM/sluiced.log"
  # what had another try was taken away by us, a quarter of that before the end
  again=$(sluice job tfs "$J" --json | jq '[.tasks[] | select(.attempt > 1)] | length')
  [ "$again" = "$(sed -n 's/.*: \([0-9]*\) TFs go elsewhere: the lease is over$/\1/p' "$FARM/sluiced.log" | awk '{ n += $1 } END { print n + 0 }')" ]
  run grep "Slurm ended the lease" "$FARM/sluiced.log"
  [ -z "$output" ]
}

@test "a lease that is suspended is the lease of its node: no other one is asked for, and it is taken up again when it goes on" {
  ONLINE=n1 ASYNC=n2 LEASES=1 cluster 2
  local i lease before
  fakes 2 --seconds-per-tf 0.5
  for ((i = 0; i < 60; i++)); do ln -s "$(sample 2)" "$FARM/in$i.tf"; done
  J=$(sluice submit "$FARM"/in*.tf --workflow none --output "$FARM/out")
  wait_until 20 node_is n2 slurm.lease held
  lease=$(lease_of n2)
  sl scontrol suspend "$lease"
  wait_until 10 node_is n2 slurm.lease_why Suspended
  sluice why "$J" | grep -F "job $lease of Slurm waits there to hold it for us: Suspended"
  before=$(metric 'sluice_events_total{event="slurm_commands"}')
  mark_two_looks
  [ "$(metric 'sluice_events_total{event="slurm_commands"}')" = "$before" ]
  [ "$(sl squeue -h -o %j | grep -c sluice-lease)" = 1 ]
  sl scontrol resume "$lease"
  wait_until 20 node_is n2 slurm.lease held
  node_is n2 slurm.lease_job "$lease"
  sluice job cancel "$J" >/dev/null
  wait_until 20 no_leases
}
# mark_two_looks: Slurm was looked at since (a mark there comes here)
mark_two_looks() {
  sl scontrol update nodename=n1 state=drain reason="a look"
  wait_until 10 node_is n1 'marks[0].reason' "a look"
  sl scontrol update nodename=n1 state=resume
  wait_until 10 is '.nodes[0].marks | length' 0 sluice node show n1
}

@test "what has not changed is not sent again, and what changes is seen at the next look; jobs that are being ended are not asked for all the time" {
  local job before looks told
  ONLINE=n1 ASYNC=n2 cluster 2
  fakes 2
  wait_until 20 has_res n1
  # slurmctld says nothing about nodes in five looks in a row
  wait_until 20 quiet_looks 5
  looks=$(event slurm_looks) told=$(event slurm_looks_with_nodes)
  [ $((looks - told)) -ge 5 ]
  # then everything once something has changed, and nothing again
  sl scontrol update nodename=n2 state=drain reason="a change"
  wait_until 10 node_is n2 'marks[0].reason' "a change"
  [ "$(event slurm_looks_with_nodes)" -gt "$told" ]
  sl scontrol update nodename=n2 state=resume
  wait_until 10 is '.nodes[0].marks | length' 0 sluice node show n2
  wait_until 20 quiet_looks 5
  # reservations neither; one that has begun by the clock alone is seen all the same, and one that is gone
  sl scontrol create reservationname=upkeep nodes=n1 users=root starttime="$(date -d '+4 seconds' +%Y-%m-%dT%H:%M:%S)" duration=60 flags=maint,ignore_jobs >/dev/null
  wait_until 20 is '[.nodes[0].marks[].reason] | join(" ")' "reservation upkeep in Slurm" sluice node show n1
  sl scontrol delete reservationname=upkeep
  wait_until 10 is '.nodes[0].marks | length' 0 sluice node show n1
  # jobs that take their time to end
  job=$(sl sbatch --parsable -w n2 --requeue -o /dev/null --chdir=/ --wrap 'trap "" TERM; while :; do sleep 0.2; done')
  wait_until 10 job_is "$job" RUNNING
  before=$(event slurm_commands)
  sluice move n2 --to online --when now --wait --timeout 30s >/dev/null
  [ $(($(event slurm_commands) - before)) -lt 45 ]
}
# quiet_looks N: so many looks have gone by without a word about nodes (slurmctld touches its nodes every few seconds, and says so for the second that follows)
quiet_looks() {
  local looks told was since
  looks=$(event slurm_looks) told=$(event slurm_looks_with_nodes)
  read -r was since 2>/dev/null <"$FARM/looks" || true
  [[ ${was:-} == "$told" ]] || { echo "$told $looks" >"$FARM/looks"; since=$looks; }
  [[ $((looks - since)) -ge $1 ]] || { echo "$looks looks, $told with nodes"; return 1; }
}

@test "an administrator's drain set at a random moment of a move survives it; a device that leaks keeps the node; who else reserves it marks it; a reservation near its end is renewed" {
  local i to
  RANDOM=$((SEED % 32768))
  ONLINE=n1 ASYNC=n2 cluster 2
  mkdir "$FARM/leaks"
  fakes 2 --seconds-per-tf 0.3 --leak-dir "$FARM/leaks"
  wait_until 20 has_res n1
  run_start --sources 1
  source_start --count 1 --hold --rate 3 --size 100000 --tfs 1000000
  wait_until 20 done_at_least 5
  for ((i = 0; i < $(scaled 6); i++)); do
    to=online; ((i % 2 == 0)) || to=async
    sluice move n2 --to $to >/dev/null
    sleep "0.$((RANDOM % 6))$((RANDOM % 10))"
    sl scontrol update nodename=n2 state=drain reason="admin: $i"
    wait_until 20 node_is n2 pool $to
    wait_until 10 node_is n2 'marks[0].reason' "admin: $i"
    [[ $(sl sinfo -h -R -n n2 -o %E) == "admin: $i" ]]
    ((i % 3)) || continue                # it stays for the next one, too
    sl scontrol update nodename=n2 state=resume
    wait_until 10 is '.nodes[0].marks | length' 0 sluice node show n2
  done
  sl scontrol update nodename=n2 state=resume 2>/dev/null || true
  [[ $(pool_of n2) == online ]] || sluice move n2 --to online --wait --timeout 20s >/dev/null
  wait_until 20 node_is n2 usable true
  # memory of its device does not come back
  touch "$FARM/leaks/n2"
  sluice move n2 --to async >/dev/null
  wait_until 10 is '.moves[0].text' "memory of a device is still in use" sluice moves
  has_res n2
  node_is n2 pool online
  rm "$FARM/leaks/n2"
  wait_until 20 node_is n2 pool async
  has_no_res n2
  # somebody else's reservation counts where the node is ours, and stays
  sl scontrol create reservationname=upkeep nodes=n1,n2 users=root starttime=now duration=60 flags=maint,ignore_jobs >/dev/null
  wait_until 10 is '[.nodes[0].marks[] | .owner + ": " + .reason] | join(" ")' "reservation: reservation upkeep in Slurm" sluice node show n1
  node_is n2 'marks | length' 0
  sl scontrol delete reservationname=upkeep
  wait_until 10 is '.nodes[0].marks | length' 0 sluice node show n1
  # both words side by side
  sl scontrol update nodename=n1 state=drain reason="fan is loud"
  wait_until 10 nodes_say "n1 online bad idle+drain*: fan is loud*"
  sl scontrol update nodename=n1 state=resume
  sl scontrol update reservationname=sluice-n1 endtime=now+2days
  wait_until 10 lasts_a_year n1
  sluice run stop "$RUN" --data-timeout 20s >/dev/null
  sluice run show "$RUN" --json | jq -e '.runs[0] | .announced == .done and .lost == 0 and .failed == 0'
}
# shellcheck disable=SC2053
nodes_say() { local line; line=$(sluice nodes -N -o name,pool,state,slurm | tr -s ' ' | grep "^${1%% *} "); [[ $line == $1 ]] || { echo "$line"; return 1; }; }
lasts_a_year() { local end; end=$(sl scontrol show res "sluice-$1" | sed -n 's/.*EndTime=\([^ ]*\).*/\1/p'); [ "$(date -d "$end" +%s)" -gt $(($(date +%s) + 300 * 86400)) ] || { echo "$end"; return 1; }; }

@test "a node that is observed: marks flow both ways, and nobody reserves it or hands it over; one that has nothing to do with Slurm is left alone" {
  sluiced_conf() {
    printf 'class fake { devices = 2 shm = 1G }\nnode n1 { class = fake slurm = observe }\nnode n2 { class = fake }\nslurm { poll = 0.2 settle = 1 timeout = 3 conf = %s }\n' "$LABDIR/slurm.conf" >"$FARM/conf"
  }
  cluster 2
  fakes 2
  wait_until 20 node_is n1 slurm.state idle
  node_is n1 slurm.mode observe
  node_is n2 slurm null
  sl scontrol update nodename=n1,n2 state=drain reason="admin: fan"
  wait_until 10 node_is n1 'marks[0].reason' "admin: fan"
  node_is n2 'marks | length' 0
  sl scontrol update nodename=n1,n2 state=resume
  wait_until 10 node_is n1 'marks | length' 0
  sluice mark n1,n2 "our own" >/dev/null
  wait_until 10 says_is n1 drained
  sluice clear n1,n2 "over" >/dev/null
  wait_until 10 whole n1
  sluice move n1,n2 --to async --wait --timeout 20s >/dev/null
  has_no_res n1
  sluice move n1,n2 --to online --wait --timeout 20s >/dev/null
  has_no_res n1
  run ! grep -E 'n2.*drain|_slurm_rpc_update_node.*n2.*sluice|sluice-n' "$LABDIR/log/slurmctld.log"
}

@test "sluice-slurm alone is linked with libslurm" {
  run bash -c "cd '$SLUICE_BUILDDIR' && for p in sluice sluiced sluice-worker sluice-reco sluice-source sluice-slurm; do ! readelf -d \$p | grep -q 'NEEDED.*libslurm' || echo \$p; done"
  [ "$output" = sluice-slurm ]
}

@test "the helper compiles against what later releases made of slurm.h" {
  [[ -r /usr/include/slurm/slurm.h ]] || skip "no slurm.h here (libslurm-dev)"
  "$SLUICE_SRCDIR/tests/slurm/shapes"
}

@test "a real worker: its reconstruction process ends before Slurm has the node, the worker stays, and the process is there again when the node comes back" {
  local before worker
  real_class
  sluiced_conf() {
    printf 'class real { devices = 1 shm = 16M nominal_ms = 20 }\nnode n1 { class = real slurm = lend }\nslurm { poll = 0.2 settle = 1 timeout = 3 conf = %s }\n' "$LABDIR/slurm.conf" >"$FARM/conf"
  }
  cluster 2
  worker n1 --
  wait_until 20 has_res n1
  wait_until 20 node_is n1 'devices[0].state' free
  before=$(sluice node show n1 --json | jq '.nodes[0].devices[0].pid') worker=$PID_n1
  [ -d "/proc/$before" ]
  sluice move n1 --to async --wait --timeout 20s >/dev/null
  [ ! -d "/proc/$before" ]
  has_no_res n1
  node_is n1 'devices[0].state' parked
  kill -0 "$worker"
  # a worker that starts anew on a node that Slurm has starts no process
  kill "$worker"; wait_until 10 ended "$worker"
  worker n1 --
  wait_until 20 node_is n1 'devices[0].state' parked
  run pgrep -f -P "$PID_n1" attach
  [ -z "$output" ]
  sluice move n1 --to online --wait --timeout 20s >/dev/null
  wait_until 20 node_is n1 'devices[0].state' free
  run_start --sources 1
  background replay sluice-source replay --server "unix:$SLUICE_SOCKET" --run "$RUN" --loop 10 --rate max "$(sample 2)"
  wait_until 20 done_at_least 10
  node_is n1 'devices[0].restarts' 0
  sluice run stop "$RUN" --data-timeout 20s >/dev/null
}
