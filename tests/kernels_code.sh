#!/bin/sh
# kernels_code.sh - the arithmetic in the device code: nothing contracted but what asks for it, nothing approximate, no flush to zero; in the PTX of nvcc
# and in the intermediate code of clang for AMD. Each look is also taken at code that is spoilt on purpose, and must see it.
set -u
case ${LAYER_CC:-} in *fsanitize*) echo "once, in a build without sanitizers, is enough"; exit 77 ;; esac
src=${SLUICE_SRCDIR:?}
dir=$(mktemp -d) || exit 99
trap 'rm -rf "$dir"' EXIT
export TMPDIR=$dir          # clang leaves a folder there for each look at HIP
failed=0
ok() { echo "ok   $1"; }
bad() { echo "not ok $1"; failed=1; }
kernels=$src/kernels

# ---- AMD
hip="-x hip -std=c++14 -O3 --cuda-device-only -nogpuinc -nogpulib -Wno-unused-command-line-argument -S -emit-llvm"
exact="-ffp-contract=off -fhip-fp32-correctly-rounded-divide-sqrt -fno-gpu-flush-denormals-to-zero"
hipcc=
for c in ${HIPCC:-clang clang-19 clang-18 clang-17 clang-16 clang-15 clang-14}; do
    # shellcheck disable=SC2086
    echo | $c $hip --offload-arch=gfx906 -o "$dir/none.ll" - >/dev/null 2>&1 && { hipcc=$c; break; }
done
ir() { # ARCH KERNELS FLAGS...: the intermediate code as $dir/k.ll
    arch=$1 from=$2
    shift 2
    # shellcheck disable=SC2086
    "$hipcc" $hip "--offload-arch=$arch" -I"$from" "$@" -o "$dir/k.ll" "$from/all.k" >"$dir/err" 2>&1 || { bad "$hipcc, $arch: $(tail -n 5 "$dir/err")"; return 1; }
    sed -i '/^; ModuleID\|^source_filename/d' "$dir/k.ll"        # where the tree lies is no code
}
ir_odd() { # what should not be in $dir/k.ll; each root takes two fused operations, and the self-test asks for one
    grep -oE '\b(contract|reassoc|afn|arcp|fast|nnan|ninf|nsz)\b|fmuladd|!fpmath|denormal-fp-math(-f32)?"="[a-z,-]*(preserve-sign|positive-zero)' "$dir/k.ll" | sort | uniq -c
    grep -oE '@llvm\.(sqrt|sin|cos|exp2?|log2?|log10|pow|amdgcn\.rcp|amdgcn\.rsq|amdgcn\.fdiv\.fast)\.[a-z0-9]*' "$dir/k.ll" | sort | uniq -c
    fused=$(grep -c 'call.*@llvm\.fma\.' "$dir/k.ll") roots=$(grep -c 'call.*@llvm\.amdgcn\.sqrt\.' "$dir/k.ll")
    [ "$fused" -eq $((1 + 2 * roots)) ] || echo "$fused fused operations for $roots roots"
    grep -q 'fdiv float' "$dir/k.ll" || echo "no division"
}
planted_ir() { # NAME WORDS KERNELS FLAGS...
    name=$1 words=$2
    shift 2
    ir gfx906 "$@" || return
    if ir_odd | grep -q -e "$words"; then ok "HIP, planted $name: seen"; else bad "HIP, planted $name: not seen"; fi
}
if [ -z "$hipcc" ]; then
    echo "ok   HIP # SKIP no clang with the target amdgcn"
else
    for arch in gfx906 gfx908 gfx90a; do
        # shellcheck disable=SC2086
        ir $arch "$kernels" $exact || continue
        odd=$(ir_odd)
        if [ -z "$odd" ]; then ok "HIP, $arch: nothing fused but what asks for it, nothing approximate, no flush"; else bad "HIP, $arch: $odd"; fi
    done
    # the mode that the kernels set the processor to
    # shellcheck disable=SC2086
    "$hipcc" ${hip% -emit-llvm} $exact --offload-arch=gfx906 -I"$kernels" -o "$dir/k.s" "$kernels/all.k" || bad "HIP assembly"
    modes=$(grep -o 'amdhsa_float_denorm_mode_.*' "$dir/k.s" | sort -u | tr '\n' ' ')
    if [ "$modes" = "amdhsa_float_denorm_mode_16_64 3 amdhsa_float_denorm_mode_32 3 " ]; then ok "HIP: denormals are kept"; else bad "HIP: $modes"; fi

    # what the build made of them
    blob=${SLUICE_BUILDDIR:?}/hip/kernels.hsaco
    if [ ! -e "$blob" ]; then echo "ok   HIP code objects # SKIP not built"
    elif [ "$(grep -aoE 'amdgcn-amd-amdhsa--gfx9[0-9a-f]*' "$blob" | sort -u | wc -l)" -ge 3 ] &&
        [ "$(grep -aoE '\bk_[a-z_]*\.kd' "$blob" | sort -u | wc -l)" -eq "$(grep -c '^KERNEL' "$kernels/klist.def")" ]; then ok "HIP code objects: three processors, every kernel"
    else bad "HIP code objects: $(grep -aoE 'amdgcn-amd-amdhsa--gfx9[0-9a-f]*|\bk_[a-z_]*\.kd' "$blob" | sort | uniq -c)"; fi

    mkdir "$dir/fused" "$dir/root"
    cp "$kernels"/*.h "$kernels"/*.inc "$kernels"/all.k "$dir/fused"
    sed -i 's/^#pragma clang fp contract(off)//' "$dir/fused/kdef.h"
    cp "$kernels"/*.h "$kernels"/*.inc "$kernels"/all.k "$dir/root"
    sed -i 's/K_SQRT(x) k_sqrt_exact(x)/K_SQRT(x) __builtin_sqrtf(x)/' "$dir/root/kdef.h"
    planted_ir contraction contract "$dir/fused" -ffp-contract=fast -fno-gpu-flush-denormals-to-zero
    planted_ir "flush to zero" preserve-sign "$kernels" -ffp-contract=off -fgpu-flush-denormals-to-zero
    planted_ir "fast arithmetic" afn "$kernels" -ffast-math
    planted_ir "inexact division" fpmath "$kernels" -ffp-contract=off -Xclang -fno-hip-fp32-correctly-rounded-divide-sqrt
    planted_ir "inexact root" llvm.sqrt "$dir/root" -ffp-contract=off
fi

# ---- NVIDIA
nvcc=${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
ptx() { # ARCH FLAGS...: $dir/k.ptx
    arch=$1
    shift
    "$nvcc" -x cu -std=c++14 -O3 -arch="compute_$arch" -I"$kernels" "$@" -ptx -o "$dir/k.ptx" "$kernels/all.k" >"$dir/err" 2>&1 || { bad "nvcc, $arch: $(tail -n 5 "$dir/err")"; return 1; }
}
ptx_odd() {
    grep -oE '[a-z0-9.]*(\.ftz|\.approx|\.full)[a-z0-9.]*|\b(mul|add|sub)\.f(32|64)\b' "$dir/k.ptx" | sort | uniq -c
    fused=$(grep -cE '\b(fma|mad)\.rn\.f' "$dir/k.ptx")
    [ "$fused" -eq 1 ] || echo "$fused fused operations, one is asked for"
    grep -q 'div\.rn\.f32' "$dir/k.ptx" && grep -q 'sqrt\.rn\.f32' "$dir/k.ptx" || echo "no exact division or root"
}
planted_ptx() { # NAME WORDS FLAGS...
    name=$1 words=$2
    shift 2
    ptx 80 "$@" || return
    if ptx_odd | grep -q -e "$words"; then ok "PTX, planted $name: seen"; else bad "PTX, planted $name: not seen"; fi
}
if [ ! -x "$nvcc" ]; then
    echo "ok   PTX # SKIP no nvcc"
else
    for arch in 75 80 90; do
        ptx $arch --fmad=false --prec-div=true --prec-sqrt=true --ftz=false || continue
        odd=$(ptx_odd)
        if [ -z "$odd" ]; then ok "PTX, compute_$arch: one fused operation (the one asked for), nothing approximate, no flush"; else bad "PTX, compute_$arch: $odd"; fi
    done
    planted_ptx contraction "fused operations" --fmad=true
    planted_ptx "flush to zero" '\.ftz' --fmad=false --ftz=true
fi
exit $failed
