#!/usr/bin/env python3
"""Rules of the tree that no compiler knows: sizes of files and functions, words, what a kernel may use.

Reads the files git knows; who may include whom is checked by tests/unit/include_rules.sh. Prints one
line per violation, exit code 1 if there is any.
"""
import os
import re
import subprocess
import sys

from functions import functions

SOURCES = (".c", ".h", ".cc", ".cu", ".cuh")
MAX_LINES = 600
# Of the functions of what is shipped; clang-tidy reads the .c files only.
PRODUCT = ("src/", "kernels/", "transport/", "sim/", "tools/", "plugin/")
MAX_FUNCTION_LINES = 60
MAX_PARAMETERS = 6
GIVEN = re.compile(r"nccl[A-Z]")  # NCCL's own signatures
PLANS = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
# What kernels must reach through device.h only.
RAW = re.compile(r"\b(printf|__trap|__threadfence\w*|asm|atomic[A-Z]\w+|__sync\w+|__shfl\w+)\s*\(")
# The text of the call is part of the sentence: of a variable it says nothing.
NO_CALL = re.compile(r"\bSWL_(CUDA|NCCL)\((\w+)\)")

MAX_COLUMNS = 100  # also of comments, which the formatter leaves alone; tables of code are wider
COMMENT_LINE = re.compile(r"\s*(/\*|\*|//)")

# Of these a profile or a backtrace must not show two: a static function whose name is one word.
ONE_WORD = re.compile(r"^static (?!const|inline)[\w *]*?\b([a-z]+)\(", re.MULTILINE)


def long_functions(path, text):
    for name, line, lines, parameters in functions(text):
        if lines > MAX_FUNCTION_LINES:
            yield f"line {line}: {name} has {lines} lines, {MAX_FUNCTION_LINES} is the end"
        if parameters > MAX_PARAMETERS and not GIVEN.match(name):
            yield f"line {line}: {name} has {parameters} parameters, {MAX_PARAMETERS} is the end"


def long_lines(text):
    formatted = True
    for n, line in enumerate(text.split("\n"), 1):
        if "clang-format o" in line:
            formatted = "clang-format on" in line
        if len(line) > MAX_COLUMNS and (formatted or COMMENT_LINE.match(line)):
            yield f"line {n}: ends behind column {MAX_COLUMNS}"


def problems_of(path, text):
    if path.startswith(PRODUCT):
        yield from long_functions(path, text)
    if path.endswith(SOURCES):
        yield from long_lines(text)
    lines = text.count("\n")
    if lines > MAX_LINES:
        yield f"{lines} lines, {MAX_LINES} is the end"
    if PLANS.search(text):
        yield "a plan in the code; plans live in issues"
    for match in NO_CALL.finditer(text):
        if match.group(2) not in ("call", "cudaSuccess"):
            yield f"{match.group(0)} names a variable, not what failed"
    if path.endswith(".cuh") and "#pragma once" not in text:
        yield "no #pragma once"
    if path.startswith(("kernels/", "transport/")) and path.endswith((".cu", ".cuh")):
        for match in RAW.finditer(text):
            yield f"{match.group(1)} in a kernel"


def same_names(texts):
    """texts: {path: text} of the product's sources."""
    first = {}
    for path, text in texts.items():
        for name in sorted(set(ONE_WORD.findall(text))):
            if first.setdefault(name, path) != path:
                yield f"{path}: {name}() is also the name of a function in {first[name]}"


def main():
    files = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"],
                           check=True, capture_output=True, text=True).stdout.split()
    failed = False
    product = {}
    for path in files:
        if not path.endswith(SOURCES) or not os.path.exists(path):
            continue
        with open(path, encoding="utf-8") as file:
            text = file.read()
        if path.startswith(PRODUCT) and not path.endswith(".h"):
            product[path] = text
        for problem in problems_of(path, text):
            print(f"{path}: {problem}")
            failed = True
    for problem in same_names(product):
        print(problem)
        failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
