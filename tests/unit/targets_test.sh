#!/usr/bin/env bash
# targets_test.sh NVCC: the targets of the cuda place: the same in the first and the second configuration,
# others are refused with the list of those that can be had.
set -euo pipefail
export CUDACXX=$1
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset CUDAARCHS CUDAFLAGS NVCC_PREPEND_FLAGS NVCC_APPEND_FLAGS

fail()
{
    echo "targets_test: $*" >&2
    cat "$work/log" >&2
    exit 1
}

# The part of the project that chooses them, as it needs neither NCCL nor a compiler's time.
cat >"$work/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.25)
project(targets LANGUAGES C CXX)
add_library(swl_flags INTERFACE)
include("$root/cmake/SwlCuda.cmake")
END

# targets FOLDER [NAME=VALUE...] [OPTION OF CMAKE...]: what is configured there.
configure()
{
    local folder=$1 words=()
    shift
    while [[ ${1:-} == [A-Z]*=* ]]; do
        words+=("$1")
        shift
    done
    env "${words[@]}" cmake -S "$work" -B "$work/$folder" "$@" >"$work/log" 2>&1
}
targets()
{
    configure "$@" || fail "configure $* failed"
    sed -n 's/^-- CUDA targets: //p' "$work/log"
}
# refused WORDS FOLDER ...: fails, and says all words.
refused()
{
    local said=$1
    shift
    ! configure "$@" || fail "configure $* was not refused"
    for word in $said; do
        tr -s ' \n' ' ' <"$work/log" | grep -q -- "$word" || fail "configure $* does not say $word"
    done
}

# F-103: images set CUDAARCHS for other projects.
refused "CUDAARCHS '70' Supported 90 CMAKE_CUDA_ARCHITECTURES" image "CUDAARCHS=70;90"
refused "'80.90' Supported" image "CUDAARCHS=80 90"
refused "'all' Supported" image CUDAARCHS=all
refused "'89-real' Supported" image -DCMAKE_CUDA_ARCHITECTURES=89-real
rm -r "$work/image"
refused "CUDAFLAGS -gencode" image "CUDAFLAGS=-O2 -gencode=arch=compute_80,code=sm_80"
refused "NVCC_APPEND_FLAGS -arch" image "NVCC_APPEND_FLAGS=-arch sm_80"

first=$(targets image CUDAARCHS=90)
[ "$first" = 90 ] || fail "the first configuration has '$first'"
second=$(targets image CUDAARCHS=90)
[ "$second" = 90 ] || fail "the second configuration has '$second'"
later=$(targets image)
[ "$later" = 90 ] || fail "without CUDAARCHS there are '$later'"
later=$(targets image CUDAARCHS=120)
[ "$later" = 90 ] || fail "a later CUDAARCHS changed them to '$later'"
later=$(targets image CUDAARCHS=70 -DCMAKE_CUDA_ARCHITECTURES=90-real)
[ "$later" = 90-real ] || fail "the option does not win: '$later'"

built_in=$(targets plain)
[ "$(targets plain CUDAARCHS=90)" = "$built_in" ] || fail "built-in targets, then others"
[[ $built_in == 90-real* && $built_in == *-virtual ]] || fail "built-in targets are '$built_in'"

# A toolkit that knows less says so.
printf '#!/bin/sh\n[ "$1" = --list-gpu-arch ] && printf "compute_80\\ncompute_90\\n"\n' >"$work/nvcc"
chmod +x "$work/nvcc"
export CUDACXX=$work/nvcc
refused "'100' Supported.are.90,.each" old CUDAARCHS=100
