#!/usr/bin/env python3
"""Fail when a build folder's compilations read CUDA or NCCL headers from outside the project.

usage: headers_seen.py BUILD_FOLDER
Reads what the compilers wrote down for ninja.
"""
import os
import re
import subprocess
import sys

FOREIGN = re.compile(r"^(cuda|nccl|nvrtc|device_types|driver_types|vector_types|host_defines)")


def main():
    build = os.path.abspath(sys.argv[1])
    source = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
    deps = subprocess.run(
        ["ninja", "-C", build, "-t", "deps"], check=True, capture_output=True, text=True
    ).stdout
    seen, bad = set(), set()
    for line in deps.splitlines():
        if not line.startswith("    "):
            continue
        path = os.path.realpath(os.path.join(build, line.strip()))
        seen.add(path)
        if path.startswith(source + os.sep):
            continue
        if not path.startswith("/usr/") or path.startswith("/usr/local/"):
            bad.add(path)
        elif FOREIGN.match(os.path.basename(path)):
            bad.add(path)
    if not seen:
        print("no compilation is recorded in", build)
        return 1
    for path in sorted(bad):
        print("the emulated build read", path)
    print(f"{len(seen)} files read, {len(bad)} of them from a CUDA toolkit, NCCL or /usr/local")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
