#!/usr/bin/env bash
# Build the cuda place and run what needs GPUs; the table at the end says how each step went.
#   tests/gpu/run.sh --part test       GPU tests, every result compared byte by byte
#   tests/gpu/run.sh --part sanitize   compute-sanitizer over small runs
#   tests/gpu/run.sh --part bench      times of dispatch and combine
#   tests/gpu/run.sh --part all        all three
# Options: --build FOLDER (build/gpu), --only PATTERN (steps whose name matches the regular expression).
# Each part takes at most 10 minutes, the build included; a second call does not build again. Logs and
# the JSON files of the bench go to $OUT, if set, else to logs/ in the build folder.
# Exit code 0: nothing failed; 1: something failed, or there is no GPU; 2: wrong arguments.
set -uo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
build=$root/build/gpu
part=
only=.
part_seconds=590

usage() { sed -n '2,10s/^# \{0,1\}//p' "$0"; }
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
part_ends=0

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
    local name=$1 limit=$2 rc=0 result=passed began=$SECONDS left=$((part_ends - SECONDS)) log
    shift 2
    [[ $name =~ $only ]] || [ "$name" = build ] || return 0
    if [ $left -lt 10 ]; then
        note "$name" FAILED - "not run: the part's 10 minutes were over"
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

# Every test program of the label gpu is a step; then runs of the bench, started in every way.
part_test() {
    local name
    [ $tests = ON ] || note "GPU tests" FAILED - "googletest is missing (or name its place in GTest_ROOT)"
    local names
    names=$(ctest --test-dir "$build" -N -L '^gpu$' | sed -n 's/^ *Test *#[0-9]*: //p')
    # what only GPUs can show comes first
    for name in $(grep -v -e ^group -e ^field <<<"$names") $(grep -e ^group -e ^field <<<"$names"); do
        step "$name" 200 "$build/tests/$name"
    done
    if [ "$ngpus" -lt 2 ]; then
        skip "launchers" "one GPU"
        return 0
    fi
    verified_runs 1x2 --nodes 1 --ranks-per-node 2
    find_network blocks
    if [ -n "$no_network" ]; then
        skip "launchers 2x1" "$no_network"
    else
        verified_runs 2x1 --nodes 2 --ranks-per-node 1
    fi
}

# verified_runs SHAPE ARGUMENT...: two ranks, started in each way, with NCCL itself where it takes them.
verified_runs() {
    local shape=$1 work="--tokens 512 --ragged --outputs mixed --sms 16 --poison"
    local run=("${@:2}")
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
    find_network thread
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
    for tool in memcheck racecheck synccheck; do
        if [ "$ngpus" -lt 2 ]; then
            skip "$tool 1x2" "one GPU"
            continue
        fi
        for outputs in plain library; do
            # shellcheck disable=SC2086 # a list of words
            sanitizer $tool "1x2 $outputs" 90 "$bench" --place threads --nodes 1 \
                --ranks-per-node 2 $small --ragged --outputs $outputs
        done
        # shellcheck disable=SC2086 # a list of words
        if [ -n "$no_network" ]; then
            skip "$tool 2x1" "$no_network"
        else
            # the stand-in from the start: the tool need not follow the bench, which would start itself anew
            LD_PRELOAD=$build/tools/libswl_nccl.so SWIMLANE_SOFT_EXECUTOR=thread sanitizer $tool "2x1 NIC by a thread" 90 "$bench" \
                --place threads --nodes 2 --ranks-per-node 1 $small --ragged
        fi
    done
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
    local outputs sms bench_shape="--tokens 4096 --hidden 7168 --topk 8 --experts 256"
    if [ "$ngpus" -lt 2 ]; then
        skip "bench 1x2" "one GPU"
        return 0
    fi
    bench_rows=()
    for outputs in library plain; do
        for sms in 8 16 24 32 48; do
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
    say "us between stream events, slowest rank, median (min-max) of 20; GB/s of the busiest rank over"
    say "NVLink or network; SMs of the kernels, to which several nodes add those of the software NIC"
    printf '%-28s %-18s %-18s %-18s %-14s %s\n' "" dispatch combine update "dispatch GB/s" "combine GB/s"
    printf '%s\n' "${bench_rows[@]}"
}

for part in "${parts[@]}"; do
    part_ends=$((SECONDS + part_seconds))
    build_all || continue
    "part_$part"
done
printf '\n'
printf '%s\n' "${table[@]}"
nvidia-smi --query-gpu=index,clocks.sm,memory.used --format=csv,noheader | paste -s -d '|' -
exit $failed
