"""Writes compile_commands.json: how each C and C++ source is compiled.

For clangd, clang-tidy and tools/clang_checks.sh. Bazel is asked what it would
run (aquery); nothing is compiled. Paths become those of this checkout, and
what only GCC knows or what names outputs is left out, so that clang takes the
commands as they are. Headers that the build generates (*.pb.h) are found below
bazel-out and are there after a build only.
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
OUTPUT = ROOT / "compile_commands.json"

_SOURCES = (".c", ".cc")
# Where Bazel mounts @system, relative to its execution root.
_SYSTEM = re.compile(r"^external/system\b")
_GCC_ONLY = ("-fno-canonical-system-headers", "-frandom-seed=")
_OUTPUTS = ("-MF", "-o")  # followed by a path


def _arguments(action: dict) -> list:
    """The command without its outputs, for clang, in this checkout."""
    kept = []
    rest = iter(action["arguments"])
    for argument in rest:
        if argument in _OUTPUTS:
            next(rest)
        elif argument != "-MD" and not argument.startswith(_GCC_ONLY):
            kept.append(_SYSTEM.sub("/usr", argument))
    return kept


def _source(arguments: list) -> str:
    return arguments[arguments.index("-c") + 1]


def gcc_headers() -> list:
    """Option for those of GCC's own headers that clang has not (sanitizer/)."""
    command = ["gcc", "-print-file-name=include"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return ["-idirafter", done.stdout.strip()]


def entries(aquery: dict, more: list) -> list:
    """One entry for each source of this tree, of the program's configuration.

    more: options that each command gets.
    """
    tools = {
        row["id"]
        for row in aquery.get("configuration", [])
        if row["mnemonic"] == "host" or "-exec-" in row["mnemonic"]
    }
    found = {}
    for action in aquery.get("actions", []):
        arguments = _arguments(action)
        source = _source(arguments)
        ours = source.endswith(_SOURCES) and not source.startswith(
            ("bazel-out/", "external/")
        )
        if not ours or (source in found and action["configurationId"] in tools):
            continue
        found[source] = {
            "directory": str(ROOT),
            "file": source,
            "arguments": arguments + more,
        }
    return [found[source] for source in sorted(found)]


def ask_bazel(targets: str, options: list) -> dict:
    done = subprocess.run(
        [
            str(ROOT / "tools/build.sh"),
            "aquery",
            *options,
            "--output=jsonproto",
            "--include_artifacts=false",
            "--noshow_progress",
            "--ui_event_filters=-info",
            f'mnemonic("CppCompile", {targets})',
        ],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        check=True,
    )
    return json.loads(done.stdout)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "bazel_options", nargs="*", help="such as --config=asan, after --"
    )
    parser.add_argument("--targets", default="//...")
    options = parser.parse_args()
    rows = entries(ask_bazel(options.targets, options.bazel_options), gcc_headers())
    if not rows:
        print(f"compile_commands: no source in {options.targets}", file=sys.stderr)
        return 1
    OUTPUT.write_text(json.dumps(rows, indent=1) + "\n")
    print(f"compile_commands: {len(rows)} sources in {OUTPUT.name}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
