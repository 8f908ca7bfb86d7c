#!/usr/bin/env bash
# install_test.sh BUILD COMPILER: install the build into a temporary folder, build the example there
# from what was installed, and run it. Exit code 77: pkg-config is missing.
set -euo pipefail
build=$1 compiler=$2
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail()
{
    echo "install_test: $*" >&2
    exit 1
}

command -v pkg-config >/dev/null || exit 77
cmake --install "$build" --prefix "$work/first" >"$work/log" || fail "$(cat "$work/log")"
mv "$work/first" "$work/moved" # nothing may point to the first place, or to the build
lib=$(dirname "$(find "$work/moved" -name libnccl_ep.so)")
[ "$(readlink "$lib/libnccl_ep.so")" = libnccl_ep.so.0 ] || fail "no link libnccl_ep.so"
[ -L "$lib/libnccl_ep.so.0" ] && [ -f "$lib/libnccl_ep.so.0" ] || fail "no link libnccl_ep.so.0"
[ -f "$lib/libnccl_ep.a" ] || fail "no static library"
if readelf -d "$lib"/*.so | grep -E '\((RPATH|RUNPATH)\)' | grep -v '\[\$ORIGIN\]'; then
    fail "a library looks for others in a fixed place"
fi

# The folder of the example holds none of the project's headers.
cp "$root/examples/exchange.c" "$work"
cd "$work"
export PKG_CONFIG_PATH=$lib/pkgconfig
# shellcheck disable=SC2046 # words are wanted
"$compiler" -std=c11 -Wall -Wextra -Werror exchange.c $(pkg-config --cflags --libs swimlane) \
    -lpthread -lm -o exchange
readelf -d exchange | grep -q 'NEEDED.*libnccl_ep\.so\.0' || fail "the example needs another library"
LD_LIBRARY_PATH=$lib ./exchange

# D-3: the static library alone, with the options for it and nothing else.
mkdir "$work/static"
cp -r "$lib"/. "$work/static"
rm "$work"/static/libnccl_ep.so*
# shellcheck disable=SC2046
"$compiler" -std=c11 -Wall -Wextra -Werror exchange.c \
    $(pkg-config --static --cflags --libs swimlane | sed "s|-L[^ ]*/lib[^ ]*|-L$work/static|") \
    -o exchange_static
! readelf -d exchange_static | grep 'NEEDED.*libnccl_ep' || fail "the shared library was linked"
LD_LIBRARY_PATH=$work/static ./exchange_static
