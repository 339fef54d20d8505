#!/bin/sh
# embed.sh DIR OUT - the kernels' source as one C string, and its hash: what OpenCL compiles at run time, and what tells whether a blob
# of device code belongs to this program
set -eu
dir=$1 out=$2
files="kdef.h ksqrt.inc ktypes.h selftest.inc scan.inc decode.inc cluster.inc"
tmp=$out.tmp$$
trap 'rm -f "$tmp" "$tmp.c"' EXIT
for f in $files; do grep -v '^#include "' "$dir/$f"; done >"$tmp"
hash=$( (sha256sum "$tmp" 2>/dev/null || cksum "$tmp") | cut -c 1-16 | tr -d ' ')
{
    echo "/* made by embed.sh: do not edit */"
    echo "#define K_SOURCE_HASH \"$hash\""
    echo "static const char k_source[] ="
    sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/^/"/' -e 's/$/\\n"/' "$tmp"
    echo ";"
} >"$tmp.c"
mv "$tmp.c" "$out"
