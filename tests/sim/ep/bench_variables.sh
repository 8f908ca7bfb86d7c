#!/bin/sh
# bench_variables.sh BENCH: malformed values of NCCL's and CUDA's variables are remarked once, whatever the
# number of ranks, and change nothing; good ones are not mentioned.
set -u
bench=$1
failures=0

# expect LINES VARIABLE VALUE
expect()
{
    out=$(env -u SWIMLANE_LOG "$2=$3" "$bench" --nodes 1 --ranks-per-node 3 --tokens 1 --hidden 8 \
        --topk 1 --experts 3 --sms 2 --iterations 1 --quiet 2>&1)
    code=$?
    lines=$(printf '%s\n' "$out" | grep -c "$2 '$3' is not a number of 1 to ")
    if [ $code != 0 ] || [ "$lines" != "$1" ]; then
        printf '%s=%s: exit %s, %s lines, not %s:\n%s\n' "$2" "$3" $code "$lines" "$1" "$out" >&2
        failures=$((failures + 1))
    fi
}

for variable in NCCL_IB_QPS_PER_CONNECTION CUDA_DEVICE_MAX_CONNECTIONS; do
    expect 1 $variable many
    expect 1 $variable 99999
    expect 0 $variable 8
done
exit $failures
