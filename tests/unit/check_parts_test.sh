#!/usr/bin/env bash
# check_parts_test.sh ROOT: D-B6: tools/check on a machine that lacks packages and reaches no archive of
# them takes what is there, names what it left out, and needs only what the named parts need.
set -uo pipefail
root=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# A machine with a compiler and without clang, cppcheck and a network; its linter finds nothing.
mkdir -p "$work/bin" "$work/tools/support"
cp "$root/tools/check" "$work/tools/"
cp "$root/tools/support/setup.sh" "$work/tools/support/"
printf '#!/bin/sh\nexit 0\n' >"$work/tools/lint"
printf '#!/bin/sh\necho "cannot resolve the name of the archive" >&2\nexit 100\n' >"$work/bin/apt-get"
chmod +x "$work/tools/lint" "$work/bin/apt-get"
for tool in bash sh env dirname cat sed grep sort paste tail mkdir uname id ls nproc; do
    ln -s "$(command -v $tool)" "$work/bin/"
done
for tool in cmake ninja gcc g++ python3 shellcheck; do
    ln -s /bin/true "$work/bin/$tool"
done

failed=0
# expect CODE WORDS ARGUMENT...: what tools/check ends with and says.
expect() {
    local code=$1 words=$2 found rc=0
    shift 2
    found=$(PATH=$work/bin "$work/tools/check" "$@" 2>&1) || rc=$?
    if [ $rc -ne "$code" ] || ! grep -q -e "$words" <<<"$found"; then
        printf 'tools/check %s: exit code %s, not %s, or no "%s" in:\n%s\n' "$*" $rc "$code" "$words" "$found"
        failed=1
    fi
}

unset CI
expect 0 'not run: tsan: missing packages: clang-14' lint tsan
expect 0 'lint passed' lint tsan
expect 0 'going on with what is there' lint
expect 0 'installing: clang-format-14 clang-tidy-14 cppcheck$' lint # and nothing for other parts
expect 0 'not run: lint, what needs .* missing: clang-format-14 clang-tidy-14 cppcheck' lint
expect 0 'not run: model: missing packages: spin' lint model
expect 1 'nothing could be run' tsan
expect 0 'gpu not run' lint gpu # there is no GPU, and a part that ran nothing has not passed
expect 1 'nothing could be run' gpu
expect 0 'tsan: cannot run, missing: clang-14' --list tsan
CI=true expect 1 'parts left out with CI=true' lint
exit $failed
