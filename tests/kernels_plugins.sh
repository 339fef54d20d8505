#!/bin/sh
# kernels_plugins.sh - backends as plugins: found in the build tree, in an installation (moved below another root too), in SLUICE_BACKENDS; a plugin that
# is missing or not of this program is shown with the reason, and the program goes on
#
#   tests/kernels_plugins.sh [SLUICE_RECO]: with a program, only that its plugins are found (make installcheck)
set -u
dir=$(mktemp -d) || exit 99
trap 'rm -rf "$dir"' EXIT
unset SLUICE_BACKENDS SLUICE_BLOBS
failed=0
ok() { echo "ok   $1"; }
bad() { echo "not ok $1"; failed=1; }
says() { # NAME BACKEND WORDS: what `devices` says of the backend
    if "$prog" devices 2>"$dir/err" | grep "^$2 " | grep -q -e "$3"; then ok "$1"; else bad "$1: $("$prog" devices 2>&1)"; fi
}
absent() { # NAME: all three plugins answer for themselves, be it that they find no driver
    if "$prog" devices | grep -q "plugin"; then bad "$1: $("$prog" devices)"; else ok "$1"; fi
}

if [ $# -gt 0 ]; then
    prog=$1
    absent "the plugins of $prog"
    exit $failed
fi
cd "${SLUICE_BUILDDIR:?}" || exit 99
src=${SLUICE_SRCDIR:?}
prog=./sluice-reco
absent "in the build tree"
prog=tests/unit/kernels_alone
absent "two folders up"

# An installation that was packed below another root: nothing of it lies where it was configured for.
env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL make -s DESTDIR="$dir/root" install-libexecPROGRAMS install-pkglibLTLIBRARIES >"$dir/log" 2>&1 || bad "make install: $(cat "$dir/log")"
prog=$(find "$dir/root" -name sluice-reco)
absent "installed below DESTDIR"
plugins=$(dirname "$(find "$dir/root" -name bk_cuda.so)")

# Each plugin may be missing, damaged, or of another program.
mkdir "$dir/plugins"
cp "$plugins"/*.so "$dir/plugins"
export SLUICE_BACKENDS="$dir/plugins"
absent "in SLUICE_BACKENDS"
cat >"$dir/wrong.c" <<'END'
#include "bk.h"
const struct bk_ops *bk_entry(void)
{
    static const struct bk_ops ops = { .abi = ABI, .source = SOURCE, .name = OWN };
    return &ops;
}
END
wrong() { # ABI SOURCE NAME
    # shellcheck disable=SC2086
    ${LAYER_CC:-cc} -shared -fPIC -w -I"$src/kernels/backend" -DABI="$1" -DSOURCE="\"$2\"" -DOWN="\"$3\"" "$dir/wrong.c" -o "$dir/plugins/bk_cuda.so" || exit 99
}
hash=$(sed -n 's/^#define K_SOURCE_HASH "\(.*\)"/\1/p' kernels/k_source.h)
abi=$(sed -n 's/^#define BK_ABI \([0-9]*\)u.*/\1/p' "$src/kernels/backend/bk.h")
wrong 1 "$hash" cuda
says "a plugin of another interface" cuda "bk_cuda.so has interface 1, this program wants $abi"
says "the others stay" opencl "[^g]"
wrong "$abi" 0123456789abcdef cuda
says "a plugin of other kernels" cuda "made from other kernels (0123456789abcdef) than this program ($hash)"
wrong "$abi" "$hash" hip
says "a plugin of another backend" cuda "holds backend hip"
echo 'const int nothing;' >"$dir/wrong.c"
wrong 0 0 0
says "a library that is no plugin" cuda "bk_cuda.so is no plugin"
echo 'text' >"$dir/plugins/bk_cuda.so"
says "a file that is no library" cuda "bk_cuda.so: "
rm "$dir/plugins/bk_cuda.so"
says "a missing plugin" cuda "no plugin bk_cuda.so in $dir/plugins"
if "$prog" devices --json | jq -e '.devices[] | select(.backend == "cuda") | .usable == false and (.why | startswith("no plugin"))' >/dev/null; then ok "also in JSON"; else bad "JSON: $("$prog" devices --json)"; fi
input=$src/tests/fuzz/corpus/pages/two-links.tf
if "$prog" reco -w cluster -b cuda "$input" >/dev/null 2>"$dir/err"; then bad "ran without a plugin"
elif grep -q "stage decode: .*no plugin bk_cuda.so" "$dir/err"; then ok "asked for, it is named with its stage"; else bad "asked for: $(cat "$dir/err")"; fi
if "$prog" reco -w cluster -b auto "$input" >/dev/null 2>"$dir/err"; then ok "auto goes on without"; else bad "auto: $(cat "$dir/err")"; fi
exit $failed
