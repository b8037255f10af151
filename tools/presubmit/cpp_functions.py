"""Finds the function definitions of a C or C++ source by matching braces."""

import dataclasses
import re

import cpp_text

_SCOPE = re.compile(
    r"\b(namespace|class|struct|union|enum)\b[^()]*$|\bextern\s*\"\s*\"\s*$"
)
_OPERATOR = re.compile(r"\boperator\s*(\(\s*\)|[^\s\w(]+)")
_NOEXCEPT = re.compile(r"\b(noexcept|requires|decltype|alignas)\s*\([^()]*\)")
_TAIL = re.compile(
    r"^\s*((const|noexcept|override|final|volatile|mutable|try|&&?)\s*)*" r"(->[^=]*)?$"
)
_NAME = re.compile(r"([~\w:]+)\s*$")
_OPEN, _CLOSE = "([<{", ")]>}"


@dataclasses.dataclass(frozen=True)
class Function:
    name: str
    # Of the line with the opening brace, and of the closing one.
    first_line: int
    last_line: int
    # Of the line on which the declaration begins.
    declared_line: int
    parameters: int

    @property
    def lines(self) -> int:
        return self.last_line - self.first_line + 1


def _split_initializers(header: str) -> tuple:
    """Splits a constructor's header at the colon of its initializer list."""
    depth = 0
    for i, char in enumerate(header):
        if char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
        elif char == ":" and depth == 0 and "::" not in header[max(0, i - 1) : i + 2]:
            return header[:i], header[i:]
    return header, ""


def _matching_open(text: str, close: int) -> int:
    depth = 0
    for i in range(close, -1, -1):
        depth += (text[i] == ")") - (text[i] == "(")
        if depth == 0:
            return i
    return -1


def _count_parameters(text: str) -> int:
    if text.strip() in ("", "void"):
        return 0
    depth, count = 0, 1
    for char in text:
        if char in _OPEN:
            depth += 1
        elif char in _CLOSE:
            depth -= 1
        elif char == "," and depth == 0:
            count += 1
    return count


def _parse_header(header: str):
    """(name, parameter count) if a function's body follows, else None."""
    declaration, _ = _split_initializers(header)
    declaration = _OPERATOR.sub("operator_", declaration)
    declaration = _NOEXCEPT.sub("", declaration)
    close = declaration.rfind(")")
    while close >= 0:
        if not _TAIL.match(declaration[close + 1 :]):
            return None
        opening = _matching_open(declaration, close)
        name = _NAME.search(declaration[:opening]) if opening > 0 else None
        if name and "=" not in declaration[: name.start()]:
            return name.group(1), _count_parameters(declaration[opening + 1 : close])
        # A trailing return type may have parentheses of its own.
        arrow = declaration.rfind("->", 0, close)
        close = declaration.rfind(")", 0, arrow) if arrow >= 0 else -1
    return None


def _is_initializer(header: str) -> bool:
    """The brace belongs to an expression: a member's or variable's value."""
    before, initializers = _split_initializers(header)
    if initializers:
        return re.search(r"[\w>]\s*$", header) is not None
    return not before.strip().endswith(")") and _parse_header(header) is None


class _Scanner:
    """Walks over braces; knows for each open one whether it is a scope."""

    def __init__(self, text: str):
        clean = cpp_text.without_comments(text)
        self._text = cpp_text.without_directives(clean)
        self.functions = []

    def scan(self) -> list:
        start, position = 0, 0
        while True:
            match = re.compile(r"[{};]").search(self._text, position)
            if match is None:
                return self.functions
            position = match.end()
            if match.group() != "{":
                start = self._after_access_label(position)
                continue
            header = self._text[start : match.start()]
            if _SCOPE.search(header):
                start = self._after_access_label(position)
                continue
            if _is_initializer(header):
                position = self._skip_braces(match.start())
                continue
            end = self._skip_braces(match.start())
            self._add(header, start, match.start(), end)
            position = end
            start = self._after_access_label(end)

    def _after_access_label(self, position: int) -> int:
        label = re.compile(r"\s*(public|private|protected)\s*:(?!:)")
        match = label.match(self._text, position)
        return match.end() if match else position

    def _skip_braces(self, opening: int) -> int:
        depth = 0
        for match in re.compile(r"[{}]").finditer(self._text, opening):
            depth += 1 if match.group() == "{" else -1
            if depth == 0:
                return match.end()
        return len(self._text)

    def _add(self, header: str, start: int, opening: int, end: int) -> None:
        parsed = _parse_header(header)
        if parsed is None:
            return
        declared = start + len(header) - len(header.lstrip())
        self.functions.append(
            Function(
                name=parsed[0],
                first_line=cpp_text.line_of(self._text, opening),
                last_line=cpp_text.line_of(self._text, end - 1),
                declared_line=cpp_text.line_of(self._text, declared),
                parameters=parsed[1],
            )
        )


def find_functions(text: str) -> list:
    return _Scanner(text).scan()
