#!/usr/bin/env python3
"""Words that must not come back, and documents that are cited and do not exist.

Retired words are looked for in documents and in texts that users see: strings with a blank in the product's
sources. In documents, code in backticks is no prose. Links and citations of documents are looked for in
documents and sources. Retired names are looked for in identifiers and file names of the product.
docs/glossary.md has the words that are used. Prints one line per violation, exit code 1 if there is any.
"""
import os
import re
import subprocess
import sys

SOURCES = (".c", ".h", ".cc", ".cu", ".cuh")
PRODUCT = ("include/", "src/", "kernels/", "transport/", "sim/", "tools/", "plugin/")
# word (a regular expression): what to write instead
RETIRED = {
    r"goodbyes?": "closing message",
    r"out-of-band( channel)?": "control connection",
    r"mend(s|ed|ing)?": "repair",
    r"straddl\w+": "crosses the budget",
    r"rehears\w+": "fault injection",
    r"window bits?|windows of finished slots": "bit of the completion mask",
    r"alarms?": "error word",
    r"link (rings?|writers?|credits?|models?)": "local ring, wire model",
    r"whoever": "a rank, caller or process that",
    r"peer,(proxy|devx|rdma)": "peer,verbs or peer,mlx5",
    r"nap|dice|mlv": "sleep, random, mlx5",
}
# part of an identifier or file name between underscores, in small letters: what to write instead
NAMES = {
    "alarm alarms": "error_page or error_word",
    "apart": "multi_process, no_overlap",
    "cadence lag": "publish_every, publish_delay",
    "deal dealt": "lane_assignment, distribute",
    "desk board visit": "team memory, copy_queue, service",
    "dice": "random_below",
    "facts": "capabilities, reports",
    "far near offer offers": "remote, local, export, proximity",
    "mend mends mended": "qp_recovery",
    "mlv": "mlx5_verbs",
    "mover": "dma",
    "nap naps": "sleep_until",
    "oob": "control",
    "pace paced": "wire_model",
    "peek tally": "load_relaxed, add_relaxed",
    "rehearse": "fault_injection",
    "site": "sysfs, pci",
    "straddle straddles straddled straddler": "crosses_budget",
    "terms": "contributions",
    "walk": "cursor",
}
NAMES = {name: instead for names, instead in NAMES.items() for name in names.split()}
# names of others
FOREIGN = {"MSG_PEEK"}
RETIRED = {re.compile(rf"\b({word})\b", re.IGNORECASE): instead for word, instead in RETIRED.items()}
STRING = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
LITERAL = re.compile(r'"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\'')
INCLUDE = re.compile(r"^\s*#\s*include[^\n]*", re.MULTILINE)
LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)")
CITED = re.compile(r"\b(?:[\w-]+/)*[\w-]+\.md\b")


def blank(match):
    """The same lines, without their text."""
    return re.sub(r"[^\n]", " ", match.group(0))


def prose(path, text):
    """(line, text) of what a user reads in this file."""
    if path.endswith(".md"):
        text = re.sub(r"```.*?```|`[^`\n]*`", blank, text, flags=re.DOTALL)
        yield from enumerate(text.split("\n"), 1)
    elif path.endswith(SOURCES) and path.startswith(PRODUCT):
        for n, line in enumerate(COMMENT.sub(blank, text).split("\n"), 1):
            for match in STRING.finditer(line):
                if " " in match.group(1):
                    yield n, match.group(1)


def anchors(text):
    """Names of the headings of a document, as links give them."""
    for line in re.sub(r"```.*?```", "", text, flags=re.DOTALL).split("\n"):
        if line.startswith("#"):
            name = re.sub(r"[^\w\- ]", "", line.lstrip("#").strip().lower())
            yield name.replace(" ", "-")


def retired_words(path, text):
    for n, line in prose(path, text):
        for word, instead in RETIRED.items():
            match = word.search(line)
            if match:
                yield f"line {n}: '{match.group(0)}' is retired: {instead}"


def retired_names(path, text):
    if not path.startswith(PRODUCT):
        return
    for part in re.split(r"[^a-z0-9]+", path.lower()):
        if part in NAMES:
            yield f"'{part}' in the file's name is retired: {NAMES[part]}"
    if not path.endswith(SOURCES):
        return
    code = COMMENT.sub(blank, text)
    for n, line in enumerate(LITERAL.sub(blank, INCLUDE.sub(blank, code)).split("\n"), 1):
        for name in re.findall(r"[A-Za-z_]\w*", line):
            for part in set(name.lower().split("_")) & NAMES.keys():
                if name not in FOREIGN:
                    yield f"line {n}: '{part}' in {name} is retired: {NAMES[part]}"


def broken_links(path, text, read):
    """read(path): the text of a file of the project, or None."""
    if not path.endswith(".md"):
        return
    for match in LINK.finditer(text):
        target, anchor = match.groups()
        if re.match(r"[a-z]+:", target):
            continue
        file = os.path.normpath(os.path.join(os.path.dirname(path), target)) if target else path
        found = read(file)
        if found is None:
            yield f"links to {target}, which is not there"
        elif anchor and anchor not in anchors(found):
            yield f"links to {target}#{anchor}, and {file} has no such heading"


def missing_documents(path, text, documents):
    """Documents named in a source: by their path, or by their name alone."""
    if not path.endswith(SOURCES + (".sh", ".py", ".cmake", ".txt")):
        return
    for match in CITED.finditer(text):
        if match.group(0) not in documents and os.path.join("docs", match.group(0)) not in documents:
            yield f"cites {match.group(0)}, which is not there"


def problems_of(path, text, read, documents):
    yield from retired_words(path, text)
    yield from retired_names(path, text)
    yield from broken_links(path, text, read)
    yield from missing_documents(path, text, documents)


def read_file(path):
    if os.path.isdir(path):
        return ""
    if not os.path.exists(path):
        return None
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def main():
    files = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"],
                           check=True, capture_output=True, text=True).stdout.split()
    documents = {path for path in files if path.endswith(".md")}
    own = ("tools/support/words.py", "tests/unit/words_test.py")
    failed = False
    for path in files:
        text = None if path in own or not os.path.isfile(path) else read_file(path)
        for problem in problems_of(path, text, read_file, documents) if text else ():
            print(f"{path}: {problem}")
            failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
