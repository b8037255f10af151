"""The checks with clang find a planted fault, in all that it concerns, and once."""

import contextlib
import io
import json
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import clang_checks
import compile_commands

HEADER = """#pragma once
#include "absl/base/thread_annotations.h"
class ABSL_LOCKABLE Mutex {
 public:
  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION();
  void Unlock() ABSL_UNLOCK_FUNCTION();
};
class Count {
 public:
  void Add() ABSL_LOCKS_EXCLUDED(mutex_);
  void AddLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { ++count_; }
  Mutex mutex_;

 private:
  int count_ ABSL_GUARDED_BY(mutex_) = 0;
};
"""
GOOD = """#include "base/count.h"
void Count::Add() {
  mutex_.Lock();
  AddLocked();
  mutex_.Unlock();
}
"""
BAD = """#include "base/count.h"
void Count::Add() {
  AddLocked();
}
"""
MOVED = """#include <string>
#include <utility>
void Take(std::string text);
std::size_t Twice(std::string text) {
  Take(std::move(text));
  return text.size();
}
"""


class ClangChecksTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.plant(".clang-tidy", "Checks: '-*,bugprone-use-after-move'\n")
        self.plant(".clang-tidy", "WarningsAsErrors: '*'\n", mode="a")

    def plant(self, name, text, mode="w"):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, mode) as file:
            file.write(text)

    def tree(self, sources):
        """The folder with these sources; an entry of the commands for each."""
        rows = []
        for name, text in sources.items():
            self.plant(name, text)
            command = ["gcc", "-std=c++20", "-Wno-known-to-gcc-only", "-iquote", "."]
            command += ["-iquote", "bazel-out/k8-opt/bin"]
            row = {"directory": str(self.root), "file": name}
            rows.append(row | {"arguments": [*command, "-c", name]})
        self.plant("compile_commands.json", json.dumps(rows))
        return clang_checks.Tree(self.root)

    def run_checks(self, tree, files, *checks, again=False):
        """(findings, what was printed)"""
        jobs = tree.jobs(files, checks)
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            found = clang_checks.run(tree, jobs, self.root / "passed", again)
        return found, text.getvalue()

    def test_a_broken_promise_is_found_and_a_kept_one_is_not(self):
        self.plant("base/count.h", HEADER)
        tree = self.tree({"base/good.cc": GOOD, "base/bad.cc": BAD})
        found, text = self.run_checks(tree, ["base/good.cc", "base/bad.cc"], "locks")
        self.assertEqual(found, 1, text)
        self.assertRegex(text, r"base/bad.cc:3:3: error: .*requires holding mutex")
        self.assertNotIn("good.cc", text)

    def test_a_header_concerns_who_includes_it(self):
        self.plant("base/count.h", HEADER)
        tree = self.tree({"base/bad.cc": BAD, "base/other.cc": "int x;\n"})
        found, text = self.run_checks(tree, ["base/count.h"], "locks")
        self.assertEqual(found, 1, text)
        self.assertIn("1 runs, 1 of them due", text)

    def test_what_passed_is_due_again_when_its_header_changes(self):
        self.plant("base/count.h", HEADER)
        sources = {"base/good.cc": GOOD}
        for header, due, again in [
            (HEADER, 1, False),
            (HEADER, 0, False),
            (HEADER, 1, True),
            (HEADER + "// more\n", 1, False),
        ]:
            self.plant("base/count.h", header)
            tree = self.tree(sources)
            found, text = self.run_checks(tree, [*sources], "locks", again=again)
            self.assertEqual(found, 0, text)
            self.assertIn(f"1 runs, {due} of them due", text)

    def test_what_failed_is_due_again(self):
        self.plant("base/count.h", HEADER)
        tree = self.tree({"base/bad.cc": BAD})
        for _ in range(2):
            self.assertEqual(self.run_checks(tree, ["base/bad.cc"], "locks")[0], 1)

    def test_tidy_finds_a_use_after_a_move(self):
        tree = self.tree({"base/moved.cc": MOVED})
        found, text = self.run_checks(tree, ["base/moved.cc"], "tidy")
        self.assertEqual(found, 1, text)
        self.assertRegex(text, r"moved.cc:6:\d+: error: 'text' used after it was moved")

    def test_tidy_of_a_source_finds_what_is_wrong_in_its_header(self):
        self.plant(
            "base/moved.h",
            "#pragma once\n" + MOVED.replace("std::size_t", "inline std::size_t"),
        )
        tree = self.tree({"base/moved.cc": '#include "base/moved.h"\n'})
        found, text = self.run_checks(tree, ["base/moved.cc"], "tidy")
        self.assertEqual(found, 1, text)
        self.assertRegex(text, r"base/moved.h:7:\d+: error: 'text' used after it was")

    def test_headers_that_the_build_makes_are_asked_for(self):
        source = '#include "base/made.pb.h"\n'
        tree = self.tree({"base/user.cc": source})
        with self.assertRaisesRegex(clang_checks.ChecksError, "base/made.pb.h.*build"):
            tree.jobs(["base/user.cc"], ["locks"])
        self.plant("bazel-out/k8-opt/bin/base/made.pb.h", "")
        tree = self.tree({"base/user.cc": source})
        self.assertEqual(len(tree.jobs(["base/user.cc"], ["locks"])), 1)


def action(source, configuration="1", *more):
    arguments = ["/usr/bin/gcc", "-fno-canonical-system-headers", "-MD", "-MF", "x.d"]
    arguments += ["-isystem", "external/system/include/python3.11", *more]
    return {
        "configurationId": configuration,
        "arguments": [*arguments, "-c", source, "-o", "x.o"],
    }


class CompileCommandsTest(unittest.TestCase):
    def test_entries(self):
        aquery = {
            "configuration": [
                {"id": 1, "mnemonic": "k8-opt"},
                {"id": 2, "mnemonic": "host"},
            ],
            "actions": [
                action("base/b.cc", 1),
                action("base/b.cc", 2, "-DHOST"),
                action("base/a.c", 1),
                action("bazel-out/k8-opt/bin/proto/x.pb.cc", 1),
            ],
        }
        rows = compile_commands.entries(aquery, ["-DMORE"])
        self.assertEqual([row["file"] for row in rows], ["base/a.c", "base/b.cc"])
        self.assertEqual(
            rows[1]["arguments"],
            ["/usr/bin/gcc", "-isystem", "/usr/include/python3.11", "-c", "base/b.cc"]
            + ["-DMORE"],
        )


if __name__ == "__main__":
    unittest.main()
