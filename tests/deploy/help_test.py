"""Manuals and completion name each command and option that --help shows."""

import os
import pathlib
import re
import subprocess
import sys
import unittest

import harness

sys.path.append("deploy/manual")
import manual  # noqa: E402

CTL = str(harness.DIST / "traincheckctl")
DAEMON = str(harness.DIST / "traincheckd")
_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")


def help_of(program: str, *command: str) -> str:
    done = subprocess.run(
        [program, *command, "--help"], stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout


def commands_of(*command: str) -> dict:
    """Path of a command, () for the program -> its options."""
    found = {command: set()}
    section = ""
    below = []
    for line in help_of(CTL, *command).splitlines():
        if re.match(r"^[A-Z]\w*:$", line):
            section = line
        elif not line.startswith("  "):
            section = ""
        elif section == "Options:" and re.match(r"^  -", line):
            found[command] |= set(_OPTION.findall(line.split("  ")[1]))
        elif section == "Subcommands:" and re.match(r"^  \w", line):
            below.append(line.split()[0])
    for name in below:
        found.update(commands_of(*command, name))
    return found


class Help(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.commands = commands_of()

    def test_there_are_commands(self):
        self.assertIn(("violations", "watch"), self.commands)
        self.assertIn("--fail-on-violation", self.commands[("run",)])

    def test_manuals(self):
        pages = manual.pages(CTL, DAEMON, "1.0")
        for command, options in self.commands.items():
            page = "-".join(["traincheckctl", *command[:1]]) + ".1"
            text = pages[page].replace("\\-", "-")
            if command[1:]:
                self.assertIn(" ".join(command[1:]).upper(), text, page)
            for option in options:
                if command[1:] and option == "--help":
                    continue
                self.assertIn(f"{option}", text, page)
        daemon = pages["traincheckd.8"].replace("\\-", "-")
        for option in _OPTION.findall(help_of(DAEMON)):
            self.assertIn(option, daemon)

    def test_a_help_that_is_not_understood_is_refused(self):
        with self.assertRaises(ValueError):
            manual.parse("a program\n\nOptions:\n")
        with self.assertRaises(ValueError):
            manual.parse("Usage: x\n\nOptions:\n --odd\n")

    def offered(self, shell: list, words: tuple) -> set:
        """What a shell offers behind these words, commands and options."""
        done = subprocess.run(
            [*shell, "traincheckctl", *words, ""],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PATH": f"{harness.DIST}:/usr/bin:/bin"},
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return {line.split("\t")[0].strip() for line in done.stdout.splitlines()}

    def assert_offers_all(self, *shell: str):
        for command, options in self.commands.items():
            below = {c[-1] for c in self.commands if c[:-1] == command and c}
            wanted = options | below
            offered = self.offered([*shell], command)
            self.assertEqual(wanted - offered, set(), command)
        offered = self.offered([*shell], ("run", "--collect", "--"))
        self.assertNotIn("--collect", offered)

    def test_bash(self):
        script = (
            "source <(traincheckctl completion bash) && COMP_WORDS=($0 $@ '')"
            " && COMP_CWORD=$#"
            " && { _traincheckctl || true; } && printf '%s\\n' ${COMPREPLY[@]}"
        )
        self.assert_offers_all("bash", "-c", script)

    def test_zsh(self):
        # Zsh's own functions stand for themselves: they print what they are given.
        script = (
            "compdef() { }; _describe() { print -l -- ${${(P)2}%%:*} }; _files() { };"
            "_normal() { }; source <(traincheckctl completion zsh);"
            'words=($0 "$@"); CURRENT=$#words; _traincheckctl'
        )
        self.assert_offers_all("zsh", "-fc", script)

    def test_fish(self):
        script = (
            "traincheckctl completion fish | source; set words $argv[1..-2];"
            "complete -C (string join ' ' -- $words)' ';"
            "complete -C (string join ' ' -- $words)' --'"
        )
        self.assert_offers_all("fish", "--no-config", "-c", script)


if __name__ == "__main__":
    unittest.main()
