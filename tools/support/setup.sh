# setup.sh: what the scripts share; sourced by tools/demo, tools/check and tools/lint.
#
# say TEXT           one line about what happens
# have COMMAND-OR-FILE  is it here?
# need COMMAND-OR-FILE PACKAGE...   remember packages whose command or file is missing
# install_needed     install them with apt-get, with sudo when not root
# quietly LOG CMD... run with output to LOG; show its end when it fails
# find_nvcc          print the path of nvcc; fails where there is none
# count_gpus         print how many NVIDIA GPUs there are

log_dir=build/logs
needed=()

say() { printf '%s\n' "swimlane: $*"; }

have() {
    case $1 in
    /*) [ -e "$1" ] ;;
    *) command -v "$1" >/dev/null 2>&1 ;;
    esac
}

need() {
    have "$1" || needed+=("${@:2}")
}

find_nvcc() { command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null; }

count_gpus() {
    local list
    list=$(nvidia-smi -L 2>/dev/null) || list=
    grep -c '^GPU ' <<<"$list" || true
}

need_to_build() {
    need cmake cmake
    need ninja ninja-build
    need gcc gcc libc6-dev
    need g++ g++
}

# need_to_check PART: what a part of tools/check cannot do without.
need_to_check() {
    if [ "$1" = model ]; then
        need spin spin
        need gcc gcc libc6-dev
        return
    fi
    need_to_build
    need python3 python3
    case $1 in
    hidden | lint) ;;
    *) need /usr/include/gtest/gtest.h libgtest-dev ;;
    esac
    case $1 in
    tsan)
        need clang-14 clang-14
        need "/usr/lib/llvm-14/lib/clang/14.0.6/lib/linux/libclang_rt.tsan-$(uname -m).a" libclang-rt-14-dev
        ;;
    esac
}

# want_to_check PART: what it does more with, and says that it left out without.
want_to_check() {
    case $1 in
    sim | asan | tsan | cuda)
        need /usr/include/infiniband/mlx5dv.h libibverbs-dev
        need pkg-config pkg-config
        ;;
    hidden) need unshare util-linux ;;
    lint)
        need clang-format-14 clang-format-14
        need clang-tidy-14 clang-tidy-14
        need cppcheck cppcheck
        need shellcheck shellcheck
        ;;
    esac
}

quietly() {
    local log=$log_dir/$1 rc=0
    shift
    mkdir -p "$log_dir"
    "$@" >"$log" 2>&1 </dev/null || rc=$?
    if [ $rc -ne 0 ]; then
        local command="$*"
        [ ${#command} -le 300 ] || command="${command:0:300} ..."
        say "failed (exit code $rc): $command"
        tail -n 40 "$log"
        say "the whole output is in $log"
    fi
    return $rc
}

install_needed() {
    [ ${#needed[@]} -eq 0 ] && return 0
    local root=()
    if ! command -v apt-get >/dev/null 2>&1; then
        say "these packages are missing and there is no apt-get to install them: ${needed[*]}"
        return 1
    fi
    if [ "$(id -u)" -ne 0 ]; then
        if ! command -v sudo >/dev/null 2>&1; then
            say "as root, install: ${needed[*]}"
            return 1
        fi
        root=(sudo)
    fi
    say "installing with apt-get: ${needed[*]}"
    quietly apt-update.log "${root[@]}" apt-get -qq update || return 1
    quietly apt-install.log "${root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get -qq -y --no-install-recommends install "${needed[@]}"
}

# configure PRESET [OPTION...]: the preset's build folder.
configure() {
    quietly "configure-$1.log" cmake --preset "$@"
}

# build PRESET [TARGET...]: the folder build/PRESET, all targets by default; progress is shown when a person looks on.
build() {
    local preset=$1 log=$log_dir/build-$1.log rc=0
    shift
    mkdir -p "$log_dir"
    if [ -t 1 ]; then
        cmake --build "build/$preset" ${1:+--target "$@"} 2>&1 | tee "$log" |
            { grep --line-buffered -o '^\[[0-9]*/[0-9]*\]' || true; } |
            while read -r at; do printf '\r  %s ' "$at"; done
        rc=${PIPESTATUS[0]}
        printf '\r                \r'
    else
        cmake --build "build/$preset" ${1:+--target "$@"} >"$log" 2>&1 || rc=$?
    fi
    if [ "$rc" -ne 0 ]; then
        say "the build in build/$preset failed:"
        grep -E -A 12 -m 3 '^FAILED|error:' "$log" || tail -n 30 "$log"
        say "the whole output is in $log"
    fi
    return "$rc"
}
