"""Tidies generated C: removes loops of one or no iteration, ``+ 0`` and ``* 1``.

Templates write the general form, ``for (int32_t image = 0; image < 4; image++)``; it depends on the layer
which of the counts are 1. The rewrites operate on lines in the form that templates write: a block ends with a
brace in the column where its first line begins. Other lines are unchanged.
"""

import re

__all__ = ["tidy"]

_LOOP = re.compile(r"( *)for \(int32_t (\w+) = (\d+); \2 < (\d+); \2(?:\+\+| \+= (\d+))\)( \{)?")
_DECLARED = re.compile(r"\b(?:u?int\d+_t|size_t|float) (?:\*(?:const )?)*(\w+)(?= =|\[|;)")
# Terms that do nothing, each with what is left of it.
_TERMS = (
    (re.compile(r"(?<![\w)\]])\((\d+)\)"), r"\1"),
    (re.compile(r"(?<![*/%] )(?<![-\w.])0 [*/%] (?!sizeof\b)(?:\w+(?![\w.(\[])|\(\d+\))"), "0"),
    (re.compile(r"(?<![*/%] )(?:\b\w+|(?<![\w)\]])\(\w+\)) % 1(?![\w.])"), "0"),
    (re.compile(r" [*/] 1(?![\w.])"), ""),
    (re.compile(r"(?<![*/%] )(?<![\w.])1 \* "), ""),
    (re.compile(r" [+-] 0(?![\w.]| [*/%])"), ""),
    (re.compile(r"(?<![-+*/%] )(?<![\w.])0 \+ "), ""),
)
# Lines per function.
_SOME = re.compile(r"\b[01]\b|\(\d+\)")


def tidy(source: str) -> str:
    lines = source.split("\n")
    at = 0
    while at < len(lines):
        lines, again = _without_loop(lines, at)
        at += 0 if again else 1
    return _flattened([_without_terms(line) for line in lines])


def _without_terms(line: str) -> str:
    before = ""
    while before != line and _SOME.search(line):
        before = line
        for pattern, rest in _TERMS:
            line = pattern.sub(rest, line)
    return line


def _without_loop(lines: list[str], at: int) -> tuple[list[str], bool]:
    # The lines without the loop that begins at ``at``, if that has one turn or none; whether it had.
    match = _LOOP.fullmatch(lines[at])
    turns = len(range(int(match[3]), int(match[4]), int(match[5] or 1))) if match else 2
    if match is None or turns > 1:
        return lines, False
    indent, name, first = match[1], match[2], match[3]
    end = lines.index(f"{indent}}}", at)
    if turns == 0:
        return [*lines[:at], *lines[end + 1 :]], True
    body = "\n".join(lines[at + 1 : end])
    if re.search(
        rf"\b(?:{name} (?:[-+*/]?=) |{name}(?:\+\+|--)|int32_t {name}\b)|\b(?:break|continue);", body
    ):
        return lines, False
    head = [f"{indent}{{"] if match[6] else []
    return [*lines[:at], *head, *re.sub(rf"\b{name}\b", first, body).split("\n"), *lines[end:]], True


def _flattened(lines: list[str]) -> str:
    # Without blocks that are no loop's, where their names are not used around them.
    at = 0
    while at < len(lines):
        indent = lines[at].removesuffix("{")
        if indent and indent != lines[at] and indent.isspace():
            end = lines.index(f"{indent}}}", at)
            body = lines[at + 1 : end]
            if _is_bare(lines, at) and not _clashes(lines, at, end):
                lines[at : end + 1] = [line.removeprefix("    ") for line in body]
                continue
        at += 1
    return "\n".join(lines)


def _is_bare(lines: list[str], at: int) -> bool:
    # True if no loop or condition precedes the block.
    return lines[at - 1].rstrip().endswith((";", "{", "}", "*/"))


def _clashes(lines: list[str], at: int, end: int) -> bool:
    # True if a name that the block declares occurs elsewhere in its function.
    start = max(i for i in range(at) if lines[i] == "{")
    stop = lines.index("}", end)
    around = "\n".join((*lines[start:at], *lines[end : stop + 1]))
    declared = {name for line in lines[at + 1 : end] for name in _DECLARED.findall(line)}
    return any(re.search(rf"\b{name}\b", around) for name in declared)
