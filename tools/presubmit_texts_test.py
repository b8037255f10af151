"""The checks of texts find planted faults and leave good texts be."""

import json
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "presubmit"))

import links
import todos
import words
from check_case_for_testing import CheckCase


class TodosTest(CheckCase):
    def test_names(self):
        word = "TO" + "DO"
        found = self.found(
            todos,
            {
                "a.cc": f"// {word}: later\n// {word}(ada): split by rank\n",
                "b.py": f"# {word} later\n# {word.lower()} is a word\n",
                "c.sh": "# DO NOT" + " SUBMIT\n",
            },
        )
        self.assertEqual(found, [("a.cc", 1), ("b.py", 1), ("c.sh", 1)])


class LinksTest(CheckCase):
    def test_relative_links(self):
        found = self.found(
            links,
            {
                "README.md": "[a](docs/a.md#x) [b](docs/b.md)\n"
                "[c](https://example.org/) [d](#here) `[e](e.md)`\n"
                "```\n[f](f.md)\n```\n[g](../outside.md)\n[h]: docs/h.md\n",
                "docs/a.md": "[up](../README.md) [folder](../docs)\n",
            },
        )
        self.assertEqual(found, [("README.md", 1), ("README.md", 6), ("README.md", 7)])


class WordsTest(CheckCase):
    def test_texts_of_the_product_in_cpp(self):
        found = self.found(
            words,
            {
                "ctl/a.cc": 'const char* a = "it tells why";\n',
                "ctl/b.cc": '\nconst char* a = "none. Of scores it makes "\n"more";\n',
                "ctl/c.cc": 'const char* a = "the call is "\n    "no call";\n',
                "ctl/d.cc": 'const char* a = R"(\nthe rules\nof itself)";\n',
                "ctl/e.cc": 'auto a = "it is not " "so that it is";\n',
                "ctl/f.cc": 'char a = \'"\'; auto b = "Who asks";\n',
            },
        )
        self.assertCountEqual(
            found,
            [
                ("ctl/a.cc", 1),
                ("ctl/b.cc", 2),
                ("ctl/c.cc", 1),
                ("ctl/d.cc", 1),
                ("ctl/e.cc", 1),
                ("ctl/f.cc", 1),
            ],
        )

    def test_what_nobody_reads_and_what_is_right(self):
        found = self.found(
            words,
            {
                "ctl/a.cc": '// It tells "Of what".\n/* is no "Who is no" */\n',
                "ctl/a_test.cc": 'auto a = "it tells";\n',
                "ctl/b.cc": 'f("there is no call", "is", "no call");\n',
                "ctl/c.cc": 'f("part of it. Off", "a copy of itself");\n',
                "agent/a.py": '"""It tells."""\nx = ("tells",)\n',
                "agent/a_test.py": 'x = "it tells"\n',
                "tools/a.py": 'x = "it tells"\n',
                "docs/a.md": "See `it tells`, [what](it tells.md).\n\n```\nis no\n```\n",
                "CHANGELOG.md": "- it tells\n",
                "CONTRIBUTING.md": "| records | tells |\n",
            },
        )
        self.assertEqual(found, [])

    def test_texts_in_python_and_in_documents(self):
        found = self.found(
            words,
            {
                "agent/a.py": 'def f(x):\n    say("it is no tensor: %s" % x)\n',
                "agent/b.py": 'def f(x):\n    say(f"{x} tells " f"nothing")\n',
                "docs/a.md": "# A\n\nThe text is\nno text.\n\nOf these: one.\n",
                "docs/b.md": "| a | b |\n|---|---|\n| c | Who reads |\n",
                "docs/evaluation.md": "| a | Who reads |\n",
            },
        )
        self.assertCountEqual(
            found,
            [
                ("agent/a.py", 2),
                ("agent/b.py", 2),
                ("docs/a.md", 3),
                ("docs/a.md", 6),
                ("docs/b.md", 3),
            ],
        )

    def test_what_is_said_of_built_in_rules(self):
        origin = {"headline": "it is wrong", "why": "None. Of it all.", "fix": "Do."}
        rules = json.dumps({"invariants": [{"origin": origin}]}, indent=1)
        found = self.found(words, {"invariants/library/a.json": rules})
        self.assertEqual(found, [("invariants/library/a.json", 6)])


if __name__ == "__main__":
    unittest.main()
