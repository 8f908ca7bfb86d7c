#!/usr/bin/env python3
"""Sentences of documents have at most 25 words.

Headings, tables and code are no sentences, and code in backticks counts as one word. An item of a list is a
paragraph. Prints one line per violation, exit code 1 if there is any.
"""
import re
import subprocess
import sys

LIMIT = 25
ITEM = re.compile(r"(?:[*+-]|\d+\.)\s+")
END = re.compile(r"(?<=[.!?])[)*_\"]*\s+(?=[^a-z])")


def blank(match):
    """The same lines, without their text."""
    return re.sub(r"[^\n]", " ", match.group(0))


def paragraphs(text):
    """(first line, text) of every paragraph and item of a list."""
    text = re.sub(r"```.*?```|<!--.*?-->", blank, text, flags=re.DOTALL)
    first, lines = 0, []
    for n, line in enumerate(text.split("\n") + [""], 1):
        inside = line.strip().lstrip("> ")
        item = ITEM.match(inside)
        code = not lines and not item and line.startswith("    ")
        if item or code or not inside or inside[0] in "|#":
            if lines:
                yield first, " ".join(lines)
            lines = [inside[item.end():]] if item else []
            first = n
        else:
            first = first if lines else n
            lines.append(inside)


def sentences(paragraph):
    prose = re.sub(r"`[^`]*`", "CODE", paragraph)
    prose = re.sub(r"\]\([^)]*\)", "]", prose)
    return END.split(prose)


def problems_of(text):
    for n, paragraph in paragraphs(text):
        for sentence in sentences(paragraph):
            words = len(re.findall(r"\S*\w\S*", sentence))
            if words > LIMIT:
                yield f"line {n}: {words} words in a sentence, {LIMIT} is the most: {sentence}"


def main():
    files = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
                           check=True, capture_output=True, text=True).stdout.split()
    failed = False
    for path in files:
        with open(path, encoding="utf-8") as file:
            for problem in problems_of(file.read()):
                print(f"{path}: {problem}")
                failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
