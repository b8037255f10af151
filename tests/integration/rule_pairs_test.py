"""Each built-in rule has its pair: a program that breaks it, and two that keep it.

That they do is what built_in_rules_test runs.
"""

import json
import pathlib
import re
import unittest

PAIRS = pathlib.Path("tests/integration/rule_pairs.json")
SCRIPTS = pathlib.Path("tests/integration/scripts")
# Made from the library, which a test of its own compares.
DOCUMENT = pathlib.Path("docs/built-in-rules.md")
_RULE = re.compile(r"^### (.*)\n\n- \*\*\w+\*\* `(\w{16})`", re.MULTILINE)


class RulePairs(unittest.TestCase):
    def setUp(self):
        self.pairs = json.loads(PAIRS.read_text())

    def test_each_rule_of_the_library_is_listed_and_no_other(self):
        rules = {rule: text for text, rule in _RULE.findall(DOCUMENT.read_text())}
        self.assertGreater(len(rules), 100)
        listed = {rule: pair["rule"] for rule, pair in self.pairs.items()}
        self.assertEqual(listed, rules)

    def test_each_is_broken_by_a_program_and_kept_by_two(self):
        for rule, pair in self.pairs.items():
            with self.subTest(rule):
                self.assertGreaterEqual(len(set(pair["broken_by"])), 1, pair)
                self.assertGreaterEqual(len(set(pair["kept_by"])), 2, pair)
                self.assertFalse(set(pair["broken_by"]) & set(pair["kept_by"]), pair)

    def test_what_is_listed_exists(self):
        for pair in self.pairs.values():
            for program in (*pair["broken_by"], *pair["kept_by"]):
                script, *arguments = program.split()
                text = (SCRIPTS / script).read_text()
                if "from built_in_signs import" in text:  # its main has the options
                    text += (SCRIPTS / "built_in_signs.py").read_text()
                for word in arguments:
                    if not word.isdecimal():
                        named = f'"{word}"' if word[0] == "-" else f"def {word}("
                        self.assertIn(named, text, program)


if __name__ == "__main__":
    unittest.main()
