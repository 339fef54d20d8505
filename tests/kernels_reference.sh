#!/bin/sh
# kernels_reference.sh - digits and clusters of the three sets against those of AliceO2: digest and number for all, bytes for tpc-c;
# a changed byte of the input is refused or changes the digest
set -u
prog=${1:-${SLUICE_BUILDDIR:?}/tests/unit/kernels_alone}    # the program made of kernels/main.c
data=${2:-${SLUICE_SRCDIR:?}/tests/data}
dir=$(mktemp -d) || exit 99
trap 'rm -rf "$dir"' EXIT
failed=0
check() { # NAME COMMAND...
    name=$1; shift
    if "$@" >"$dir/out" 2>&1; then echo "ok   $name"; else echo "not ok $name"; cat "$dir/out"; failed=1; fi
}
zstd -dqc "$data/tpc-3tf.tf.zst" >"$dir/tpc.tf" || exit 99
zstd -dqc "$data/tpc-c.digits.zst" >"$dir/c.digits" || exit 99
zstd -dqc "$data/tpc-c.clusters.zst" >"$dir/c.clusters" || exit 99

for extra in "-j 1" "-j 2 --set decode.batch=300K" "-j 1 --isa v1" ${KERNELS_BACKENDS:-}; do
    # shellcheck disable=SC2086
    "$prog" reco -w cluster -b cpu $extra "$dir/tpc.tf" >"$dir/text" 2>"$dir/err"
    rc=$?
    check "reco $extra ends with 0" [ $rc -eq 0 ]
    for k in 0 1 2; do
        set=tpc-$(echo abc | cut -c $((k + 1)))
        for what in digits clusters; do
            want=$(awk -v s="$set" -v w=$what '$1 == s && $2 == w { print $3, $5 }' "$data/reference.txt")
            found=$(awk -v k=$k -v w=$what 'index($0, ".tf " k ":") { on = 1; next } /\.tf [0-9]+:/ { on = 0 }
                    on && $1 == w && $2 ~ /^[0-9]+$/ { print $2, $3 }' "$dir/text")
            check "$set $what $extra: $want" [ "$want" = "$found" ]
        done
    done
done

"$prog" reco -w cluster -b cpu -o "$dir/res" "$dir/tpc.tf" >/dev/null || failed=1
check "tpc-c digits, bytes" cmp "$dir/res/tpc.2.digits" "$dir/c.digits"
check "tpc-c clusters, bytes" cmp "$dir/res/tpc.2.clusters" "$dir/c.clusters"

# One byte of the third TF: headers, masks, offsets, filler; the last one is of a sample, whose value is another then.
base=9768240
flip() { # AT
    cp "$dir/tpc.tf" "$dir/flip.tf"
    old=$(od -An -tu1 -j "$1" -N1 "$dir/tpc.tf" | tr -d ' ')
    # shellcheck disable=SC2059
    printf "\\$(printf %o $((old ^ 1)))" | dd of="$dir/flip.tf" bs=1 seek="$1" conv=notrunc 2>/dev/null
    "$prog" reco -w decode -b cpu --digest "$dir/flip.tf" >"$dir/flip" 2>"$dir/flip.err"
    rc=$?
}
good=$(awk '$1 == "tpc-c" && $2 == "digits" { print $5 }' "$data/reference.txt")
changed=0 refused=0
for at in 40000 60000 90001 150002 250003 300004 450005 700006 1000007 1500008 1406489; do
    flip $((base + at))
    if [ $rc -eq 10 ] && grep -q 'TF 2\|byte' "$dir/flip.err" && ! grep -q "^$good" "$dir/flip"; then refused=$((refused + 1))
    elif [ $rc -eq 0 ] && ! grep -q "^$good" "$dir/flip"; then changed=$((changed + 1))
    else echo "not ok byte $at changed: exit $rc, the digest is the old one"; failed=1; fi
done
check "11 changed bytes: $refused refused, $changed changed the digest" [ "$refused $changed" = "10 1" ]
exit $failed
