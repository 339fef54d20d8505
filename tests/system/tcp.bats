#!/usr/bin/env bats
# Commands over TCP: only with a proof, and with the rights of whoever proved it.
load ../lib

setup() {
  [ -x /usr/sbin/munged ] || skip "munge is not installed"
  farm_setup
  munged_start
  PORT=$(free_port)
  farm_up --nodes mi50:1 --nominal mi50=10
  sluice down --dir "$FARM/farm"
  sed -i "s|^auth = .*|listen = '127.0.0.1:$PORT'\nauth = 'munge:$FARM/munge/socket'|" "$FARM/farm/sluice.conf"
  farm_up
  export SLUICE_AUTH=munge:$FARM/munge/socket
}
teardown() {
  [ -n "${FARM:-}" ] || return 0
  pid=$(cat "$FARM/munge/pid")
  farm_teardown || rc=$?
  kill "$pid"
  wait_until 10 ended "$pid"
  return "${rc:-0}"
}

munged_start() {
  mkdir "$FARM/munge"
  head -c 64 /dev/urandom >"$FARM/munge/key"
  chmod 600 "$FARM/munge/key"
  [ "$EUID" -ne 0 ] || chown -R nobody "$FARM/munge"
  as_nobody /usr/sbin/munged --foreground --force --num-threads=2 --key-file="$FARM/munge/key" --socket="$FARM/munge/socket" \
    --pid-file="$FARM/munge/pid" --log-file="$FARM/munge/log" --seed-file="$FARM/munge/seed" >/dev/null 2>&1 3>&- &
  wait_until 10 test -S "$FARM/munge/socket" -a -s "$FARM/munge/pid"
}

free_port() {
  local p
  while :; do
    p=$((20000 + RANDOM % 20000))
    (exec 4<>"/dev/tcp/127.0.0.1/$p") 2>/dev/null || { echo "$p"; return; }
  done
}

@test "a command over TCP is known by its credential, and a replay runs through it" {
  unset SLUICE_SOCKET
  run sluice --server "127.0.0.1:$PORT" ping
  [ "$status" -eq 0 ]
  [[ $output == *"you are $(id -un), role admin"* ]]
  is '.nodes[0].usable' true sluice --server "127.0.0.1:$PORT" nodes
  sluice --server "localhost:$PORT" replay "$(sample 2)" --workflow none --listen "127.0.0.1:$(free_port)"
  export SLUICE_SOCKET=$FARM/farm/sluiced.sock
}

@test "B53 another user reads, and changes nothing" {
  [ "$EUID" -eq 0 ] || skip "only root can be somebody else"
  as_nobody env "PATH=$PATH" "SLUICE_AUTH=$SLUICE_AUTH" sluice --server "127.0.0.1:$PORT" nodes
  run as_nobody env "PATH=$PATH" "SLUICE_AUTH=$SLUICE_AUTH" sluice --server "127.0.0.1:$PORT" mark mi50-001 "not mine"
  [ "$status" -eq 5 ]
  run as_nobody env "PATH=$PATH" sluice mark mi50-001 "not mine"
  [ "$status" -eq 5 ]
  is '.nodes[0].marks | length' 0 sluice nodes
}

@test "B53 without a proof nobody gets in: no munged, another key, an unknown method" {
  SLUICE_AUTH=munge:$FARM/none run timeout 20 sluice --server "127.0.0.1:$PORT" ping
  [ "$status" -ne 0 ] && [ "$status" -ne 124 ]
  [[ $output == *munge* ]]
  SLUICE_AUTH=password run timeout 20 sluice --server "127.0.0.1:$PORT" ping
  [ "$status" -eq 2 ]
  sluice ping
}
