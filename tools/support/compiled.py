#!/usr/bin/env python3
"""Keep the files of stdin that a build folder compiles. usage: compiled.py BUILD_FOLDER"""
import json
import os
import sys

with open(os.path.join(sys.argv[1], "compile_commands.json"), encoding="utf-8") as file:
    compiled = {os.path.realpath(entry["file"]) for entry in json.load(file)}
for line in sys.stdin:
    if os.path.realpath(line.strip()) in compiled:
        print(line.strip())
