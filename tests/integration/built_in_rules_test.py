"""Without any reference run: each built-in rule is broken by a small program, and kept
by healthy ones that come close to it. rule_pairs.json says by which.
"""

import concurrent.futures
import json
import os
import pathlib
import unittest

import harness

SCRIPT = harness.SCRIPTS / "built_in.py"
PAIRS = json.loads(pathlib.Path("tests/integration/rule_pairs.json").read_text())

BASICS = ("built_in.py", "built_in_steps.py")
LOOKS = (
    "built_in_data.py",
    "built_in_models.py",
    "built_in_signs.py",
    "built_in_statements.py",
    "built_in_upkeep.py",
)
TOGETHER = (
    "built_in_averages.py",
    "built_in_bests.py",
    "built_in_causes.py",
    "built_in_counts.py",
    "built_in_groups.py",
    "built_in_inputs.py",
    "built_in_lost_parts.py",
    "built_in_metrics.py",
    "built_in_micro_batches.py",
    "built_in_more.py",
    "built_in_outputs.py",
    "built_in_policies.py",
    "built_in_products.py",
    "built_in_sequences.py",
)
NEAR = (
    "built_in_near.py",
    "built_in_near_averages.py",
    "built_in_near_bests.py",
    "built_in_near_counts.py",
    "built_in_near_data.py",
    "built_in_near_groups.py",
    "built_in_near_inputs.py",
    "built_in_near_lost_parts.py",
    "built_in_near_metrics.py",
    "built_in_near_micro_batches.py",
    "built_in_near_outputs.py",
    "built_in_near_policies.py",
    "built_in_near_products.py",
    "built_in_near_steps.py",
)
RANKS = (
    "averaged_by_hand.py",
    "built_in_ranks.py",
    "drift_ddp.py",
    "exchange.py",
    "rows_by_hand.py",
    "rows_ddp.py",
)
# Ranks that hang: stalls_test runs them, and looks while they do.
HANGS = ("stalls.py",)
# Whose mistakes are all made in one process: what is looked at is looked at anew in
# each place of the code. The long tier makes each in a process of its own.
IN_ONE_PROCESS = (*BASICS, *LOOKS, *TOGETHER, "built_in_ranks.py")
EACH_ALONE = "TRAINCHECK_EACH_ALONE" in os.environ
# What does not show behind the others' steps.
ALONE = (
    "built_in.py clipped_while_scaled",
    "built_in_signs.py seeded_in_each_step",
    "built_in_upkeep.py exchanged_shares",
    "built_in_upkeep.py target_that_flees",
)
# First step of what is found between ranks.
FIRST_STEPS = {
    "averaged_by_hand.py --own-weights": 0,
    "averaged_by_hand.py --own-weights --flat": 0,
    "drift_ddp.py --fault-step 3 --steps 8": 3,
    "rows_by_hand.py --fault-step 3": 3,
    "rows_ddp.py --bare": 0,
    "rows_ddp.py --same": 1,
}


def programs(kind: str, scripts) -> dict:
    """Command line -> rules, of what is listed as this kind with one of the scripts."""
    found: dict = {}
    for rule, pair in PAIRS.items():
        for program in pair.get(kind, ()):
            script, *options = program.split()
            alone = EACH_ALONE or program.replace("--right ", "") in ALONE
            if script in IN_ONE_PROCESS and not alone:
                program = f"{script} --right" if "--right" in options else script
            if script in scripts:
                found.setdefault(program, set()).add(rule)
    return found


def run_of(command: str) -> str:
    return "-".join(word.strip("-") for word in command.split())


class Watching(harness.SharedDaemonCase):
    def watch(self, run: str, script, *arguments: str, decided: int = 5) -> list:
        """Violations of a run that nobody gave a set, and that so many rules judged."""
        done = self.monitored(
            script,
            *arguments,
            options=("--run", run),
            TRAINCHECK_BUDGET="off",
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        shown = self.daemon.run_ended(run)
        self.assertEqual(shown["check_set"], "builtin@1")
        self.assertGreaterEqual(shown["check"]["decided"], decided, shown["check"])
        return self.daemon.ctl("violations", "list", "--run", run)

    def watch_each(self, commands) -> dict:
        """Command line -> violations, two of them at a time."""

        def watch(command: str) -> list:
            script, *arguments = command.split()
            return self.watch(run_of(command), harness.SCRIPTS / script, *arguments)

        with concurrent.futures.ThreadPoolExecutor(2) as side_by_side:
            return dict(zip(commands, side_by_side.map(watch, commands)))

    def each_is_found(self, *scripts: str) -> None:
        listed = programs("broken_by", scripts)
        for command, found in self.watch_each(listed).items():
            with self.subTest(command):
                rules = {violation["invariant_id"] for violation in found}
                # Others may be broken with it, some by whether the daemon's plan has
                # come before the first step.
                self.assertLessEqual(listed[command], rules, found)
                if command in FIRST_STEPS:
                    steps = {violation["first_step"] for violation in found}
                    self.assertEqual(min(steps), FIRST_STEPS[command], found)
                    # What a rank itself has seen is said of it alone.
                    ranks = [v["ranks"] for v in found if len(v["ranks"]) != 1]
                    self.assertEqual(ranks, [[0, 1]] * len(ranks), found)
                    self.assertTrue(ranks, found)

    def each_is_kept(self, *scripts: str) -> None:
        listed = programs("kept_by", scripts)
        for command, found in self.watch_each(listed).items():
            with self.subTest(command):
                self.assertEqual(found, [])
                checked = self.daemon.ctl("check", "--run", run_of(command))
                verdicts = {
                    row["invariant_id"]: row["verdict"] for row in checked["verdicts"]
                }
                for rule in listed[command]:
                    kept = ["pass", "partly"]
                    if "one_sided" in PAIRS[rule]:
                        kept.append("no_occasion")
                    self.assertIn(verdicts[rule], kept, PAIRS[rule])


class BuiltInRules(Watching):
    def test_each_mistake_is_found_without_a_reference_run(self):
        self.each_is_found(*BASICS)

    def test_each_mistake_between_ranks_is_found(self):
        self.each_is_found(*RANKS)

    def test_healthy_ranks_keep_them(self):
        self.each_is_kept(*RANKS)

    def test_each_script_is_run(self):
        listed = {
            program.split()[0]
            for pair in PAIRS.values()
            for program in (*pair["broken_by"], *pair["kept_by"])
        }
        self.assertEqual(listed, {*BASICS, *LOOKS, *TOGETHER, *NEAR, *RANKS, *HANGS})

    def test_what_to_do_is_said(self):
        [violation, *_] = self.watch("advised", SCRIPT, "broadcast_loss")
        shown = self.daemon.ctl("violations", "show", violation["id"])
        self.assertIn("broadcast", shown["why"])
        self.assertIn("view_as", shown["fix"])
        self.assertTrue(shown["reference"].startswith("https://"), shown)
        self.assertRegex(shown["called_from"][-1], r"built_in\.py:\d+$")
        self.assertGreater(shown["coverage"]["decided"], 0)
        self.assertEqual(shown["rule_record"]["false_alarms"], 0)

    def test_a_stored_run_is_checked_against_them(self):
        done = self.monitored(
            SCRIPT, "broadcast_loss", options=("--run", "plain", "--collect", "--full")
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIsNone(self.daemon.run_ended("plain")["check"])
        checked = self.daemon.ctl("check", "--run", "plain")
        self.assertEqual(checked["set"], "builtin")
        texts = [violation["text"] for violation in checked["violations"]]
        self.assertTrue(any("size" in text for text in texts), texts)

    def test_the_daemon_lists_them_and_nobody_else_takes_their_name(self):
        [row] = [r for r in self.daemon.ctl("sets", "list") if r["name"] == "builtin"]
        self.assertEqual(row["version"], 1)
        rules = self.daemon.ctl("invariants", "list", "builtin")
        self.assertEqual(len(rules), row["invariants"])
        with self.assertRaisesRegex(AssertionError, "is the daemon's built-in set"):
            self.daemon.ctl("infer", "--from", "right", "--set", "builtin")


class WhatTheAgentLooksFor(Watching):
    """A daemon of its own: it is the other half of the time."""

    def test_each_mistake_is_found(self):
        self.each_is_found(*LOOKS)

    def test_each_mistake_of_one_process_is_found(self):
        self.each_is_found(*TOGETHER)

    def test_healthy_programs_keep_them(self):
        self.each_is_kept(*BASICS, *LOOKS, *TOGETHER, *NEAR)


if __name__ == "__main__":
    unittest.main()
