#!/bin/sh
# layers.sh - links each library alone, whole, with only what its row may name: a call in the wrong direction does not link
set -u
cd "${SLUICE_BUILDDIR:?}" || exit 99
dir=$(mktemp -d) || exit 99
trap 'rm -rf "$dir"' EXIT
echo 'int main(void) { return 0; }' >"$dir/main.c"
failed=0
IFS=';'
for row in $LAYERS; do
    lib=$(echo "${row%%:*}" | tr -d ' \t')
    may=${row#*:}
    if [ ! -f "$lib" ]; then
        echo "FAIL $lib: not built"
        failed=1
        continue
    fi
    unset IFS
    # shellcheck disable=SC2086
    if ${LAYER_CC:-cc} "$dir/main.c" -Wl,--whole-archive "$lib" -Wl,--no-whole-archive $may -o "$dir/out" 2>"$dir/err"; then
        echo "ok   $lib"
    else
        echo "FAIL $lib calls what its row does not name:"
        grep -o 'undefined reference to .*' "$dir/err" | sort -u | head -n 20
        [ -s "$dir/err" ] && tail -n 3 "$dir/err"
        failed=1
    fi
    IFS=';'
done
exit $failed
