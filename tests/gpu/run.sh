#!/bin/bash
# tests/gpu/run.sh [build folder]: build the cuda place and run everything that needs a GPU.
# Ends with 1 on a machine without GPU, so that nobody takes skipped tests for passed ones.
set -euo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
build=${1:-$root/build/cuda}

if ! command -v nvidia-smi >/dev/null || ! nvidia-smi -L; then
    echo "run.sh: no GPU on this machine" >&2
    exit 1
fi
cmake --preset cuda -S "$root" -B "$build" -DCMAKE_CUDA_ARCHITECTURES=native
cmake --build "$build" -j "$(nproc)"
ctest --test-dir "$build" --output-on-failure -L 'gpu|nvcc|unit'
if command -v compute-sanitizer >/dev/null; then
    # the message test polls for seconds under the tool; the others cover the same instructions
    compute-sanitizer --error-exitcode 1 "$build/tests/gpu_device_test" \
        --gtest_filter='-*DataPublished*:*Conversions*'
fi
