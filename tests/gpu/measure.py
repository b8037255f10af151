"""Runs the parts that run.sh names, and prints their table. Ends with 1 if one of
them found something wrong."""

import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import torch

import digests
import harness
import rules

HERE = pathlib.Path(__file__).resolve().parent
TOOLS = pathlib.Path(os.environ["TRAINCHECK_GPU_TOOLS"])
KINDS = ("eager", "foreach", "fused", "sgd", "bf16", "scaler", "compile")
KINDS += ("reduce-overhead", "graphed")
EVERYWHERE = ("eager", "foreach", "sgd", "bf16")  # also on a CPU
PAIRS = 3
# Of the training whose steps are timed.
SIZES = {
    "small": ("--width", "64", "--steps", "200"),
    "GPT-2 small": (
        *("--width", "768", "--blocks", "12", "--length", "512"),
        *("--tokens", "50257", "--steps", "100"),
    ),
}
# GB/s of the digest as a share of a plain sum's; times the step.
LEAST_SHARE, MOST_RATIO = 0.9, 1.03
PRE_STEP, POST_STEP = 7, 8

Row = collections.namedtuple("Row", "what found ok")


class Measure:
    def __init__(self, dry_run, folder):
        self.folder = pathlib.Path(folder)
        self.device = "cpu" if dry_run else "cuda"
        self.kinds = EVERYWHERE if dry_run else KINDS
        self.extra = {}
        if dry_run:
            driver = TOOLS / "device/libcuda_for_testing.so"
            self.extra = {"LD_PRELOAD": str(driver), "DRIVER_FOR_TESTING": "3"}
        self.daemon = None
        self.rows = []

    def note(self, what, found, ok=True):
        self.rows.append(Row(what, found, ok))
        print(f"{what}: {found}{'' if ok else '   WRONG'}", file=sys.stderr)

    def record(self, code):
        """Runs a program with the core alone."""
        os.chdir(TOOLS.parent)  # where records_for_testing finds the core
        import records_for_testing

        return records_for_testing.Recording(
            code,
            prelude=records_for_testing.TORCH_PRELUDE,
            TRAINCHECK_TEST_DEVICE=self.device,
            **self.extra,
        )

    def digests(self):
        recording = self.record(digests.TENSORS)
        assert recording.result.returncode == 0, recording.result.stderr
        found = {PRE_STEP: {}, POST_STEP: {}}
        for variable, point, _, sums in recording.process.joined_states():
            found[point][variable] = sums
        here, there = found[POST_STEP], found[PRE_STEP]
        wrong = [v for v in here if not here[v] or here[v] != there.get(v)]
        self.note(
            "digests that are not the processor's",
            f"{len(wrong)} of {len(here)}",
            not wrong and len(here) > 300 and bool(recording.process.of("deferred")),
        )

    def bandwidth(self):
        recording = self.record(digests.BANDWIDTH)
        assert recording.result.returncode == 0, recording.result.stderr
        whole, plain, gpt2 = map(float, recording.result.stdout.split())
        rate = (1 << 30) / whole / 1e6
        share = plain / whole
        self.note(
            "1 GiB in one launch",
            f"{rate:.0f} GB/s, {share:.0%} of a plain sum",
            share >= LEAST_SHARE,
        )
        self.note(
            "GPT-2 small, parameters and gradients", f"{gpt2 * 1e3:.0f} us", gpt2 < 0.4
        )

    def losses(self):
        self.start_daemon()
        with concurrent.futures.ThreadPoolExecutor(len(self.kinds)) as side_by_side:
            list(side_by_side.map(self._compare_losses, self.kinds))

    def _compare_losses(self, kind):
        plain = self.plain("--kind", kind)
        if plain["losses"] != self.plain("--kind", kind)["losses"]:
            self.note(f"losses and weights, {kind}", "differ without us, too")
            return
        watched = self.watched(f"bits-{kind}", "--kind", kind)
        same = all(plain[k] == watched[k] for k in ("losses", "weights"))
        shown = self.daemon.run_ended(f"bits-{kind}")
        last = self.daemon.run_ended(f"bits-{kind}")["last_step"]
        found = f"{'same' if same else 'DIFFER'}; {last + 1} steps recorded"
        self.note(f"losses and weights, {kind}", found, same)

    def errors(self):
        references = ["ref-1", "ref-2"]
        for seed, run in enumerate(references, 1):
            self.watched(run, "--seed", str(seed))
            self.daemon.run_ended(run)
        learned = self.daemon.ctl(
            "infer",
            "--from",
            ",".join(references),
            "--set",
            "gpu",
            *harness.ONE_PROGRAM,
        )
        self.note("rules learned on the device", learned["invariants"])
        for run, options in (("healthy", ()), ("frozen", ("--frozen",))):
            self.watched(run, "--seed", "3", *options)
            self.daemon.run_ended(run)
            check = self.daemon.ctl("check", "--run", run, "--set", "gpu")
            count = len(check["violations"])
            unreadable = sum(
                "could not be read" in (v["reason"] or "") for v in check["verdicts"]
            )
            self.note(
                f"violations, {run}",
                f"{count}; rules that could not read something: {unreadable}",
                bool(count) == bool(options) and not unreadable,
            )

    def rules(self):
        runner = rules.Rules(self._run_watched, self.start_daemon(), self.device)
        expected = rules.programs("broken_by")
        wrong = runner.run(expected)
        found, missed = rules.found_and_not(wrong, expected)
        self.note("mistakes on the device", f"{found} found, {missed} not")
        right = runner.run(rules.programs("kept_by"))
        alarms = sorted(set().union(*map(rules.violated, right.values())))
        self.note("alarms of healthy programs", alarms or "none", not alarms)
        idle = [r for r in (*wrong.values(), *right.values()) if not r.rules]
        self.note("programs that do not run there", len(idle))

    def ratios(self):
        for name, options in SIZES.items():
            options = (*options, "--kind", "fused")
            found = collections.defaultdict(list)
            for pair in range(PAIRS):
                plain = self.plain(*options)["step_ms"]
                for how in ("--check", "--collect"):
                    run = f"time-{name.replace(' ', '-')}{how}-{pair}"
                    watched = self.watched(run, *options, how=how)["step_ms"]
                    found[how].append(watched / plain)
            for how, ratios in found.items():
                self.note(
                    f"{name}, a step of {plain:.1f} ms, {how}",
                    f"{statistics.median(ratios):.3f} times"
                    f" ({min(ratios):.3f} to {max(ratios):.3f})",
                )

    def plain(self, *options):
        return self._train([], options)

    def start_daemon(self):
        if self.daemon is None:
            self.daemon = harness.Daemon(self.folder).start()
        return self.daemon

    def _launcher(self, run, how):
        daemon = self.start_daemon()
        command = [harness.DIST / "traincheckctl", "--server", daemon.address]
        return [*command, "run", "--run", run, *how, "--"]

    def watched(self, run, *options, how="--collect"):
        how = ["--check", "builtin"] if how == "--check" else [how]
        return self._train(self._launcher(run, how), options, **self.extra)

    def _run_watched(self, run, command):
        """With built-in rules, each step in full."""
        environment = self._environment(TRAINCHECK_BUDGET="off", **self.extra)
        return harness.run_captured([*self._launcher(run, []), *command], environment)

    def _environment(self, **extra):
        return dict(
            harness.others_environment(),
            TRAINCHECK_SPOOL_DIR=str(self.folder / "spool"),
            CUBLAS_WORKSPACE_CONFIG=":4096:8",
            **extra,
        )

    def _train(self, before, options, **extra):
        environment = self._environment(**extra)
        command = [*before, sys.executable, HERE / "training.py"]
        done = harness.run_captured(
            [*command, "--device", self.device, *options], environment
        )
        assert done.returncode == 0, done.stderr
        assert "not read from now on" not in done.stderr, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    def table(self):
        if self.device == "cuda":
            name = torch.cuda.get_device_name()
            query = [
                "nvidia-smi",
                "--query-gpu=driver_version",
                "--format=csv,noheader",
            ]
            driver = subprocess.run(query, capture_output=True, text=True)
            print(f"{name}, driver {driver.stdout.strip()}, torch {torch.__version__}")
        print("\n| what | found | |\n|---|---|---|")
        for row in self.rows:
            print(f"| {row.what} | {row.found} | {'' if row.ok else 'wrong'} |")


def main():
    device_only = ("bandwidth", "rules", "ratios")
    parts = ("digests", "losses", "errors") + device_only
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", help=", ".join(parts))
    parser.add_argument("--dry-run", action="store_true")
    options = parser.parse_args()
    wanted = options.parts or parts
    with tempfile.TemporaryDirectory() as folder:
        measure = Measure(options.dry_run, folder)
        try:
            for part in wanted:
                if options.parts or not options.dry_run or part not in device_only:
                    getattr(measure, part)()
        finally:
            if measure.daemon is not None:
                measure.daemon.end()
        measure.table()
    sys.exit(not all(row.ok for row in measure.rows))


if __name__ == "__main__":
    main()
