#!/usr/bin/env bats
# diag: an archive for a report, with sluiced there, away, or standing still.
load ../lib
load ../rig

setup() { rig_setup; cd "$FARM"; export SLUICE_LIBEXEC=$SLUICE_BUILDDIR SLUICE_TEST_TOKEN=t0ken-of-the-environment; }
teardown() { cd /; farm_teardown; }

# unpacked ARCHIVE: in $FARM/unpacked.
unpacked() { rm -rf unpacked; mkdir unpacked; tar -xf "$1" -C unpacked; }

@test "diag on a farm: a whole tar file with versions, configuration, status, logs and checks; no secret, nobody else reads it" {
  printf '# password: hunter2\nlog = "%s/sluiced.log"\n' "$FARM" >>conf
  start sluiced -- sluiced --config conf --state state --socket "$SLUICE_SOCKET"
  nodes_add 'n[1-3]'; workers 2 --width 1
  sluice mark n1 "fan is loud" >/dev/null
  run --separate-stderr sluice diag report.tar --config conf
  [ "$status" -eq 0 ] || { echo "$stderr"; false; }
  [ "$output" = report.tar ]
  [ "$(stat -c %a report.tar)" = 600 ]
  unpacked report.tar
  cd unpacked
  [ "$(jq -r '.nodes | length' nodes.json)" = 3 ]
  grep -q 'marks 1' status.txt
  [ "$(jq -r '.shm | length' shm.json)" = 3 ]
  grep -q '^n1 ' shm.txt
  jq -e '.health[0].brakes | length == 2' health.json
  [ -s health.txt ]
  grep -q 'all hold' check.txt
  grep -q "sluiced $(sluiced --version | sed 's/.* //')" version-sluiced.txt
  grep -q 'class .fake' config.txt
  diff <(grep -v '^socket\|^state_dir' config.txt) <(grep -v '^socket\|^state_dir' config-running.txt)
  grep -q 'sluice_up 1' metrics.txt
  grep -q 'fan is loud' history.jsonl
  grep -q 'listening on' log/sluiced.log log/sluiced-recent.txt
  grep -q MemTotal machine/meminfo
  ! grep -rqE "hunter2|$SLUICE_TEST_TOKEN" .
  # every part is in the index, and those of a sluiced that is away are not there
  while read -r f; do grep -q "^${f#./}: " index.txt; done < <(find . -maxdepth 1 -type f ! -name index.txt)
  [ ! -e check-state.txt ]
  cd ..
  run sluice diag report.tar           # never over what is there
  [ "$status" -eq 1 ]
  [[ $output == *report.tar* ]]
}

@test "diag without sluiced: the state and the configuration are checked, the log's last lines are there, and it says what is wrong" {
  mkdir sluice-farm
  export SLUICE_SOCKET=$FARM/sluice-farm/sluiced.sock
  cp conf sluice-farm/sluice.conf
  mkdir sluice-farm/log
  start sluiced -- sluiced --config sluice-farm/sluice.conf --state sluice-farm/state --socket "$SLUICE_SOCKET" --log sluice-farm/log/sluiced.log
  nodes_add n1
  daemon_kill
  yes 'a line of the log' | head -n 100000 >>sluice-farm/log/sluiced.log; echo 'the last words' >>sluice-farm/log/sluiced.log
  printf 'colour = hunter2\n' >>sluice-farm/sluice.conf
  run --separate-stderr sluice diag
  [ "$status" -eq 0 ]
  unpacked "$output"
  cd unpacked
  grep -q "sluiced at unix:$SLUICE_SOCKET: .*" index.txt
  grep -qE '^check-state.txt: sluiced --check .*: exit status 2' index.txt
  grep -q "sluice.conf:4: no such option 'colour'" index.txt || grep -q "no such option 'colour'" index.txt
  [ "$(tail -n 1 log/sluiced.log)" = 'the last words' ]
  [ "$(stat -c %s log/sluiced.log)" -le 1048576 ]
  [ "$(head -n 1 log/sluiced.log)" = 'a line of the log' ]
  ! grep -rq hunter2 .
  [ ! -e nodes.json ]
  cd ..
  sed -i '/colour/d' sluice-farm/sluice.conf
  unpacked "$(sluice diag good.tar)"
  grep -qE '^check-state.txt: sluiced --check .*: exit status 0' unpacked/index.txt
  [ -s unpacked/check-state.txt ]
}

@test "diag while sluiced stands still: it comes to an end, and says so" {
  daemon
  kill -STOP "$PID_sluiced"
  SECONDS=0
  run --separate-stderr sluice diag still.tar --config conf
  kill -CONT "$PID_sluiced"
  [ "$status" -eq 0 ]
  [ "$SECONDS" -lt 60 ]
  unpacked still.tar
  head -n 1 unpacked/index.txt; head -n 1 unpacked/index.txt | grep -qE "^sluiced at unix:.*(no|not|nothing)"
}
