"""The long tier: what is run next, how a part ends, and what the table keeps."""

import dataclasses
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "long_tests"))

import main
import results
from parts import PARTS, Part
from results import Result

A, B, C = (Part(name, f"what {name} does", "true") for name in "abc")


class KnownCommits:
    """A checkout at commit "new", where "same" differs by documents only."""

    commit = "new"

    def same(self, commit: str) -> bool:
        return commit in ("new", "same")


def result(part: Part, outcome: str, commit: str = "new", seed=None) -> Result:
    return Result(part.name, commit, "2026-01-02", 90, seed, outcome)


class TempFolder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)


class Parts(unittest.TestCase):
    def test_names_differ_and_commands_are_shell(self):
        self.assertEqual(len({part.name for part in PARTS}), len(PARTS))
        for part in PARTS:
            done = subprocess.run(["bash", "-n", "-c", part.command])
            self.assertEqual(done.returncode, 0, part)


class Next(unittest.TestCase):
    def next(self, *kept: Result):
        part = results.next_part([A, B, C], list(kept), KnownCommits())
        return part and part.name

    def test_what_was_not_tried_comes_before_what_failed(self):
        self.assertEqual(self.next(), "a")
        self.assertEqual(self.next(result(A, "passed")), "b")
        self.assertEqual(self.next(result(A, "failed")), "b")
        tried = [result(A, "failed"), result(B, "out of time"), result(C, "passed")]
        self.assertEqual(self.next(*tried), "a")
        self.assertEqual(self.next(*tried, result(A, "passed")), "b")

    def test_another_commit_counts_if_documents_alone_differ(self):
        kept = [result(part, "passed", "same") for part in (A, B)]
        self.assertEqual(self.next(*kept, result(C, "passed", "old")), "c")
        self.assertIsNone(self.next(*kept, result(C, "passed", "same")))


class Checkouts(TempFolder):
    def git(self, *arguments: str) -> None:
        name = ["-c", "user.name=n", "-c", "user.email=e"]
        subprocess.run(
            ["git", "-C", self.folder, *name, *arguments],
            check=True,
            capture_output=True,
        )

    def commit(self, name: str) -> str:
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("x")
        self.git("add", ".")
        self.git("commit", "-m", name)
        return results.Checkout(self.folder).commit

    def test_documents_are_not_tested(self):
        self.git("init")
        first = self.commit("a.cc")
        self.commit("docs/table.md")
        second = self.commit("README.md")
        self.assertTrue(results.Checkout(self.folder).same(first))
        self.commit("b.cc")
        checkout = results.Checkout(self.folder)
        self.assertFalse(checkout.same(second))
        self.assertFalse(checkout.same("0" * 40))
        self.assertFalse(checkout.changed())
        (self.folder / "c.cc").write_text("")
        self.assertTrue(results.Checkout(self.folder).changed())


class Execution(TempFolder):
    def execute(self, command: str, seed=None, limit_s: float = 60) -> tuple:
        log = self.folder / "logs/part.log"
        part = dataclasses.replace(A, command=command)
        outcome, _ = main.execute(part, seed, log, limit_s)
        return outcome, log.read_text()

    def test_outcomes(self):
        self.assertEqual(self.execute("echo $SEED", 7), ("passed", "7\n"))
        self.assertEqual(self.execute("false; true")[0], "failed")
        self.assertEqual(self.execute("false | true")[0], "failed")

    def test_a_part_that_takes_too_long(self):
        self.assertEqual(self.execute("sleep 600", limit_s=0.1)[0], "out of time")

    def test_children_end_with_their_part(self):
        process = subprocess.Popen(
            ["bash", "-c", "sleep 600 & echo begun; wait"],
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self.assertEqual(process.stdout.readline(), b"begun\n")
        main.end(process)
        # Its child has the other end of the pipe.
        self.assertEqual(process.stdout.read(), b"")
        process.stdout.close()


class Table(TempFolder):
    EMPTY = f"before\n{results.BEGIN}\n{results.END}\nafter\n"

    def fill_in(self, document: str, *kept: Result, parts=(A, B)) -> str:
        return results.fill_in(document, parts, results.latest(list(kept)))

    def test_last_results_and_rows_of_elsewhere(self):
        first = self.fill_in(self.EMPTY)
        self.assertIn("| a | what a does | | | | | not run yet |\n", first)
        second = self.fill_in(
            first, result(A, "failed", seed=3), result(A, "passed", "c" * 40, seed=4)
        )
        row = "| a | what a does | ccccccccc | 2026-01-02 | 2 | 4 | passed |\n"
        self.assertIn(row, second)
        self.assertNotIn("failed", second)
        # A machine that ran the other part only.
        renamed = dataclasses.replace(A, what="new words")
        third = self.fill_in(second, result(B, "out of time"), parts=(renamed, B))
        self.assertIn(row.replace("what a does", "new words"), third)
        self.assertIn("| b | what b does | new | 2026-01-02 | 2 | | out of", third)
        self.assertTrue(third.startswith("before\n") and third.endswith("\nafter\n"))

    def test_rows_are_results(self):
        kept = [result(A, "passed", "c" * 40, seed=4), result(B, "failed")]
        document = self.fill_in(self.EMPTY, *kept, parts=(A, B, C))
        read = results.read_rows(document)
        shortened = dataclasses.replace(kept[0], commit="c" * 9, seconds=120)
        self.assertEqual(read, [shortened, dataclasses.replace(kept[1], seconds=120)])
        self.assertEqual(self.fill_in(document, *read, parts=(A, B, C)), document)


class SeveralMachines(TempFolder):
    """One machine's rows in the document, beside what this machine has kept."""

    def setUp(self):
        super().setUp()
        self.document = self.folder / "table.md"
        self.document.write_text(f"{results.BEGIN}\n{results.END}\n")
        self.write(result(A, "passed"), result(B, "failed", "old"))
        self.before = os.environ.get("XDG_CACHE_HOME")
        os.environ["XDG_CACHE_HOME"] = str(self.folder)

    def tearDown(self):
        os.environ.pop("XDG_CACHE_HOME")
        if self.before is not None:
            os.environ["XDG_CACHE_HOME"] = self.before

    def write(self, *kept: Result) -> None:
        table = results.fill_in(
            self.document.read_text(), [A, B], results.latest(list(kept))
        )
        self.document.write_text(table)

    def known(self, *kept: Result) -> list:
        for one in kept:
            main.kept_results().add(one)
        return main.known_results(KnownCommits(), self.document)

    def test_one_goes_on_where_another_stopped(self):
        following = results.next_part([A, B], self.known(), KnownCommits())
        self.assertEqual(following, B)
        both = self.known(result(B, "passed"))
        self.assertIsNone(results.next_part([A, B], both, KnownCommits()))

    def test_an_older_result_of_this_machine_replaces_no_row(self):
        earlier = dataclasses.replace(result(A, "failed", "old"), date="2026-01-01")
        same_day = result(A, "failed", "old")
        for kept in (earlier, same_day):
            last = results.latest(self.known(kept))
            self.assertEqual(last["a"].outcome, "passed")
        later = dataclasses.replace(same_day, date="2026-01-03")
        self.assertEqual(results.latest(self.known(later))["a"].outcome, "failed")


if __name__ == "__main__":
    unittest.main()
