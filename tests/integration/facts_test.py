"""Facts on records of real runs, each asked for by a rule of its own.

The rules are written by hand and checked while the training runs, under the
capture plan of their set: what a fact needs must be in it. The long tier runs each
rule under a plan of its own, too.
"""

import json
import os
import time
import unittest

import harness

EACH_ALONE = "TRAINCHECK_EACH_ALONE" in os.environ
STEP = "torch.optim.optimizer.Optimizer.step"
TRAINING = {"clause": "constant", "fact": "ctx.grad_mode", "value": True}
EVALUATION = {"clause": "constant", "fact": "ctx.grad_mode", "value": False}
LINEAR = "torch.nn.modules.linear.Linear.forward"
COUNTER = "torch.nn.modules.batchnorm.BatchNorm1d.num_batches_tracked"
CLIP = "torch.nn.utils.clip_grad.clip_grad_norm_"


def of_calls(function: dict, fact: str, value, *clauses) -> dict:
    parameters = {"is": "fact", "function": function, "fact": fact, "value": value}
    return rule("APIArg", parameters, clauses)


def of_steps(of: str, fact: str, value, *clauses) -> dict:
    event = {"kind": "state", "of": of, "fact": fact, "value": value, "which": "every"}
    window = {"kind": "call", "function": {"role": STEP}}
    return rule("EventContain", {"window": window, "event": event}, clauses)


def rule(relation: str, parameters: dict, clauses) -> dict:
    return {
        "relation": relation,
        "parameters": parameters,
        "precondition": {"all": list(clauses)},
        "scope": "general",
        "experiments": [],
        "support": 0,
    }


def kind(name: str) -> dict:
    return {"category": name}


# Error of scripts/facts.py -> the rule that it breaks, and nothing else does.
RULES = {
    "bypass-wrapper": of_calls(kind("forward"), "call.inside_wrapper", True),
    "clip-scaled": of_calls({"name": CLIP}, "grad.scaled", False),
    "step-scaled": of_calls(kind("optimizer_step"), "grad.scaled", False),
    "drop-in-evaluation": of_calls({"role": "dropout"}, "call.eval_dropout_p", 0.0),
    "fixed-order": of_calls(kind("loader_next"), "sampler.shuffles", True),
    "leave-loader": of_calls(kind("loader_iter"), "loader.consumed", True),
    "nan-gradient": of_steps("parameter", "grad.finite", True),
    "decay": of_steps("parameter", "rows_changed_without_grad", False),
    "initialise-again": of_steps("parameter", "loaded.consumed", True),
    "frozen-statistics": of_steps(
        "buffer",
        "buffer.updated_or_loaded",
        True,
        {"clause": "constant", "fact": "buffer.written_by_forward", "value": True},
    ),
    "statistics-stop": rule(
        "StateChange",
        {
            "of": "buffer.data",
            "role": COUNTER,
            "changes": "every",
            "steps": 1,
            "after": "first_forward",
        },
        (),
    ),
    "steps-stop": rule("OptimizerProgress", {"backwards": 4}, ()),
    "own-memory": of_steps("parameter", "var.shared_memory", True),
    "broadcast-target": of_calls({"role": "loss"}, "call.shapes_match", True),
    "outside-autocast": of_calls(
        kind("forward"), "ctx.autocast_dtype", "torch.bfloat16", TRAINING
    ),
}
# What else the script must show: no error breaks them, and they are decided.
ALWAYS = [
    of_calls(kind("forward"), "call.rng_advanced", True, TRAINING),
    of_calls({"name": LINEAR}, "call.overrides", False),
    of_calls(kind("forward"), "call.is_recompute", False),
    of_calls(kind("optimizer_step"), "step.backwards", 1),
    of_calls(kind("optimizer_step"), "ctx.autocast_dtype", ""),
    of_steps("parameter", "var.sharded", False),
    of_steps("parameter", "var.alias_group", False),
    of_steps("parameter", "var.identity_epoch", 0),
    of_steps("parameter", "var.effective_lr", 0.01),
    of_steps("buffer", "var.kind", "buffer"),
]

# Of the healthy variant only: precision decides whether a bias moves.
CHANGED = of_steps("parameter", "var.changed", True)


class Facts(harness.TrainingCase):
    def setUp(self):
        super().setUp()
        self.start_daemon()

    def load(self, name: str, rules: list) -> None:
        document = {
            "format": "traincheck-invariants",
            "format_version": 1,
            "name": name,
            "version": 1,
            "runs": [],
            "created_unix_ns": time.time_ns(),
            "invariants": rules,
        }
        path = self.folder / f"{name}.json"
        path.write_text(json.dumps(document))
        self.daemon.ctl("invariants", "import", "--set", name, str(path))

    def check(self, run: str, rules: str, *arguments: str) -> tuple:
        """(facts that rules broken by the run ask for, its coverage)"""
        done = self.monitored(
            harness.SCRIPTS / "facts.py",
            *arguments,
            options=("--run", run, "--no-builtin", "--check", rules),
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        coverage = self.daemon.run_ended(run)["check"]
        violations = self.daemon.ctl("violations", "list", "--run", run)
        return sorted({v["text"] for v in violations}), coverage

    def test_each_fact_is_known_and_tells_its_error(self):
        rules = [*RULES.values(), *ALWAYS]
        self.load("facts", rules)
        self.load("healthy", [*rules, CHANGED])
        told, coverage = self.check("healthy", "healthy")
        self.assertEqual(told, [])
        self.assertEqual(coverage["decided"], len(rules) + 1, coverage)
        self.assertEqual(coverage["partly_unknown"], [], coverage)
        for error, broken in RULES.items():
            with self.subTest(error=error):
                told, _ = self.check(error, "facts", "--error", error)
                self.assertEqual(len(told), 1, told)
                print(f"{error}: {told[0]}")
                if EACH_ALONE:
                    self.load(error, [broken])
                    told, _ = self.check(f"{error}-alone", error, "--error", error)
                    self.assertEqual(len(told), 1, told)

    def test_a_role_of_buffers_is_learned_in_place_of_their_names(self):
        script = harness.SCRIPTS / "facts.py"
        done = self.monitored(
            script, options=("--run", "reference", "--collect", "--full")
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.daemon.run_ended("reference")
        options = (*harness.ONE_PROGRAM, "--from", "reference", "--set", "learned")
        self.daemon.ctl("infer", *options)
        learned = self.daemon.ctl("invariants", "export", "--set", "learned", "-")
        of_counter = [
            (invariant["parameters"].get("role"), invariant["scope"])
            for invariant in learned["invariants"]
            if "num_batches_tracked" in json.dumps(invariant["parameters"])
        ]
        self.assertEqual(of_counter, [(COUNTER, "experiment")])
        told, _ = self.check("stopped", "learned", "--error", "statistics-stop")
        self.assertTrue(any("num_batches_tracked" in text for text in told))

    def test_parts_that_two_ranks_exchange_fit(self):
        self.load("parts", [rule("CollectiveContract", {"what": "splits"}, ())])
        for run, arguments in (("fit", ()), ("misfit", ("--fault",))):
            script = harness.SCRIPTS / "exchange.py"
            options = ("--run", run, "--no-builtin", "--check", "parts")
            done = self.monitored(script, *arguments, options=options)
            self.assertEqual(done.returncode == 0, run == "fit", done.stderr)
            coverage = self.daemon.run_ended(run)["check"]
            self.assertEqual(coverage["decided"], 1, coverage)
        self.assertEqual(self.daemon.ctl("violations", "list", "--run", "fit"), [])
        (found,) = self.daemon.ctl("violations", "list", "--run", "misfit")
        # The step closes with the clearing of gradients that comes after it.
        self.assertEqual((found["ranks"], found["first_step"]), ([0, 1], 1), found)
        shown = self.daemon.ctl("violations", "show", found["id"])
        self.assertIn("3 rows at", shown["seen"])


if __name__ == "__main__":
    unittest.main()
