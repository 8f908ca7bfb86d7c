#!/usr/bin/env python3
"""Rules of the tree that no compiler knows: who may include whom, sizes, words.

Reads the files git knows. Prints one line per violation, exit code 1 if there is any.
"""
import os
import re
import subprocess
import sys

# folder prefix of the including file -> prefixes it may include (quoted includes, from the root).
ALLOWED = [
    ("include/", ["include/", "nccl_ep", "swimlane"]),
    ("plugin/", ["include/", "plugin/"]),
    ("src/", ["src/", "kernels/layout.h", "kernels/args.h", "kernels/fault.h", "kernels/launch.h",
              "kernels/kernels.h", "transport/nic.h", "transport/rdma.h"]),
    ("kernels/", ["kernels/", "device.h", "transport/wqe.h", "transport/qp.cuh",
                  "transport/qp_view.h", "transport/rdma_view.h"]),
    ("transport/", ["transport/", "src/base/", "src/gpu.h", "device.h", "kernels/layout.h",
                    "kernels/fault.h", "kernels/launch.h", "kernels/wait.cuh",
                    "sim/simt.h"]),
    ("sim/", ["sim/", "src/gpu.h", "src/base/", "kernels/", "transport/"]),
    ("tools/support/", ["tools/support/", "include/", "src/gpu.h", "src/base/", "sim/simt.h"]),
    ("tools/", ["tools/", "include/", "src/gpu.h", "src/base/", "transport/nic.h"]),
    ("examples/", ["include/"]),
]
SHARED = {"kernels/layout.h", "kernels/args.h", "kernels/fault.h", "kernels/launch.h",
          "transport/wqe.h"}
SHARED_SYSTEM = {"stdint.h", "stddef.h", "assert.h", "stdbool.h"}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^">]+)[">]', re.M)
BAD_WORDS = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
MAX_LINES = 600

problems = []


def problem(path, text):
    problems.append(f"{path}: {text}")


def check_includes(path, text):
    rules = next((allowed for prefix, allowed in ALLOWED if path.startswith(prefix)), None)
    folder = os.path.dirname(path)
    for kind, name in INCLUDE.findall(text):
        if kind == "<":
            if path in SHARED and name not in SHARED_SYSTEM:
                problem(path, f"a shared header includes <{name}>")
            continue
        if rules is None:
            continue
        beside = os.path.normpath(os.path.join(folder, name))
        target = beside if os.path.exists(beside) and "/" not in name else name
        if not any(target.startswith(prefix) or name.startswith(prefix) for prefix in rules):
            problem(path, f'may not include "{name}"')


def check_kernel(path, text):
    if path.startswith("kernels/cuda/"):
        return
    if path.endswith((".cu", ".cuh")):
        if re.search(r"^\s*#\s*(if|ifdef|ifndef)\b", text, re.M):
            problem(path, "preprocessor conditional in a kernel")
        if re.search(r"\b(printf|__trap|__threadfence|asm|atomicAdd|__syncthreads)\s*[ (]", text):
            problem(path, "a kernel uses only the primitives of device.h")
    if path.endswith(".cuh") and "#pragma once" not in text:
        problem(path, "no #pragma once")


def main():
    files = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"],
                           check=True, capture_output=True, text=True).stdout.split()
    for path in files:
        if not os.path.exists(path) or not path.endswith((".c", ".h", ".cc", ".cu", ".cuh")):
            continue
        with open(path, encoding="utf-8") as file:
            text = file.read()
        if text.count("\n") > MAX_LINES:
            problem(path, f"{text.count(chr(10))} lines, {MAX_LINES} is the end")
        if BAD_WORDS.search(text):
            problem(path, "a plan in the code; plans live in issues")
        check_includes(path, text)
        if path.startswith(("kernels/", "transport/")):
            check_kernel(path, text)
    for line in problems:
        print(line)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
