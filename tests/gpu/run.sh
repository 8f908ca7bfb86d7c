#!/usr/bin/env bash
# Build the cuda place and run what needs GPUs; the table at the end says how each step went. One GPU is
# enough: ranks share it, and what needs a second one is skipped and says so.
#   tests/gpu/run.sh                   everything, in at most 10 minutes with 16 cores
#   tests/gpu/run.sh --part test       GPU tests, the example, launchers: every result compared
#   tests/gpu/run.sh --part sanitize   compute-sanitizer over small runs
#   tests/gpu/run.sh --part bench      times of dispatch and combine
# Options: --build FOLDER (build/gpu), --only PATTERN (steps whose name matches the regular expression).
# A second call does not build again. Logs and the JSON files of the bench go to $OUT, if set, else to
# logs/ in the build folder.
# Exit code 0: nothing failed; 1: something failed, or there is no GPU; 2: wrong arguments.
set -uo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
build=$root/build/gpu
part=all
only=.
ends=595 # seconds after the start

usage() { sed -n '2,11s/^# \{0,1\}//p' "$0"; }
say() { printf 'run.sh: %s\n' "$*"; }

while [ $# -gt 0 ]; do
    case $1 in
    --part | --build | --only)
        [ $# -ge 2 ] || { usage >&2; exit 2; }
        case $1 in
        --part) part=$2 ;;
        --build) build=$2 ;;
        --only) only=$2 ;;
        esac
        shift 2
        ;;
    -h | --help) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
    esac
done
case $part in
test | sanitize | bench) parts=("$part") ;;
all) parts=(test sanitize bench) ;;
*) usage >&2; exit 2 ;;
esac

logs=${OUT:-$build/logs}
mkdir -p "$build" "$logs" || exit 1

# ---- steps ----

table=()
failed=0

# note NAME RESULT SECONDS REMARK: a row of the table.
note() {
    table+=("$(printf '%-34s %-8s %5s  %s' "$1" "$2" "$3" "$4")")
    [ "$2" != FAILED ] || failed=1
}

# What the log of a test program says about its tests: counts, and the reasons of skipped ones.
gtest_remark() {
    local log=$1 passed skipped lost
    passed=$(sed -n 's/^\[  PASSED  \] \([0-9]*\) test.*/\1/p' "$log" | tail -n 1)
    [ -n "$passed" ] || return 0
    lost=$(sed -n 's/^\[  FAILED  \] \([0-9]*\) test.*/\1/p' "$log" | tail -n 1)
    skipped=$(sed -n 's/^\[  SKIPPED \] \([0-9]*\) test.*/\1/p' "$log" | tail -n 1)
    printf '%s' "$passed passed${lost:+, $lost failed}"
    [ -z "$skipped" ] || printf ', %s skipped: %s' "$skipped" \
        "$(grep -A 1 ': Skipped$' "$log" | grep -v -e ': Skipped$' -e '^--$' | sort -u | head -n 3 |
            paste -s -d ';' - | sed 's/;/; /g')"
}

# step NAME LIMIT COMMAND...: run it with output to its log and at most LIMIT seconds; a row of the table.
step() {
    local name=$1 limit=$2 rc=0 result=passed began=$SECONDS left=$((ends - SECONDS)) log
    shift 2
    [[ $name =~ $only ]] || [ "$name" = build ] || return 0
    if [ $left -lt 10 ]; then
        note "$name" FAILED - "not run: the 10 minutes were over"
        return 1
    fi
    [ "$limit" -le "$left" ] || limit=$left
    log=$logs/$(printf '%s' "$name" | tr -c 'A-Za-z0-9._-' _).log
    timeout -k 5 "$limit" "$@" >"$log" 2>&1 </dev/null || rc=$?
    local remark
    remark=$(gtest_remark "$log")
    if [ $rc -eq 0 ]; then
        [[ $remark = "0 passed"* ]] && result=skipped
        note "$name" $result $((SECONDS - began)) "$remark"
        return 0
    fi
    [ $rc -ne 124 ] && [ $rc -ne 137 ] || remark="stopped after $limit s ${remark:+($remark)}"
    note "$name" FAILED $((SECONDS - began)) "${remark:-exit code $rc}"
    say "--- $name: exit code $rc; the end of its log:"
    grep -v '^\[ *\(RUN\|OK\|---*\) *\]' "$log" | tail -n 30 | cut -c 1-400
    return 1
}
skip() { [[ $1 =~ $only ]] && note "$1" skipped - "$2"; return 0; }

# ---- machine and environment ----

if ! command -v nvidia-smi >/dev/null || ! nvidia-smi -L >/dev/null 2>&1; then
    say "no GPU on this machine" >&2
    exit 1
fi
ngpus=$(nvidia-smi -L | wc -l)
capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader -i 0 | tr -d '. ')
nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.max.sm --format=csv,noheader | sort | uniq -c

# Kernels of different ranks wait for each other: nothing may be loaded, or queued behind, meanwhile.
export CUDA_MODULE_LOADING=EAGER CUDA_DEVICE_MAX_CONNECTIONS=32 NCCL_NVLS_ENABLE=0
nccl=$(python3 -c 'import nvidia.nccl as n; print(list(n.__path__)[0])' 2>/dev/null || true)
if [ -n "$nccl" ] && [ -d "$nccl/lib" ]; then
    export LD_LIBRARY_PATH=$nccl/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
fi
command -v nvcc >/dev/null || [ ! -x /usr/local/cuda/bin/nvcc ] || export PATH=$PATH:/usr/local/cuda/bin

# Where ranks share a GPU the bench has to be told under launchers, each of whose processes sees it.
shared=()
[ "$ngpus" -ge 2 ] || shared=(--ranks-per-gpu 2)

tests=ON
[ -e /usr/include/gtest/gtest.h ] || [ -n "${GTest_ROOT:-}${CMAKE_PREFIX_PATH:-}" ] || tests=OFF

build_all() {
    # shellcheck disable=SC2016 # expanded by that shell
    step build 400 bash -c 'cmake --preset cuda -S "$1" -B "$2" "-DCMAKE_CUDA_ARCHITECTURES=$3" \
        "-DSWL_TESTS=$4" && cmake --build "$2" -j "$(nproc)"' _ "$root" "$build" "$capability-real" $tests
}

bench=$build/tools/swimlane-bench

# find_network EXECUTOR: whether this build has a network between GPUs, run like that; else the reason
# is in $no_network.
no_network=
find_network() {
    local log=$logs/network.log
    no_network=
    SWIMLANE_SOFT_EXECUTOR=$1 timeout 60 "$bench" --place threads --nodes 2 --ranks-per-node 1 \
        --tokens 8 --hidden 64 --topk 2 --experts 4 --sms 2 --iterations 1 --quiet \
        >"$log" 2>&1 </dev/null && return 0
    no_network=$(grep -o -m 1 -e 'this build runs no software NIC' -e 'only blocks run here' "$log")
    [ -n "$no_network" ] # anything else: let the steps fail
}

# ---- parts ----

# The example, every test program of the label gpu, then runs of the bench, started in every way.
part_test() {
    local name names
    step "example exchange" 60 "$build/examples/exchange"
    [ $tests = ON ] || note "GPU tests" FAILED - "googletest is missing (or name its place in GTest_ROOT)"
    names=$(ctest --test-dir "$build" -N -L '^gpu$' | sed -n 's/^ *Test *#[0-9]*: //p')
    # what only GPUs can show comes first
    for name in $(grep -v -e ^group -e ^field <<<"$names") $(grep -e ^group -e ^field <<<"$names"); do
        step "$name" 120 "$build/tests/$name"
    done
    verified_runs 1x2 --nodes 1 --ranks-per-node 2
    find_network blocks
    if [ -n "$no_network" ]; then
        skip "launchers 2x1" "$no_network"
    else
        verified_runs 2x1 --nodes 2 --ranks-per-node 1
    fi
    step "processes 2x1 over TCP" 60 env SWIMLANE_TRANSPORT=peer,tcp SWIMLANE_SOCKET_IFNAME=lo \
        "$bench" --place processes --nodes 2 --ranks-per-node 1 --tokens 64 --ragged --poison
}

# verified_runs SHAPE ARGUMENT...: two ranks, started in each way, with NCCL itself where it takes them.
verified_runs() {
    local shape=$1 work="--tokens 512 --ragged --outputs mixed --sms 16 --poison"
    local run=("${@:2}" ${shared[@]+"${shared[@]}"})
    # shellcheck disable=SC2206 # a list of words
    run+=($work)
    step "threads $shape" 60 "$bench" --place threads "${run[@]}"
    step "processes $shape" 60 "$bench" --place processes "${run[@]}"
    if command -v torchrun >/dev/null; then
        step "torchrun $shape" 90 torchrun --no-python --nproc-per-node 2 "$bench" "${run[@]}"
    else
        skip "torchrun $shape" "torchrun is not installed"
    fi
    if command -v mpirun >/dev/null; then
        step "mpirun $shape" 90 env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
            mpirun -n 2 "$bench" "${run[@]}"
    else
        skip "mpirun $shape" "mpirun is not installed"
    fi
}

sanitizer() {
    local tool=$1 name=$2 limit=$3
    shift 3
    step "$tool $name" "$limit" compute-sanitizer --tool "$tool" --report-api-errors no \
        --error-exitcode 1 "$@"
}

part_sanitize() {
    # on one GPU the tool keeps a thread's NIC waiting for the kernels that wait for it: docs/testing.md
    local executor=thread
    [ "$ngpus" -ge 2 ] || executor=blocks
    find_network $executor
    local tool outputs small="--tokens 24 --hidden 256 --topk 4 --experts 16 --sms 4 --iterations 2
        --warmup 0 --timeout-ms 60000 --poison --quiet"
    if ! command -v compute-sanitizer >/dev/null; then
        skip compute-sanitizer "compute-sanitizer is not installed"
        return 0
    fi
    # the message test polls for seconds under the tool; the others cover the same instructions
    [ ! -x "$build/tests/gpu_device_test" ] ||
        sanitizer memcheck "device.h" 120 "$build/tests/gpu_device_test" \
            --gtest_filter='-*DataPublished*:*Conversions*'
    # the stand-in from the start: the tool need not follow the bench, which would start itself anew
    export LD_PRELOAD=$build/tools/libswl_nccl.so
    for tool in memcheck racecheck synccheck; do
        for outputs in plain library; do
            # shellcheck disable=SC2086 # a list of words
            sanitizer $tool "1x2 $outputs" 60 "$bench" --place threads --nodes 1 \
                --ranks-per-node 2 $small --ragged --outputs $outputs
        done
        if [ -n "$no_network" ]; then
            skip "$tool 2x1" "$no_network"
        elif [ "$tool $executor" = "synccheck blocks" ]; then
            skip "$tool 2x1" "needs a second GPU: it takes named barriers of a part of a block for an error"
        else
            # shellcheck disable=SC2086 # a list of words
            SWIMLANE_SOFT_EXECUTOR=$executor sanitizer $tool "2x1 NIC by $executor" 60 "$bench" \
                --place threads --nodes 2 --ranks-per-node 1 $small --ragged
        fi
    done
    unset LD_PRELOAD
}

# One row of the bench table from a JSON file of swimlane-bench.
bench_row() {
    python3 - "$@" <<'EOF'
import json, sys
name, path = sys.argv[1:]
run = json.load(open(path))
cells = ["%-28s" % name]
for operation in ("dispatch", "combine", "update"):
    o = run["operations"][operation]
    cells.append("%-18s" % ("%5.0f (%.0f-%.0f)" % (o["median_us"], o["min_us"], o["max_us"])))
for operation in ("dispatch", "combine"):
    o = run["operations"][operation]
    moved = o["network_bytes"] or o["nvlink_bytes"] or o["shared_gpu_bytes"]
    cells.append("%-14.0f" % (moved / o["median_us"] / 1e3 if o["median_us"] else 0))
print(" ".join(cells))
EOF
}

# bench_run NAME ARGUMENT...: one step and one row.
bench_rows=()
bench_run() {
    local name=$1 json
    shift
    json=$logs/bench-$(printf '%s' "$name" | tr -c 'A-Za-z0-9.' -).json
    rm -f "$json"
    # shellcheck disable=SC2086 # a list of words
    step "bench $name" 60 "$bench" --place threads $bench_shape --iterations 20 --warmup 3 --no-verify \
        --json "$json" "$@"
    [ ! -f "$json" ] || bench_rows+=("$(bench_row "$name" "$json")")
}

part_bench() {
    local outputs sms all_sms="8 16 24 32 48" bench_shape="--tokens 4096 --hidden 7168 --topk 8 --experts 256"
    [ "$ngpus" -ge 2 ] || all_sms="16 24" # inside one GPU: for comparisons only
    bench_rows=()
    for outputs in library plain; do
        for sms in $all_sms; do
            bench_run "1x2 $outputs $sms SMs" --nodes 1 --ranks-per-node 2 --outputs $outputs --sms $sms
        done
    done
    find_network blocks
    if [ -n "$no_network" ]; then
        skip "bench 2x1" "$no_network"
    else
        for sms in 16 24; do
            bench_run "2x1 400:3 library $sms SMs" --nodes 2 --ranks-per-node 1 --outputs library \
                --sms $sms --link 400:3
        done
    fi
    [ ${#bench_rows[@]} -gt 0 ] || return 0
    say "us between stream events, slowest rank, median (min-max) of 20; GB/s of the busiest rank between"
    say "GPUs (inside the GPU, if there is one) or nodes; SMs of the kernels, without the software NIC's"
    printf '%-28s %-18s %-18s %-18s %-14s %s\n' "" dispatch combine update "dispatch GB/s" "combine GB/s"
    printf '%s\n' "${bench_rows[@]}"
}

if build_all; then
    for part in "${parts[@]}"; do
        "part_$part"
    done
fi
printf '\n'
printf '%s\n' "${table[@]}"
nvidia-smi --query-gpu=index,clocks.sm,memory.used --format=csv,noheader | paste -s -d '|' -
exit $failed
