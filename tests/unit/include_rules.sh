#!/bin/bash
# include_rules.sh: which folder may include which, as in docs/architecture.md. Quoted includes only;
# a name without a folder is a header that the include path chooses (device.h and the like).
set -u
cd "$(dirname "$0")/../.." || exit 1

# folder of the including file -> pattern of what it may name
rules='
include        ^(nccl_ep/ep_enums\.h|nccl_ep\.h)$
src/base       ^(src/base/|src/runtime/runtime\.h$)
src            ^(src/|kernels/(device/fault|device/launch|common/(layout|args|block|kernels))\.h$|transport/(nic|oob|rdma|select)\.h$)
kernels        ^(kernels/|device\.h$|transport/(wqe\.h|qp\.cuh|qp_view\.h|rdma_view\.h|soft/blocks\.cuh)$)
transport      ^(src/base/|src/runtime/runtime\.h$|device\.h$|kernels/common/layout\.h$|kernels/device/(fault|launch)\.h$|kernels/device/wait\.cuh$|transport/)
sim            ^(src/runtime/runtime\.h$|src/base/|kernels/|transport/|sim/|device\.h$|simt[a-z_]*\.h$)
examples       ^$
plugin         ^(plugin/|nccl_ep|swimlane)
tools/support  ^(tools/support/|src/runtime/runtime\.h$|src/base/)
tools          ^(tools/|src/runtime/runtime\.h$|src/base/|transport/(nic|select|site)\.h$|transport/verbs/(verbs|port|pkey)\.h$|transport/mlx5/path\.h$)
'
# The one file of each folder that exists for the emulator only.
emulator_files='transport/soft/engine.cc tools/support/ranks_fibers.c'

failures=0
while read -r folder allowed; do
    [ -n "$folder" ] && [ -d "$folder" ] || continue
    while IFS=: read -r file name; do
        case $folder in
        src) [[ $file == src/base/* ]] && continue ;;
        tools) [[ $file == tools/support/* ]] && continue ;;
        esac
        [[ " $emulator_files " == *" $file "* && $name == sim/simt.h ]] && continue
        if ! [[ $name =~ $allowed ]]; then
            echo "include_rules: $file must not include \"$name\"" >&2
            failures=$((failures + 1))
        fi
    done < <(grep -rHoE '^ *# *include *"[^"]+"' --include='*.[ch]' --include='*.cc' --include='*.cu' \
        --include='*.cuh' "$folder" | sed -E 's/: *# *include *"([^"]+)"/:\1/')
done <<<"$rules"

# Kernels are free of conditionals; only the two device.h differ between GPU and emulator.
while read -r line; do
    echo "include_rules: preprocessor conditional in $line" >&2
    failures=$((failures + 1))
done < <(grep -nE '^ *# *(if|ifdef|ifndef|elif)\b' kernels/*/*.cu kernels/*/*.cuh transport/*.cuh 2>/dev/null)

# Shared headers (C and CUDA) include standard headers and each other only.
for header in kernels/{device/{fault,launch},common/{layout,args,block}}.h transport/{wqe,qp_view,rdma_view,nic_kinds}.h transport/soft/{port,stats,faults}.h; do
    [ -f "$header" ] || continue
    while read -r name; do
        case $name in
        '<stdint.h>' | '<stddef.h>' | '<assert.h>' | '<stdbool.h>' | '<string.h>') ;;
        '"kernels/'* | '"transport/'*.h'"') ;;
        *)
            echo "include_rules: shared header $header must not include $name" >&2
            failures=$((failures + 1))
            ;;
        esac
    done < <(sed -nE 's/^ *# *include *([<"][^>"]+[>"]).*/\1/p' "$header")
done
exit $((failures > 0))
