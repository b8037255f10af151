"""Man pages made of what the programs print about themselves (--help), so that
they cannot say anything else.

    manual.py PATH/traincheckctl PATH/traincheckd VERSION FOLDER

writes traincheckctl.1, traincheckctl-COMMAND.1 for each command, and
traincheckd.8 into FOLDER.
"""

import dataclasses
import pathlib
import re
import subprocess
import sys

_HEAD = re.compile(r"^([A-Z][A-Za-z ]*):$")
_ENTRY = re.compile(r"^  (\S.*?)(?:\s{2,}(\S.*))?$")
_MORE = re.compile(r"^\s{20,}(\S.*)$")
_SHORT_HELP = "-h,--help"
COMMANDS = "Subcommands"


@dataclasses.dataclass
class Help:
    """What one command says: text, usage, sections of (term, description)."""

    text: str = ""
    usage: str = ""
    sections: dict = dataclasses.field(default_factory=dict)
    footer: list = dataclasses.field(default_factory=list)

    @property
    def commands(self) -> list:
        return [name for name, _ in self.sections.get(COMMANDS, [])]


def _is_entry_of(section, line: str) -> bool:
    return section is not None and bool(_ENTRY.match(line) or _MORE.match(line))


def parse(text: str) -> Help:
    """Reads CLI11's help; raises ValueError for a line that fits nothing."""
    found = Help()
    section = None  # entries of the one that is open
    in_footer = False
    for line in text.splitlines():
        if line.startswith("Usage: "):
            # Without the folder of the program.
            found.usage = re.sub(r"^\S*/", "", line.removeprefix("Usage: "))
        elif not found.usage:
            found.text = f"{found.text} {line}".strip()
        elif in_footer or (line and not _HEAD.match(line) and section is None):
            in_footer = True
            found.footer.append(line)
        elif head := _HEAD.match(line):
            if head[1].startswith("Example"):
                in_footer = True
                found.footer.append(line)
                continue
            section = found.sections.setdefault(head[1], [])
        elif not line:
            section = None
        elif section and (more := _MORE.match(line)):
            term, said = section[-1]
            section[-1] = (term, f"{said} {more[1]}".strip())
        elif _is_entry_of(section, line):
            entry = _ENTRY.match(line)
            section.append((entry[1], entry[2] or ""))
        else:
            raise ValueError(f"not understood in a help text: {line!r}")
    if not found.usage:
        raise ValueError(f"there is no usage in this help text:\n{text}")
    return found


def ask(program: str, *command: str) -> Help:
    done = subprocess.run(
        [program, *command, "--help"], stdout=subprocess.PIPE, text=True, check=True
    )
    return parse(done.stdout)


def _roff(text: str) -> str:
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\n".join(
        "\\&" + line if line.startswith((".", "'")) else line
        for line in text.split("\n")
    )


def _entries(help_: Help, skip=()) -> list:
    lines = []
    for title, entries in help_.sections.items():
        if title == COMMANDS:
            continue
        shown = [(term, said) for term, said in entries if term not in skip]
        if shown:
            lines.append(f'.SS "{title}"' if skip else f'.SH "{title.upper()}"')
        for term, said in shown:
            lines += [".TP", f"\\fB{_roff(term)}\\fR", _roff(said) or "\\&"]
    return lines


def _footer(help_: Help) -> list:
    if not any(help_.footer):
        return []
    lines = [".PP", ".nf"]
    return lines + [_roff(line) for line in help_.footer] + [".fi"]


def _title(name: str, section: int, version: str, text: str) -> list:
    return [
        f'.TH "{name.upper()}" {section} "" "traincheckd {version}"',
        '.SH "NAME"',
        f"{_roff(name)} \\- {_roff(text)}",
    ]


def _below(program: str, path: list) -> list:
    """The commands below `path`, each with its options."""
    lines = []
    for name in ask(program, *path).commands:
        help_ = ask(program, *path, name)
        lines += [f'.SH "{" ".join([*path[1:], name]).upper()}"']
        lines += [f"\\fB{_roff(help_.usage)}\\fR", ".PP", _roff(help_.text)]
        lines += _entries(help_, skip=(_SHORT_HELP,)) + _footer(help_)
        lines += _below(program, [*path, name])
    return lines


def command_page(program: str, name: str, command: str, version: str) -> str:
    help_ = ask(program, command)
    lines = _title(f"{name}-{command}", 1, version, help_.text)
    lines += ['.SH "SYNOPSIS"', f"\\fB{_roff(help_.usage)}\\fR"]
    lines += _entries(help_) + _footer(help_) + _below(program, [command])
    lines += ['.SH "SEE ALSO"', f"\\fB{name}\\fR(1)"]
    return "\n".join(lines) + "\n"


def program_page(program: str, name: str, section: int, version: str) -> str:
    help_ = ask(program)
    text = help_.text.removeprefix(f"{name}: ")
    lines = _title(name, section, version, text)
    lines += ['.SH "SYNOPSIS"', f"\\fB{_roff(help_.usage)}\\fR"] + _entries(help_)
    if help_.commands:
        lines.append('.SH "COMMANDS"')
    for command, said in help_.sections.get(COMMANDS, []):
        lines += [".TP", f"\\fB{_roff(name)}\\-{_roff(command)}\\fR(1)", _roff(said)]
    return "\n".join(lines + _footer(help_)) + "\n"


def pages(ctl: str, daemon: str, version: str) -> dict:
    """File name -> page, of all commands of both programs."""
    found = {"traincheckctl.1": program_page(ctl, "traincheckctl", 1, version)}
    for command in ask(ctl).commands:
        page = command_page(ctl, "traincheckctl", command, version)
        found[f"traincheckctl-{command}.1"] = page
    found["traincheckd.8"] = program_page(daemon, "traincheckd", 8, version)
    return found


if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[4])
    folder.mkdir(parents=True, exist_ok=True)
    for file_name, text in pages(*sys.argv[1:4]).items():
        (folder / file_name).write_text(text)
