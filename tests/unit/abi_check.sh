#!/bin/bash
# abi_check.sh LIBRARY ARCHIVE LOADER PLACE: exported symbols, SONAME, NEEDED, run path, banner.
set -u
library=$1 archive=$2 loader=$3 place=$4
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
failures=0

fail()
{
    echo "abi_check: $*" >&2
    failures=$((failures + 1))
}

# What nm prints without the names that sanitizers and the tool chain add.
exported=$(nm -D --defined-only "$library" | awk '{print $NF}' |
    grep -vE '^(__(asan|ubsan|tsan|odr_asan|start|stop)|_init$|_fini$)' | sort)
wanted=$(sed -n '/^global:/,/^local:/s/^ *\([A-Za-z]*\);$/\1/p' "$root/src/api/export.map" | sort)
declared=$(grep -ohE '\b(ncclEp|swimlane)[A-Za-z]+\(' "$root/include/nccl_ep.h" \
    "$root/include/swimlane.h" | tr -d '(' | grep -v 'Init_$' | sort -u | grep -vE '_fn$')
[ "$exported" = "$wanted" ] || fail "exported symbols differ from src/api/export.map:
$(diff <(echo "$wanted") <(echo "$exported"))"
for name in $wanted; do
    echo "$declared" | grep -qx "$name" || fail "$name is exported but not in the headers"
done
[ "$(echo "$wanted" | grep -c '^ncclEp')" = 18 ] || fail "there are not 18 ncclEp functions"

dynamic=$(readelf -d "$library")
soname=$(echo "$dynamic" | sed -n 's/.*(SONAME).*\[\(.*\)\]/\1/p')
[ "$soname" = libnccl_ep.so.0 ] || fail "SONAME is '$soname'"
[ "$(basename "$(readlink -f "$library")")" = libnccl_ep.so.0.2.0 ] ||
    fail "the file is not libnccl_ep.so.0.2.0"
banners=$(strings -a "$library" | grep -cE '^NCCL EP version [0-9]+\.[0-9]+\.[0-9]+\+cuda[0-9]+\.[0-9]+$')
[ "$banners" = 1 ] || fail "the banner is in the file $banners times"

if [ "$place" = cuda ]; then
    needed=$(echo "$dynamic" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' |
        grep -vE '^(libnccl\.so\.2|lib(c|m|dl|rt|pthread|gcc_s)\.so\.[0-9]|ld-linux.*)$')
    [ -z "$needed" ] || fail "NEEDED holds" $needed
    # Only what NCCL 2.28 has; driver and rdma-core are found at run time.
    foreign=$(nm -D --undefined-only "$library" | awk '{print $NF}' |
        grep -E '^(nccl|cu[A-Z]|cuda|ibv_|mlx5)' |
        grep -vE '^nccl(AllGather|Comm(Count|CuDevice|UserRank|GetAsyncError)|Get(ErrorString|LastError|Version))$')
    [ -z "$foreign" ] || fail "undefined symbols beyond the floor:" $foreign
    echo "$dynamic" | grep -qE 'RUNPATH|RPATH' && fail "the library has a run path"
    strings -a "$library" | grep -qE '^NCCL EP version .*\+cuda(1[2-9]|[2-9][0-9])\.' ||
        fail "the banner does not name the toolkit"
else
    strings -a "$library" | grep -qE '^NCCL EP version .*\+cuda0\.0$' ||
        fail "the banner does not say +cuda0.0"
fi

# The archive sits in one binary with other libraries: public names and swl_ only.
if [ -f "$archive" ]; then
    foreign=$(nm --defined-only --extern-only "$archive" 2>/dev/null | awk 'NF == 3 {print $3}' |
        grep -vE '^(ncclEp|swimlane|swl_|_?_?ZN?K?[0-9]*swl_|__odr_asan|DW\.ref)' |
        grep -vE '^_Z.*swl_|^__(asan|tsan|ubsan|cuda|fatbin|nv)' | sort -u)
    [ -z "$foreign" ] || fail "the archive defines names of others: $(echo $foreign)"
fi

# Loading prints nothing, and the banner exactly once with NCCL_EP_DEBUG.
unset NCCL_EP_DEBUG SWIMLANE_LOG SWIMLANE_REPORT_VERSION
said=$("$loader" "$library" 2>&1)
[ "$said" = 200 ] || fail "loading printed '$said'"
for on in 1 on TRUE yes; do
    count=$(NCCL_EP_DEBUG=$on "$loader" "$library" 2>&1 >/dev/null | grep -c '^NCCL EP version ')
    [ "$count" = 1 ] || fail "NCCL_EP_DEBUG=$on printed the banner $count times"
done
for off in 0 off FALSE ''; do
    count=$(NCCL_EP_DEBUG=$off "$loader" "$library" 2>&1 >/dev/null | grep -c '^NCCL EP version ')
    [ "$count" = 0 ] || fail "NCCL_EP_DEBUG=$off printed the banner"
done
said=$(SWIMLANE_REPORT_VERSION=100 "$loader" "$library" 2>&1)
[ "$said" = 100 ] || fail "SWIMLANE_REPORT_VERSION=100 gave '$said'"
said=$(SWIMLANE_REPORT_VERSION=x "$loader" "$library" 2>/dev/null)
[ "$said" = 200 ] || fail "SWIMLANE_REPORT_VERSION=x gave '$said'"

exit $((failures > 0))
