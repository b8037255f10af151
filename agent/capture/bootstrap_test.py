"""Which of source and compiled code the bootstrap runs, and what it leaves."""

import importlib.util
import marshal
import os
import runpy
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCES = {
    "install": "from _traincheck import other\n"
    "def install(core): core.append((other.WORD, __spec__.name))\n",
    "other": "WORD = 'source'\n",
}


def code_of(text, stem):
    return marshal.dumps(compile(text, f"<traincheck/{stem}>", "exec"))


class Bootstrap(unittest.TestCase):
    def run_with(self, magic, codes):
        for name in [name for name in sys.modules if name.startswith("_traincheck")]:
            del sys.modules[name]
        finders, core = list(sys.meta_path), []
        bootstrap = runpy.run_path(os.path.join(HERE, "bootstrap.py"))
        bootstrap["run"](core, SOURCES, (magic, codes))
        self.assertEqual(sys.meta_path, finders)
        ((word, name),) = core
        self.assertEqual(name, "_traincheck.install")
        return word

    def test_code_of_this_python_is_run(self):
        codes = {"other": code_of("WORD = 'code'", "other")}
        self.assertEqual(self.run_with(importlib.util.MAGIC_NUMBER, codes), "code")

    def test_code_of_another_python_is_not_looked_at(self):
        magic = b"\0\0\r\n"
        self.assertEqual(self.run_with(magic, {"other": b"no code"}), "source")

    def test_what_has_no_code_is_compiled(self):
        self.assertEqual(self.run_with(importlib.util.MAGIC_NUMBER, {}), "source")


if __name__ == "__main__":
    unittest.main()
