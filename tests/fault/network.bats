#!/usr/bin/env bats
# Over TCP between two networks of the test's own: munge, the whole path, a cut wire; addresses in all forms.
load ../lib
load ../rig

setup() { rig_setup; need_root "make networks"; }
teardown() { farm_teardown; }

# two_networks: rooms a (10.9.0.1, sluiced) and b (10.9.0.2: workers, sources) with a wire between them, one munged for both.
two_networks() {
  room a --net -- "$(munge_script); ip link set lo up"
  room b --net -- "$(munge_script); ip link set lo up"
  "${IN_a[@]}" ip link add wire-a type veth peer name wire-b netns "$PID_b"
  "${IN_a[@]}" ip addr add 10.9.0.1/24 dev wire-a; "${IN_a[@]}" ip link set wire-a up
  "${IN_b[@]}" ip addr add 10.9.0.2/24 dev wire-b; "${IN_b[@]}" ip link set wire-b up
  munge_start a
  printf 'listen = "10.9.0.1:7000"\nauth = munge\n' >>"$FARM/conf"
}
cut() { "${IN_a[@]}" ip link set wire-a down; }
heal() { "${IN_a[@]}" ip link set wire-a up; }
sluice_b() { "${IN_b[@]}" timeout 30 sluice --server 10.9.0.1:7000 "$@"; }
# replay_b LOOPS RATE: in the background; a source in b for the run.
replay_b() {
  background replay "${IN_b[@]}" sluice-source replay --server 10.9.0.1:7000 --listen 10.9.0.2:7100 --run "$RUN" --loop "$1" --rate "$2" "$(sample 2)"
}

@test "TCP without a method of authentication is refused at the start, and one that nobody answers for is refused to peers" {
  printf 'listen = "127.0.0.1:7447"\n' >>"$FARM/conf"
  run timeout 10 sluiced --config "$FARM/conf" --state "$FARM/state" --socket "$SLUICE_SOCKET"
  [ "$status" -eq 2 ]
  [[ $output == *"auth = munge"* ]]
  [ ! -S "$SLUICE_SOCKET" ]
  printf 'auth = none\n' >>"$FARM/conf"
  run timeout 10 sluiced --config "$FARM/conf" --state "$FARM/state" --socket "$SLUICE_SOCKET"
  [ "$status" -eq 2 ]
}

@test "the whole path between two machines: digits are those of the reference; the wire is cut for a moment and for long" {
  two_networks
  real_class 30
  daemon "${IN_a[@]}"
  [ "$(sluice_b status --json | jq -r '.status[0].state')" = running ]
  nodes_real 'n[001-002]'
  SERVER=10.9.0.1:7000 worker n001 "${IN_b[@]}" --
  wait_until 20 node_is n001 .usable true
  RUN=$(sluice run start --workflow decode --output "$FARM/out")
  replay_b 100000 20
  wait_until 30 done_at_least 10
  [ "$(xxh3 "$FARM/out/$RUN/tf-3.digits")" = "${DIGITS[2]}" ]

  # a moment: 1 s (3 s in soak), below the time-out of 4 s: nobody is down
  cut; sleep $(( SLUICE_SOAK ? 3 : 1 )); heal
  stream_goes_on 20
  is '.runs[0] | [.failed, .lost] | join(" ")' "0 0" sluice run show "$RUN"
  ! grep -q 'n001.*connection closed' "$FARM/sluiced.log"

  # longer than the time-out: down within 5 s, said on both sides; then all comes back, and nothing is lost
  cut
  wait_until 8 node_is n001 '[.state, .why[0]] | join(" ")' "down ContactLost"
  wait_until 8 worker_is n001 '[.state, .word] | join(" ")' "error NoScheduler"
  [[ $(worker_status n001 .reason) == *"10.9.0.1"* ]]
  [[ $(alarm NodesLost) == *n001* ]]
  [ -z "${SLUICE_SOAK:-}" ] || sleep 7
  heal
  wait_until 40 node_is n001 .usable true
  wait_until 20 worker_is n001 .state running
  stream_goes_on 20
  kill -TERM "$PID_replay"; wait_until 10 ended "$PID_replay"
  timeout 60 sluice run stop "$RUN" --data-timeout 1s
  is '.runs[0] | [.failed, .in_flight] | join(" ")' "0 0" sluice run show "$RUN"
  n=$(run_number done)
  [ "$(ls "$FARM/out/$RUN" | grep -c '\.digits$')" -eq "$n" ]
  [ -z "$(find "$FARM/out" -name '*.a[0-9]*')" ]
  sluice check
}

@test "munge gone: who comes is refused with a sentence, who is there stays; back again it works" {
  two_networks
  daemon "${IN_a[@]}"
  nodes_add n001
  "${IN_b[@]}" true
  START_LIMIT=20 start fakes "${IN_b[@]}" -- "$FAKES/fake-worker" --server 10.9.0.1:7000 --method munge --count 1 --quiet
  wait_until 10 node_is n001 .usable true
  kill -STOP "$PID_munged"
  run sluice_b ping
  echo "$status $output"
  [ "$status" -ne 0 ]; [ "$status" -ne 124 ]
  [[ $output == *munge* ]]
  sluice ping
  node_is n001 .usable true
  kill -CONT "$PID_munged"
  wait_until 20 sluice_b ping
}

@test "B46 addresses in all forms are heard and reached; of a name with two addresses the one that answers" {
  printf '127.0.0.1 localhost\n::1 localhost6\n127.0.0.1 both.test\n2001:db8::1 both.test\n' >"$FARM/hosts"
  room a --net -- "$(munge_script); ip link set lo up; mount --bind $FARM/hosts /etc/hosts
    ip link add void type veth peer name void2; ip link set void up; ip link set void2 up
    ip -6 addr add 2001:db8::2/64 dev void nodad; ip -6 neigh add 2001:db8::1 lladdr 02:00:00:00:00:01 dev void"
  munge_start a
  printf 'auth = munge\n' >>"$FARM/conf"
  local listen address
  while read -r listen address; do
    start sluiced "${IN_a[@]}" -- sluiced --config "$FARM/conf" --state "$FARM/state" --socket "$SLUICE_SOCKET" --listen "$listen" --log "$FARM/sluiced.log"
    for a in ${address//,/ }; do
      run "${IN_a[@]}" timeout 20 sluice --server "$a" ping
      [ "$status" -eq 0 ] || { echo "$listen heard, $a: $output"; false; }
    done
    kill -TERM "$PID_sluiced"; wait_until 10 ended "$PID_sluiced"
  done <<'END'
[::1]:7000 [::1]:7000
::1 ::1,[::1]:7447
[::ffff:127.0.0.1]:7000 127.0.0.1:7000,[::ffff:127.0.0.1]:7000
127.0.0.1:7000 127.0.0.1:7000,[::ffff:127.0.0.1]:7000,both.test:7000
127.0.0.1 127.0.0.1,127.0.0.1:7447,both.test
*:7000 127.0.0.1:7000,[::1]:7000,localhost:7000,both.test:7000
both.test:7000 both.test:7000
END
  for a in '[::1:7000' '[127.0.0.1]:7000' '::g' 'host:99999' '[::1]7000' 'host:' '::1:70000:'; do
    run "${IN_a[@]}" timeout 20 sluice --server "$a" ping
    [ "$status" -eq 2 ] || { echo "$a: $status $output"; false; }
  done
}

@test "B46 an address that only its own machine can reach is not advertised to others" {
  printf '127.0.1.1 thishost.test\n10.9.0.2 b.test\n' >"$FARM/hosts"
  two_networks
  "${IN_b[@]}" mount --bind "$FARM/hosts" /etc/hosts
  daemon "${IN_a[@]}"
  RUN=$(sluice run start --workflow none)
  for listen in 127.0.0.1:7100 '[::1]:7100' localhost:7100 '[::ffff:127.0.0.1]:7100' thishost.test:7100 ':7100' "unix:$FARM/s.sock"; do
    run "${IN_b[@]}" timeout 20 sluice-source replay --server 10.9.0.1:7000 --listen "$listen" --run "$RUN" "$(sample 2)"
    echo "$listen: $status $output"
    [ "$status" -eq 2 ]
    [[ $output == *"cannot reach it"* ]]
  done
  # a program that does not look itself is refused by sluiced
  run "${IN_b[@]}" timeout 20 "$FAKES/fake-source" --server 10.9.0.1:7000 --method munge --run "$RUN" --count 1 --listen 127.0.0.1:7100 --tfs 1 --quiet
  echo "$status $output"
  [ "$status" -ne 0 ]
  [[ $output == *"of its own machine only"* ]]
  is '.runs[0].sources_connected' 0 sluice run show "$RUN"
}

@test "B46 a name that stops resolving, and a name service that hangs, hold up no loop; the worker comes back when they do" {
  two_networks
  printf '10.9.0.1 sched.test\n' >"$FARM/hosts"; printf 'nameserver 127.0.0.1\noptions timeout:2 attempts:1\n' >"$FARM/resolv"
  "${IN_b[@]}" mount --bind "$FARM/hosts" /etc/hosts
  [ ! -e /etc/resolv.conf ] || "${IN_b[@]}" mount --bind "$FARM/resolv" /etc/resolv.conf
  # takes questions and never answers
  background dns "${IN_b[@]}" perl -MIO::Socket::INET -e 'my $s = IO::Socket::INET->new(LocalAddr => "127.0.0.1:53", Proto => "udp") or die $!; open my $f, ">", $ARGV[0]; close $f; while ($s->recv(my $b, 512)) { open my $g, ">>", $ARGV[0]; print $g "asked\n"; close $g }' "$FARM/dns"
  wait_until 10 test -e "$FARM/dns"
  real_class 10
  daemon "${IN_a[@]}"
  nodes_real n001
  SERVER=sched.test:7000 worker n001 "${IN_b[@]}" --
  wait_until 20 node_is n001 .usable true
  echo '10.9.0.9 other.test' >"$FARM/hosts"
  daemon_kill
  daemon "${IN_a[@]}"
  wait_until 30 worker_is n001 '[.state, .word] | join(" ")' "error NoScheduler"
  wait_until 30 test -s "$FARM/dns"
  wait_until 30 eval '[[ $(worker_status n001 .reason) == *sched.test* ]]'
  # its loop stood still for nothing: a tick that comes late is in its log
  ! grep -q 'stood still' "$FARM/n001.log"
  echo '10.9.0.1 sched.test' >"$FARM/hosts"
  wait_until 40 node_is n001 .usable true
  # a stop in the midst of a question that hangs: within its time
  : >"$FARM/hosts"; : >"$FARM/dns"
  daemon_kill
  wait_until 30 test -s "$FARM/dns"
  kill -TERM "$PID_n001"; wait_until 5 ended "$PID_n001"
}

@test "B22 the wire to a worker is cut for 1, 10 and 100 s while a TF of a job runs there: before the lease ends nothing starts again; after it another try, one result, the loser stopped" {
  two_networks
  real_class 1
  daemon "${IN_a[@]}"
  sluice node add 'n[001-002]' --class real --pool async >/dev/null
  far() { SERVER=10.9.0.1:7000 worker n001 "${IN_b[@]}" env "FAKE_RECO_DOES=as:$FARM/does-n001" -- --reco "$FAKES/reco"; }
  far
  wait_until 20 node_is n001 .usable true
  job() { sluice job show "$1" --json | jq -r '.jobs[0] | [.state, .done, .failed, .retried, .running] | join(" ")'; }
  job_says() { local got; got=$(job "$1"); [[ $got == "$2" ]] || { echo "job $1: '$got', not '$2'"; return 1; }; }

  # 1 s: below the lease of 4 s: nothing starts again
  echo slow:2500 >"$FARM/does-n001"
  id=$(sluice submit "$(sample 2)" --workflow decode --output "$FARM/out")
  wait_until 20 job_says "$id" "running 0 0 0 1"
  cut; sleep 1; heal
  sluice wait job "$id" --timeout 30s
  job_says "$id" "done 1 0 0 0"
  [ "$(sluice job tfs "$id" --json | jq -r '.tasks[0] | "\(.node) \(.attempt)"')" = "n001 1" ]

  local s sum long
  # 10 s, and 100 s (14 in check): the TF is done by the other, the one that was away gives up, or comes too late
  START_LIMIT=40 worker n002 env "FAKE_RECO_DOES=as:$FARM/does-n002" -- --reco "$FAKES/reco"
  wait_until 20 node_is n002 .usable true
  long=14; [[ -z ${SLUICE_SOAK:-} ]] || long=100
  for s in 10 $long; do
    echo "slow:$((s * 1000 + 8000))" >"$FARM/does-n001"
    echo copy >"$FARM/does-n002"
    sluice mark n002 "the test wants the other" >/dev/null
    id=$(sluice submit "$(sample 2)" --workflow decode --output "$FARM/out-$s")
    wait_until 20 job_says "$id" "running 0 0 0 1"
    sluice clear n002 "enough" >/dev/null
    wait_until 10 eval 'sluice nodes --json | jq -e "[.nodes[] | select(.name == \"n001\") | .processing] == [1]"'
    cut
    sleep 2
    job_says "$id" "running 0 0 0 1"                      # the lease holds
    wait_until 15 job_says "$id" "done 1 0 1 0"
    [ "$(sluice job tfs "$id" --json | jq -r '.tasks[0] | "\(.node) \(.attempt)"')" = "n002 2" ]
    sum=$(md5sum "$FARM/out-$s"/*)
    sleep $((s - 5))
    heal
    wait_until 40 node_is n001 .usable true
    wait_until 20 node_is n001 '[.tfs, .processing, .buffer_used] | join(" ")' "0 0 0"     # the loser was stopped, long before its end
    [ "$sum" = "$(md5sum "$FARM/out-$s"/*)" ]
    [ -z "$(find "$FARM/out-$s" -name '*.a[0-9]*')" ]
    job_says "$id" "done 1 0 1 0"
  done
  sluice check
}
