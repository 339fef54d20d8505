#!/usr/bin/env bats
# Files of users are read and written with their rights: two users and root beside each other.
load ../lib
load ../rig

setup() { rig_setup; }
teardown() { farm_teardown; }

# by USER COMMAND...: as that user, with the groups of the user data base.
by() {
  local user=$1
  shift
  setpriv --reuid="$user" --regid="$(id -g "$user")" --init-groups env "HOME=$FARM" "PATH=$PATH" "$@"
}
# file_of USER NAME: a sample that only that user can read; the path.
file_of() { cp "$(sample 2)" "$FARM/$2.tf"; chown "$1:" "$FARM/$2.tf"; chmod 600 "$FARM/$2.tf"; echo "$FARM/$2.tf"; }
folder_of() { mkdir -p "$FARM/$2"; chown "$1:" "$FARM/$2"; chmod 700 "$FARM/$2"; echo "$FARM/$2"; }

@test "inputs are read and results written as who submitted: two users and root, each kept out of the other's" {
  [[ $EUID -eq 0 ]] || skip "only root can act as two users"
  real_class 20
  printf 'role shift { users = { "nobody", "daemon" } }\n' >>"$FARM/conf"
  daemon
  sluice node add r1 --class real --pool async >/dev/null
  worker r1 --
  wait_until 20 is '.nodes[0].usable' true sluice nodes
  a=$(file_of nobody a) b=$(file_of daemon b) out_a=$(folder_of nobody out-a) out_b=$(folder_of daemon out-b)

  ja=$(by nobody sluice submit "$a" --output "$out_a")
  jb=$(by daemon sluice submit "$b" --output "$out_b")
  for j in "$ja" "$jb"; do sluice wait job "$j" --timeout 60s; done
  [ "$(stat -c %U "$out_a"/* | sort -u)" = nobody ]
  [ "$(stat -c %U "$out_b"/* | sort -u)" = daemon ]
  [ "$(find "$out_a" "$out_b" -type f | wc -l)" -eq 4 ]
  [ "$(json '.jobs[] | select(.id == '"$ja"').owner' sluice jobs --all)" = nobody ]

  # what he cannot read or write himself nobody does for him
  run --separate-stderr by daemon sluice submit "$a" --output "$out_b"
  [[ $status -eq 5 && $stderr == "sluice: $a: Permission denied" ]]
  mkdir "$FARM/locked" "$FARM/sealed"; cp "$(sample 2)" "$FARM/locked/x.tf"; cp -r "$FARM/locked" "$FARM/sealed/in"
  chmod 700 "$FARM/locked"; chmod 744 "$FARM/sealed"; echo "$a" >"$FARM/list"; echo "$a" >"$FARM/secret"; chmod 600 "$FARM/secret"
  while read -r line; do
    run --separate-stderr eval "by daemon sluice $line"
    [[ $status -eq 5 && $stderr == *"Permission denied"* ]] || { echo "$line: $status $stderr"; false; }
  done <<END
submit $FARM/locked
submit $FARM/locked/x.tf
submit $FARM/sealed
submit $a $FARM/locked $FARM/sealed
submit --input $FARM/list
submit --input $FARM/secret
submit $a $FARM/locked --max-bad 1
replay $a $FARM/locked/x.tf --output $out_b
END
  run --separate-stderr by daemon sluice submit "$a" "$FARM/gone.tf"
  [ "$status" -eq 1 ]
  run --separate-stderr by daemon sluice submit "$b" --output "$out_a"
  [[ $status -eq 5 && $stderr == *"output folder $out_a"*"Permission denied"* ]]
  run --separate-stderr by daemon sluice submit "$b" --output "$out_a/deeper"
  [ "$status" -eq 5 ]

  # the rights are those at the time of the work: a path that came to lead elsewhere opens nothing
  job=$(by daemon sluice submit "$b" --output "$out_b/later" --hold)
  chown nobody: "$b"
  by daemon sluice job release "$job"
  run sluice wait job "$job" --timeout 60s
  [ "$status" -eq 10 ]
  is '.tasks[0].code' InputDenied sluice job tfs "$job"
  json '.tasks[0].text' sluice job tfs "$job" | grep -q 'Permission denied'
  [ -z "$(find "$out_b/later" -type f)" ]

  # rights that go and come back, while results are on their way there: what is done has its result, and nothing else has; nothing is left of tries
  mkdir "$FARM/many"; for i in $(seq 20); do cp "$(sample 2)" "$FARM/many/f$i.tf"; done; chmod -R a+rX "$FARM/many"
  out_c=$(folder_of nobody out-c)
  job=$(by nobody sluice submit "$FARM/many" --output "$out_c" --attempts 30)
  for _ in $(seq 12); do chmod 0 "$out_c"; sleep 0.1; chmod 700 "$out_c"; sleep 0.1; done
  sluice wait job "$job" --timeout 90s
  is '.jobs[0] | [.done, .failed] | map(tostring) | join(" ")' "20 0" sluice job show "$job"
  wait_until 30 eval '[ "$(ls "$out_c" | grep -cE "^f[0-9]+\.0\.digits(\.json)?$") $(ls "$out_c" | wc -l)" = "40 40" ]'

  # one's own jobs; root may all
  run --separate-stderr by nobody sluice job cancel "$jb"
  [ "$status" -ne 0 ]
  job=$(sluice submit "$a" --output "$out_a/by-root")
  sluice wait job "$job" --timeout 60s
  [ "$(stat -c %U "$out_a"/by-root/* | sort -u)" = root ]
  # and the worker is itself again: it goes on for others
  job=$(by nobody sluice submit "$a" --output "$out_a/again")
  sluice wait job "$job" --timeout 60s
  sluice check
}

@test "where the default folder of results is not for who submits or replays, he is told how to name another" {
  [[ $EUID -eq 0 ]] || skip "only root can act as two users"
  real_class 20
  printf 'role shift { users = { "daemon" } }\n' >>"$FARM/conf"
  daemon
  sluice node add r1 --class real --pool async >/dev/null
  worker r1 --
  wait_until 20 is '.nodes[0].usable' true sluice nodes
  file=$(file_of daemon x) out=$(folder_of root out)
  for verb in submit replay; do
    run --separate-stderr by daemon sluice $verb "$file"
    [[ $status -eq 5 && $stderr == *"output folder $FARM/state/output"*"Permission denied; that is the default folder, --output DIR names another one" ]] || { echo "$verb: $status $stderr"; false; }
    run --separate-stderr by daemon sluice $verb "$file" --output "$out"
    [[ $status -eq 5 && $stderr == *"output folder $out"*"Permission denied" ]] || { echo "$verb: $status $stderr"; false; }
  done
}
