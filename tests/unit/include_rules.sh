#!/bin/bash
# include_rules.sh: which folder may include which: docs/architecture.md, layers. Quoted includes of
# src, kernels, transport, sim, tools, plugin and examples; a name without a folder is a header that the
# include path chooses (device.h).
set -u
cd "$(dirname "$0")/../.." || exit 1
failures=0
complain()
{
    echo "include_rules: $*" >&2
    failures=$((failures + 1))
}
sources() { find "$@" -name '*.[ch]' -o -name '*.cc' -o -name '*.cu' -o -name '*.cuh'; }

# The order: an include never points to the right. `sim` stands beside what it implements, runtime.h and
# device.h, and only files that exist for the emulator know it.
layer_of()
{
    case $1 in
    src/base/*) layer=1 ;;
    src/runtime/*) layer=2 ;;
    kernels/device/* | device.h | sim/*) layer=3 ;;
    transport/*) layer=4 ;;
    kernels/*) layer=5 ;;
    src/*) layer=6 ;;
    plugin/* | tools/*) layer=7 ;;
    *) layer=9 ;; # what only programs of users include in quotes
    esac
}
for_emulator=' transport/host/executor_sim.cc transport/host/memory_sim.h tools/support/ranks_fibers.c '

while IFS=: read -r file name; do
    layer_of "$file" && from=$layer
    layer_of "$name"
    case $file/$name in
    include/*/nccl_ep/* | include/*/nccl_ep.h) ;;
    examples/* | include/*) complain "$file must not include \"$name\"" ;;
    sim/*/sim/* | sim/*/simt*.h) continue ;;
    */sim/*) [[ $for_emulator == *" $file "* ]] || complain "$file must not include \"$name\"" ;;
    *) [ "$layer" -le "$from" ] || complain "$file must not include \"$name\"" ;;
    esac
done < <(sources include src kernels transport sim tools examples $(ls -d plugin 2>/dev/null) |
    xargs grep -HoE '^ *# *include *"[^"]+"' | sed -E 's/: *# *include *"([^"]+)"/:\1/')

# Kernels are free of conditionals; only the two device.h differ between GPU and emulator. core.cuh also
# runs on the host, which declares its functions otherwise.
while read -r line; do
    complain "preprocessor conditional in $line"
done < <(sources kernels transport | grep -E '\.cuh?$' | grep -v host/core.cuh | xargs grep -nE '^ *# *(if|ifdef|ifndef|elif)\b')

# Shared headers (C and CUDA) include standard headers and each other only.
for header in src/runtime/launch.h kernels/device/{hd,fault}.h kernels/common/{faults,layout,args,block}.h \
    transport/{wqe,qp_view,rdma_view,nic_kinds}.h transport/host/{port,stats,faults}.h; do
    [ -f "$header" ] || continue
    while read -r name; do
        case $name in
        '<stdint.h>' | '<stddef.h>' | '<assert.h>' | '<stdbool.h>' | '<string.h>') ;;
        '"kernels/'*.h'"' | '"kernels/'*.def'"' | '"transport/'*.h'"') ;;
        *) complain "shared header $header must not include $name" ;;
        esac
    done < <(sed -nE 's/^ *# *include *([<"][^>"]+[>"]).*/\1/p' "$header")
done
exit $((failures > 0))
