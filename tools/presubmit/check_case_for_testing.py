"""Runs checks over a tree of planted files."""

import pathlib
import tempfile
import unittest

from source_tree import SourceTree


class CheckCase(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def plant(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def found(self, module, files: dict) -> list:
        """[(path, line)] of what the module's check finds in these files."""
        for name, text in files.items():
            self.plant(name, text)
        problems = list(module.check(SourceTree(self.root)))
        for problem in problems:
            self.assertRegex(str(problem), r"^[^:]+:\d+: \S")
        return [(problem.path, problem.line) for problem in problems]
