#!/usr/bin/env python3
"""circles_test.py NM OBJECTS: files of one folder that need each other in a circle, by the symbols that the
linker sees. OBJECTS names a file with the objects of the product, one a line. All of src is one folder here:
its own lie in layers, and none stands on a later one."""
import os
import subprocess
import sys

# Circles that are still there. A file that has left one must leave the list as well.
KNOWN = {
    "sim": [
        {"simt.cc", "simt_actor.cc", "simt_background.cc", "simt_bulk.cc", "simt_grid.cc",
         "simt_poll.cc", "simt_report.cc", "simt_run.cc", "simt_scope.cc", "simt_warp.cc"},
    ],
}


def source_of(path):
    """build/sim/src/CMakeFiles/swl_core.dir/group/order.c.o -> src/group/order.c, below the build."""
    place, _, rest = path.partition("/CMakeFiles/")
    name = rest.partition(".dir/")[2]
    return os.path.normpath(os.path.join(place, os.path.splitext(name)[0]))


def symbols(nm, objects):
    defined, needed = {}, {}
    for path in objects:
        out = subprocess.run([nm, "-g", "-P", path], capture_output=True, text=True, check=True)
        source = source_of(path)
        defined[source], needed[source] = set(), set()
        for line in out.stdout.splitlines():
            name, kind = line.split()[:2]
            if kind in "Uwv":
                needed[source].add(name)
            elif kind not in "WVu":  # any object may have those
                defined[source].add(name)
    return defined, needed


def graph_of(sources, defined, needed):
    owner = {name: s for s in sources for name in defined[s]}
    return {s: {owner[n] for n in needed[s] if n in owner} - {s} for s in sources}


def reached(graph, start):
    seen, todo = set(), [start]
    while todo:
        for other in graph[todo.pop()] - seen:
            seen.add(other)
            todo.append(other)
    return seen


def circles(graph):
    after = {s: reached(graph, s) for s in graph}
    found = {frozenset(t for t in graph if t in after[s] and s in after[t]) for s in graph}
    return sorted((set(c) for c in found if c), key=sorted)


def main():
    nm, listing = sys.argv[1:]
    with open(listing, encoding="utf-8") as file:
        objects = [line.strip() for line in file if line.strip().endswith(".o")]
    defined, needed = symbols(nm, objects)
    top = os.path.commonpath(list(defined))
    folders = {}
    for source in defined:
        folder = os.path.dirname(os.path.relpath(source, top))
        folders.setdefault(folder, []).append(source)
        if folder.startswith("src/"):
            folders.setdefault("src", []).append(source)
    wrong = 0
    for folder in sorted(folders):
        graph = graph_of(folders[folder], defined, needed)
        base = "src" if folder == "src" else folder
        named = [{os.path.relpath(s, os.path.join(top, base)) for s in c} for c in circles(graph)]
        known = KNOWN.get(folder, [])
        for circle in named:
            if circle not in known:
                print(f"{folder}: a circle of {', '.join(sorted(circle))}")
                wrong += 1
                for s in sorted(circle):
                    full = os.path.join(top, base, s)
                    for other in sorted(graph[full]):
                        names = sorted(needed[full] & defined[other])[:4]
                        if os.path.relpath(other, os.path.join(top, base)) in circle:
                            print(f"    {s} -> {os.path.basename(other)}: {', '.join(names)}")
        for circle in known:
            if circle not in named:
                print(f"{folder}: no circle of {', '.join(sorted(circle))} any more: "
                      "take it off the list")
                wrong += 1
    if len(defined) < 50:
        print(f"only {len(defined)} objects were given")
        wrong += 1
    print(f"{len(defined)} objects in {len(folders)} folders, {wrong} complaints")
    return wrong > 0


sys.exit(main())
