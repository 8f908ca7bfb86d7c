"""The functions of a C, C++ or CUDA file as clang-format leaves it: their names, lines and parameters."""
import re

# What must not be read: comments, literals, preprocessor lines.
NOISE = re.compile(
    r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|^[ \t]*#(?:[^\n]*\\\n)*[^\n]*',
    re.S | re.M)
NO_FUNCTION = re.compile(r"^(if|for|while|switch|else|do|return|catch|case|default)\b|\[[^\]]*\]\s*\(")
CONTAINER = re.compile(r"\b(namespace|struct|class|union|extern)\b[^()]*$")
NAME = re.compile(r"([\w:~]+|operator\S+)\s*\(")


def blank(match):
    """Keep lines and columns."""
    return re.sub(r"[^\n]", " ", match.group(0))


def parameters(text, start):
    """Number of parameters of the list that opens at text[start]."""
    depth = count = 0
    for at in range(start, len(text)):
        c = text[at]
        if c in "([{<":
            depth += 1
        elif c in ")]}>" and text[at - 1] != "-":
            depth -= 1
            if depth == 0:
                inside = text[start + 1:at].strip()
                return 0 if inside in ("", "void") else count + 1
        elif c == "," and depth == 1:
            count += 1
    return count + 1


def function_of(head):
    """(name, parameters) if `head`, the text before a brace, begins a function, else None."""
    head = re.sub(r"^(\s*(public|private|protected):)+", "", head).strip()
    match = NAME.search(head)
    while match and match.group(1) in ("__attribute__", "aligned", "extern", "__launch_bounds__"):
        match = NAME.search(head, match.end())
    if not match or NO_FUNCTION.search(head) or "=" in head[:match.start()]:
        return None
    return match.group(1), parameters(head, match.end() - 1)


def functions(source):
    """Yield (name, first line, lines, parameters) of each function with a body; lines as clang-tidy counts."""
    text = NOISE.sub(blank, source)
    stack = []  # per open brace: None inside of what is no container, a container, or a function
    since = 0   # end of what came before the present declaration
    for match in re.finditer(r"[{};]", text):
        c, at = match.group(0), match.start()
        if c == "{":
            head = text[since:at]
            outside = all(entry == "container" for entry in stack)
            found = function_of(head) if outside else None
            if found:
                stack.append((found, text.count("\n", 0, at) + 1))
            else:
                stack.append("container" if outside and CONTAINER.search(head) else None)
        elif c == "}" and stack:
            entry = stack.pop()
            if isinstance(entry, tuple):
                (name, count), line = entry
                yield name, line, text.count("\n", 0, at) + 1 - line, count
        since = at + 1
