"""TrainCheck's traces and invariant files come in, and the files go out again."""

import json
import os
import pathlib
import subprocess
import unittest

import harness

ORACLES = os.environ.get("TRAINCHECK_ORACLES", "")
SGD = "torch.optim.sgd.SGD"
# Enough for rules to be refuted if they were wrong.
STEPS = 40
UNCONDITIONAL = {"inverted": False, "preconditions": [{"clauses": "Unconditional"}]}


def contains(parent: str, child: str, **more) -> dict:
    params = [
        {"param_type": "APIParam", "api_full_name": name} for name in (parent, child)
    ]
    return {
        "text_description": "TBD merged",
        "relation": "APIContainRelation",
        "params": params,
        "precondition": {"parent_func_call_pre": UNCONDITIONAL},
        **more,
    }


class Trace:
    """The lines of one rank of a small training, as TrainCheck writes them."""

    def __init__(self, rank: int, world: int):
        self.pid = 4000 + rank
        self.thread = 90000 + rank
        self.calls, self.states = [], []
        self._time = 10**12 + rank
        self._ids = 0
        self._meta = {"step": 0, "stage": "init"}
        place = {"rank": {"int": rank}, "world_size": {"int": world}}
        self.call("torch.distributed.distributed_c10d.init_process_group", place)

    def line(self, kind: str, **fields) -> dict:
        self._time += 1000
        return {
            "type": kind,
            "process_id": self.pid,
            "thread_id": self.thread,
            "time": self._time,
            "meta_vars": dict(self._meta),
            **fields,
        }

    def begin(self, function: str, kwargs=None, self_type: str = "", obj: int = 0):
        self._ids += 1
        common = {
            "func_call_id": f"{self.pid}_{self._ids}",
            "function": function,
            "is_bound_method": bool(obj),
            "obj_id": obj or None,
        }
        args = {"0": {self_type: {"training": True}}} if obj else {}
        self.calls.append(
            self.line("function_call (pre)", args=args, kwargs=kwargs or {}, **common)
        )
        return common

    def end(self, common: dict) -> None:
        none = {"NoneType": None}
        line = self.line("function_call (post)", return_values=none, **common)
        self.calls.append(line)

    def call(self, function: str, kwargs=None, **more) -> None:
        self.end(self.begin(function, kwargs, **more))

    def state(self, data: int, grad) -> None:
        attributes = {"data": data, "grad": grad, "dtype": "torch.float32"}
        attributes |= {"shape": [2, 3], "requires_grad": True, "is_leaf": True}
        self.states.append(
            self.line(
                "state_change",
                var_name="model.fc.weight",
                var_type="torch.nn.Parameter",
                attributes=attributes,
            )
        )

    def train(self, steps: int, forget_linear: int = -1) -> None:
        self.state(100, None)
        self._meta["stage"] = "training"
        for step in range(steps):
            self._meta["step"] = step + 1
            self.call(f"{SGD}.zero_grad", self_type=SGD, obj=500)
            net = self.begin("__main__.Net.forward", self_type="__main__.Net", obj=600)
            if step != forget_linear:
                linear = "torch.nn.modules.linear.Linear"
                self.call(f"{linear}.forward", self_type=linear, obj=601)
            self.end(net)
            backward = self.begin("torch._tensor.Tensor.backward")
            self.call("torch.autograd.backward")
            self.end(backward)
            optimizer = self.begin(f"{SGD}.step", self_type=SGD, obj=500)
            self.call("torch._VariableFunctionsClass.add")
            self.end(optimizer)
            self.state(101 + step, -step)

    def write(self, folder: pathlib.Path) -> None:
        for kind, lines in (("API", self.calls), ("VAR", self.states)):
            path = folder / f"trace_{kind}_{self.pid}_{self.thread}.log"
            path.write_text("".join(json.dumps(line) + "\n" for line in lines))


class TrainCheckFiles(harness.TrainingCase):
    def setUp(self):
        super().setUp()
        self.start_daemon()

    def ctl(self, *arguments: str):
        """Whatever comes of it."""
        return subprocess.run(
            [str(harness.DIST / "traincheckctl"), "--server", self.daemon.address]
            + [str(argument) for argument in arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            timeout=harness.PATIENCE_S,
        )

    def trace(self, name: str, world: int = 2, **more) -> pathlib.Path:
        folder = self.folder / name
        folder.mkdir()
        for rank in range(world):
            trace = Trace(rank, world)
            trace.train(STEPS, **more)
            trace.write(folder)
        return folder

    def import_trace(self, run: str, folder: pathlib.Path, *options: str) -> dict:
        done = self.daemon.ctl(
            *("import", "--format", "traincheck", "--run", run, *options), str(folder)
        )
        self.assertEqual(done["lines"], done["imported"] + done["skipped"])
        self.assertEqual(len(done["skipped_lines"]), done["skipped"])
        return done

    def rules_file(self, name: str, rules: list) -> pathlib.Path:
        path = self.folder / name
        path.write_text("".join(json.dumps(rule) + "\n" for rule in rules))
        return path

    def import_rules(self, name: str, path: pathlib.Path) -> dict:
        return self.daemon.ctl(
            *("invariants", "import", "--format", "traincheck", "--set", name),
            *("--experiment", "toy", str(path)),
        )

    def export_rules(self, name: str) -> list:
        path = self.folder / f"{name}.out"
        done = self.ctl(
            *("invariants", "export", "--format", "traincheck", "--set", name, path)
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        return [json.loads(line) for line in path.read_text().splitlines()]

    def test_a_folder_becomes_a_run_that_can_be_learned_from(self):
        done = self.import_trace("one", self.trace("toy"), "--experiment", "toy")
        self.assertEqual(done["skipped"], 0)
        self.assertEqual([p["rank"] for p in done["processes"]], [0, 1])
        shown = self.daemon.run_ended("one")
        self.assertEqual(shown["status"], "ended")
        self.assertEqual(
            (shown["experiment"], shown["role"], shown["world"], shown["lost"]),
            ("toy", "reference", 2, 0),
        )
        self.assertEqual((shown["first_step"], shown["last_step"]), (0, STEPS - 1))
        self.assertEqual(shown["records"], done["records"])
        for process in shown["processes"]:
            self.assertEqual(process["reason"], "clean exit")
        learned = self.daemon.ctl("infer", "--from", "one", "--set", "rules")
        self.assertGreater(learned["invariants"], 0)
        checked = self.daemon.ctl("check", "--run", "one", "--set", "rules")
        self.assertEqual(checked["violations"], [])
        self.assertEqual(
            checked["coverage"]["decided"], checked["coverage"]["total"], checked
        )
        broken = self.trace("broken", forget_linear=3)
        self.import_trace("two", broken, "--experiment", "toy", "--role", "target")
        checked = self.daemon.ctl("check", "--run", "two", "--set", "rules")
        self.assertTrue(checked["violations"])
        self.assertEqual(min(v["first_step"] for v in checked["violations"]), 3)

    def test_imported_rules_are_judged_or_unknown_and_come_back(self):
        distinct = {
            "relation": "DistinctArgumentRelation",
            "params": [{"param_type": "APIParam", "api_full_name": "torch.rand"}],
            "precondition": {"distinct_arg": UNCONDITIONAL},
        }
        rules = [
            contains(f"{SGD}.step", "torch._VariableFunctionsClass.add"),
            distinct,
            contains(
                "__mp_main__.Net.forward", "torch.nn.modules.linear.Linear.forward"
            ),
            contains(f"{SGD}.step", "torch.mul", num_positive_examples=12),
            contains(f"{SGD}.step", "torch.mul", num_positive_examples=None),
        ]
        summary = self.import_rules("theirs", self.rules_file("rules.json", rules))
        self.assertEqual(summary["invariants"], 4)
        self.assertEqual(self.export_rules("theirs"), rules)
        listed = self.daemon.ctl("invariants", "list", "theirs")
        self.assertEqual({row["relation"] for row in listed}, {"TrainCheck"})
        self.import_trace("one", self.trace("toy"), "--experiment", "toy")
        checked = self.daemon.ctl("check", "--run", "one", "--set", "theirs")
        verdicts = {v["text"]: v for v in checked["verdicts"]}
        self.assertEqual(
            {text: v["verdict"] for text, v in verdicts.items()},
            {
                f"Every call of {SGD}.step calls torch.add.": "pass",
                f"Every call of {SGD}.step calls torch.mul.": "violated",
                "Every call of __main__.Net.forward calls "
                "torch.nn.modules.linear.Linear.forward.": "pass",
                "Calls of torch.rand within one step get different "
                "arguments.": "unknown",
            },
        )
        reasons = [v["reason"] for v in verdicts.values() if v["reason"]]
        self.assertEqual(len(reasons), 1)
        self.assertIn("imported DistinctArgumentRelation is not judged", reasons[0])
        (violation,) = checked["violations"]
        self.assertEqual(violation["ranks"], [0, 1])
        self.assertEqual(violation["relation"], "TrainCheck")

    def test_bad_lines_are_named_and_nothing_else_is_lost(self):
        folder = self.trace("toy", world=1)
        path = next(folder.glob("trace_VAR_*"))
        good = path.read_text()
        path.write_text('{"type": NaN}\n' + good + good[:40])
        (folder / "proxy_log.json").write_text('{"type": "other"}\n')
        done = self.import_trace("one", folder)
        reasons = {
            (line["file"], line["line"]): line["reason"]
            for line in done["skipped_lines"]
        }
        self.assertEqual(len(reasons), 3, reasons)
        self.assertIn("NaN", reasons[(path.name, 1)])
        last = good.count("\n") + 2
        self.assertIn("cut off", reasons[(path.name, last)])
        self.assertIn('"other"', reasons[("proxy_log.json", 1)])
        again = self.ctl("import", "--format", "traincheck", "--run", "one", folder)
        self.assertEqual(again.returncode, 2)
        self.assertIn('run "one" exists already', again.stderr)

    def test_a_bad_file_makes_no_set(self):
        good = contains("torch.a", "torch.b")
        for broken, what in (
            ({**good, "relation": "Guess"}, 'line 2: relation: "Guess" is no'),
            ({**good, "params": []}, "line 2: params: has 0"),
            ({**good, "precondition": "Failed"}, "line 2: precondition: not an"),
        ):
            path = self.rules_file("bad.json", [good, broken])
            done = self.ctl(
                *("invariants", "import", "--format", "traincheck"),
                *("--set", "bad", path),
            )
            self.assertEqual(done.returncode, 2)
            self.assertIn(what, done.stderr)
        self.assertEqual(
            [row["name"] for row in self.daemon.ctl("sets", "list")], ["builtin"]
        )

    def test_a_daemon_that_is_gone_is_told(self):
        folder = self.trace("toy", world=1)
        self.daemon.kill()
        done = self.ctl("import", "--format", "traincheck", "--run", "one", folder)
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertIn("no traincheckd answers", done.stderr)

    @unittest.skipUnless(ORACLES, "TRAINCHECK_ORACLES names no folder")
    def test_trainchecks_own_files(self):
        oracles = pathlib.Path(ORACLES)
        for path in sorted((oracles / "invariants").glob("*.json")):
            with self.subTest(file=path.name):
                self.import_rules(path.stem, path)
                lines = path.read_text().splitlines()
                self.assertEqual(
                    self.export_rules(path.stem), [json.loads(line) for line in lines]
                )
        for folder in sorted((oracles / "traces").iterdir()):
            with self.subTest(trace=folder.name):
                done = self.import_trace(folder.name, folder)
                self.assertEqual(done["skipped"], 0)
                shown = self.daemon.run_ended(folder.name)
                self.assertEqual(shown["status"], "ended")
                self.assertEqual(shown["lost"], 0)
        self.assertEqual(self.daemon.ctl("runs", "show", "ddp-multigpu")["world"], 8)
        # Four steps of calls, with few states and no facts: every rule is either
        # undecided there or seen too seldom. That is said, not hidden
        # behind a set of accidents.
        with self.assertRaisesRegex(AssertionError, "seen too seldom to be trusted"):
            self.daemon.ctl("infer", "--from", "ddp-multigpu", "--set", "learned")
        self.assert_verdicts_are_trainchecks(oracles, "six-inputs-2112", "ddp-multigpu")

    def assert_verdicts_are_trainchecks(self, oracles, rules, trace):
        """Whatever is decided is decided as TrainCheck did."""
        expected = json.loads(
            (oracles / "expected" / f"{rules}@{trace}.json").read_text()
        )
        verdict_of = {
            line: verdict
            for verdict, lines in expected["verdicts_by_line"].items()
            for line in lines
        }
        path = self.folder / "native.json"
        self.ctl("invariants", "export", "--set", rules, path)
        line_of = {
            rule["id"]: rule["origin"]["lines"][0]
            for rule in json.loads(path.read_text())["invariants"]
        }
        checked = self.daemon.ctl("check", "--run", trace, "--set", rules)
        names = {"pass": "passed", "partly": "passed", "violated": "failed"}
        decided = [v for v in checked["verdicts"] if v["verdict"] in names]
        self.assertGreater(len(decided), 50)
        for verdict in decided:
            self.assertEqual(
                names[verdict["verdict"]], verdict_of[line_of[verdict["invariant_id"]]]
            )


if __name__ == "__main__":
    unittest.main()
