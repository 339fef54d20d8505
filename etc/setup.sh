# shellcheck shell=bash
# setup.sh - sourced by ./quickstart and ./check: packages, then a build out of the tree

: "${root:?set by the caller}"

say() { printf '%s\n' "$*" >&2; }
die() { say "$(basename "$0"): $*"; exit 1; }

# configure takes no such path, and says so only after autoreconf.
[[ $root != *[[:space:]\\\"\'\`\#\$\&~]* ]] || die "$root: a path without blanks, quotes, \\, #, \$, & and ~ is wanted, to build in"

# packages_missing KIND...: those of etc/packages that are not installed.
packages_missing() {
  local kind names name
  while read -r kind names; do
    [[ " $* " == *" $kind "* ]] || continue
    for name in $names; do
      dpkg-query -W -f '${db:Status-Status}\n' "$name" 2>/dev/null | grep -qx installed || echo "$name"
    done
  done < <(grep -v '^#' "$root/etc/packages")
}

# packages_install KIND...: as root installs what is missing; otherwise prints the command and stops.
packages_install() {
  local missing
  mapfile -t missing < <(packages_missing "$@")
  [[ ${#missing[@]} -gt 0 ]] || return 0
  if [[ ${no_install:-} ]]; then
    die "missing packages, and --no-install was given: ${missing[*]}"
  fi
  if [[ $EUID -ne 0 ]]; then
    say "These packages are missing. Install them, then start again:"
    say "  sudo apt-get update && sudo apt-get install --no-install-recommends -y ${missing[*]}"
    exit 1
  fi
  say "installing ${#missing[@]} packages"
  export DEBIAN_FRONTEND=noninteractive
  local log
  log=$(mktemp)
  if ! { apt-get update -qq && apt-get install -qq -y --no-install-recommends "${missing[@]}"; } >"$log" 2>&1 </dev/null; then
    cat "$log" >&2
    rm -f "$log"
    die "apt-get failed"
  fi
  rm -f "$log"
}

# build_in DIR [CONFIGURE ARGUMENTS]: configures once, then builds; the log is shown when it fails.
build_in() {
  local dir=$1 log
  shift
  log=$dir/build.log
  if ! { mkdir -p "$dir" && : >>"$log"; } 2>/dev/null; then
    die "$dir cannot be written by $(id -un): it was built by $(stat -c %U "$root/build" 2>/dev/null || stat -c %U "$root"); work in a copy of your own"
  fi
  : >"$log"
  if [[ ! -x $root/configure || $root/configure.ac -nt $root/configure || $root/Makefile.am -nt $root/configure ]]; then
    (cd "$root" && autoreconf -fi) >>"$log" 2>&1 || { cat "$log" >&2; die "autoreconf failed"; }
  fi
  if [[ ! -f $dir/config.status ]]; then
    (cd "$dir" && "$root/configure" "$@") >>"$log" 2>&1 || { tail -n 30 "$log" >&2; die "configure failed, see $dir/config.log"; }
  fi
  make -C "$dir" -j"$(nproc)" "${BUILD_TARGETS:-all}" >>"$log" 2>&1 || { grep -E -m 20 'error|Error|warning' "$log" >&2; die "the build failed, see $log"; }
}
