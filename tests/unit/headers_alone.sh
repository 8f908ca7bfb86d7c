#!/bin/bash
# headers_alone.sh CUDA_INCLUDE NVCC: every header compiles alone. Public headers: C11 and C++17, gcc
# and clang, -Wpedantic, with the stand-ins and (if CUDA_INCLUDE is not empty) with the real CUDA and
# NCCL. Shared headers: C and C++, and CUDA if NVCC is not empty. With CI=true a missing part fails.
set -u
cuda_include=${1:-} nvcc=${2:-}
cd "$(dirname "$0")/../.." || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0 ncompiled=0

missing()
{
    echo "headers_alone: not run: $*" >&2
    [ "${CI:-}" != true ] || failures=$((failures + 1))
}

# compile LABEL SOURCE COMMAND...
compile()
{
    local label=$1 source=$2
    shift 2
    ncompiled=$((ncompiled + 1))
    if ! "$@" -c "$source" -o "$work/out.o" >"$work/log" 2>&1; then
        echo "headers_alone: $label does not compile with: $*" >&2
        head -5 "$work/log" >&2
        failures=$((failures + 1))
    fi
}

source_of() # HEADER SUFFIX
{
    printf '#include <%s>\n' "$1" >"$work/alone.$2"
    echo "$work/alone.$2"
}

# A client that uses what the macros make, in both languages.
cat >"$work/client.c" <<'END'
#include <nccl_ep.h>
#include <nccl_ep.h>
#include <swimlane.h>
unsigned int swl_client(void *data, size_t *sizes);
unsigned int swl_client(void *data, size_t *sizes)
{
    ncclEpGroupConfig_t group = NCCL_EP_GROUP_CONFIG_INIT;
    ncclEpTensorAllocConfig_t alloc = NCCL_EP_TENSOR_ALLOC_CONFIG_INIT;
    ncclEpLayoutInfo_t info = NCCL_EP_LAYOUT_INFO_INIT;
    ncclEpDispatchInputs_t di = NCCL_EP_DISPATCH_INPUTS_INIT;
    ncclEpDispatchOutputs_t dout = NCCL_EP_DISPATCH_OUTPUTS_INIT;
    ncclEpCombineInputs_t ci = NCCL_EP_COMBINE_INPUTS_INIT;
    ncclEpCombineOutputs_t co = NCCL_EP_COMBINE_OUTPUTS_INIT;
    ncclEpHandleConfig_t handle = NCCL_EP_HANDLE_CONFIG_INIT;
    ncclEpDispatchConfig_t dc = NCCL_EP_DISPATCH_CONFIG_INIT;
    ncclEpCombineConfig_t cc = NCCL_EP_COMBINE_CONFIG_INIT;
    ncclEpCompleteConfig_t complete = NCCL_EP_COMPLETE_CONFIG_INIT;
    ncclEpTensor_t tensor = NCCL_EP_TENSOR_INIT;

    tensor.ndim = 1;
    tensor.datatype = ncclFloat4x2;
    tensor.data = data;
    tensor.sizes = sizes;
    di.tokens = &tensor;
    group = NCCL_EP_STRUCT_INIT(ncclEpGroupConfig_t, NCCL_EP_MAGIC);
    return group.size + alloc.size + info.size + di.size + dout.size + ci.size + co.size +
           handle.size + dc.size + cc.size + complete.size + tensor.size +
           (unsigned int)NCCL_EP_HAS_FIELD(&info, ncclEpLayoutInfo_t, recv_topk_idx_kind);
}
END
sed 's/swl_client/swl_client_cc/' "$work/client.c" >"$work/client.cc"
# Designators after the inline form: an extension before C++20, accepted by all (no -Wpedantic).
cat >"$work/inline.cc" <<'END'
#include <nccl_ep.h>
unsigned int swl_inline(size_t *sizes);
unsigned int swl_inline(size_t *sizes)
{
    ncclEpTensor_t tensor = {NCCL_EP_TENSOR_INIT_INLINE, .ndim = 1, .datatype = ncclInt32,
                             .data = nullptr, .win_hdl = nullptr, .win_offset = 0, .sizes = sizes};
    return tensor.size;
}
END
sed 's/nullptr/NULL/g' "$work/inline.cc" >"$work/inline.c"

strict='-Wall -Wextra -Wpedantic -Werror'
for include in -Isim/include ${cuda_include:+"-isystem $cuda_include"}; do
    for family in gcc:g++ clang:clang++; do
        cc=${family%:*} cxx=${family#*:}
        if ! command -v "$cxx" >/dev/null; then
            missing "public headers with $cc: no such compiler"
            continue
        fi
        for header in nccl_ep.h nccl_ep/ep_enums.h swimlane.h; do
            compile "$header" "$(source_of $header c)" $cc -std=c11 $strict -Iinclude $include
            compile "$header" "$(source_of $header cc)" $cxx -std=c++17 $strict -Iinclude $include
        done
        compile client.c "$work/client.c" $cc -std=c11 $strict -Iinclude $include
        compile client.cc "$work/client.cc" $cxx -std=c++17 $strict -Iinclude $include
        compile client.cc "$work/client.cc" $cxx -std=c++20 $strict -Iinclude $include
        compile inline.c "$work/inline.c" $cc -std=c11 $strict -Iinclude $include
        compile inline.cc "$work/inline.cc" $cxx -std=c++17 -Wall -Werror -Iinclude $include
    done
done
[ -n "$cuda_include" ] || missing "public headers with the real CUDA and NCCL: not found"

# F-81: many translation units in one shared object and one program.
ncompiled=$((ncompiled + 1))
sed 's/swl_client_cc/swl_client_two/' "$work/client.cc" >"$work/two.cc"
printf 'int main() { return 0; }\n' >"$work/main.cc"
if ! { gcc -std=c11 $strict -fPIC -Iinclude -Isim/include -c "$work/client.c" -o "$work/c.o" &&
    g++ -std=c++17 $strict -fPIC -Iinclude -Isim/include "$work/client.cc" "$work/two.cc" \
        "$work/c.o" -shared -o "$work/lib.so" &&
    g++ -std=c++17 $strict -Iinclude -Isim/include "$work/client.cc" "$work/two.cc" \
        "$work/main.cc" "$work/c.o" -o "$work/program"; } >"$work/log" 2>&1; then
    echo "headers_alone: F-81: public headers in many translation units do not link" >&2
    head -5 "$work/log" >&2
    failures=$((failures + 1))
fi

# Shared headers, as C and as C++, and as CUDA.
ours='-Wall -Wextra -Werror -I. -Iinclude -Isim -Isim/include'
shared=$(ls src/runtime/launch.h kernels/{device/{hd,fault},common/{layout,args,block,faults}}.h transport/{wqe,qp_view,rdma_view,nic_kinds}.h 2>/dev/null)
for header in $shared; do
    compile "$header" "$(source_of "$header" c)" gcc -std=c11 $ours
    compile "$header" "$(source_of "$header" cc)" g++ -std=c++17 $ours
done
if [ -n "$nvcc" ] && [ -n "$cuda_include" ]; then
    for header in $shared; do
        compile "$header" "$(source_of "$header" cu)" "$nvcc" -std=c++17 -arch=sm_90 -I. -Iinclude \
            -Ikernels/device/cuda
    done
    compile client.cu "$(cp "$work/client.cc" "$work/client.cu" && echo "$work/client.cu")" \
        "$nvcc" -std=c++17 -arch=sm_90 -rdc=true -Werror all-warnings -Iinclude "-I$cuda_include"
else
    missing "shared headers as CUDA: no nvcc"
fi

# The others: host headers as C and C++ (those of the emulator as C++), device headers as C++.
for header in src/*/*.h transport/*.h transport/{host,mlx5,proxy,proxy/tcp,proxy/verbs,rdma_core,soft}/*.h kernels/common/kernels.h; do
    case $header in
    src/base/options_table.h | src/runtime/cuda/driver.h) continue ;; # a table; needs CUDA's own headers
    transport/soft/events.h | transport/soft/serve.h | transport/host/staging.h | \
        transport/host/words.h | transport/proxy/serve.h | transport/host/wire_model.h | \
        transport/proxy/fault_injection.h | transport/host/memory_sim.h) ;; # C++ only
    *) compile "$header" "$(source_of "$header" c)" gcc -std=c11 -D_GNU_SOURCE $ours ;;
    esac
    compile "$header" "$(source_of "$header" cc)" g++ -std=c++17 $ours
done
for header in kernels/*/*.cuh transport/*.cuh transport/{host,soft}/*.cuh sim/device.h sim/simt.h; do
    [ -f "$header" ] || continue
    # A role alone is not called.
    compile "$header" "$(source_of "$header" cc)" g++ -std=c++17 $ours -Wno-unused-function
done
[ "$failures" -gt 0 ] || echo "headers_alone: $ncompiled compilations passed"
exit $((failures > 0))
