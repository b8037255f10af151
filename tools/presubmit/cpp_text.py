"""C and C++ source reduced to what a check of structure needs."""

import re

_TOKEN = re.compile(
    r"""
    (?P<raw>\bR"(?P<tag>[^()\s\\]{0,16})\(.*?\)(?P=tag)")
  | (?P<comment>//[^\n]*|/\*.*?\*/)
  | (?P<string>"(?:\\.|[^"\\\n])*")
  | (?P<char>(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+')
    """,
    re.VERBOSE | re.DOTALL,
)
_DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.MULTILINE)
_NOT_NEWLINE = re.compile(r"[^\n]")


def _blank(text: str) -> str:
    return _NOT_NEWLINE.sub(" ", text)


def without_comments(text: str) -> str:
    """`text` with comments, strings and characters as blanks; same lines.

    Quotes stay, so that an argument does not vanish.
    """

    def replace(match: re.Match) -> str:
        token = match.group(0)
        if match.group("comment"):
            return _blank(token)
        return '"' + _blank(token[1:-1]) + '"'

    return _TOKEN.sub(replace, text)


def without_directives(text: str) -> str:
    """`text` with preprocessor lines as blanks; same lines."""
    return _DIRECTIVE.sub(lambda match: _blank(match.group(0)), text)


def line_of(text: str, offset: int) -> int:
    return text.count("\n", 0, offset) + 1
