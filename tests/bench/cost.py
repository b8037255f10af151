"""What the agent costs: trainings with and without it, by turns.

    tests/bench/cost.sh                                   bare, reference and full
    tests/bench/cost.sh --modes builtin                   as it is without any option
    tests/bench/cost.sh --modes selective --set FILE      checked against a set
    tests/bench/cost.sh --modes own,inferred              with what is learned
    tests/bench/cost.sh --modes traincheck --traincheck FILE
    tests/bench/cost.sh --only start                      import torch, /bin/true

All modes of a pipeline and the run without the agent take turns, in this order and
back (without, a, b, b, a, without, ...); a pair is a mode's run and the one without
of the same turn. The ratio is that of the mean step times that the scripts
themselves measured after some steps of warm-up, evaluation and checkpoints between
steps included; shown is the median over the pairs with a 95% interval by order
statistics. CPU seconds are the kernel's, of whole processes: the training's without
and with the agent, and the relay's.
Prints markdown tables. Modes:

    skeleton   calls that every training has, and no state
    builtin    as it is without any option: checked against the built-in rules
    bare       checked against nothing: the skeleton and all state
    selective  checked against --set (and --plan, if given)
    traincheck recorded under the plan of a file of TrainCheck's invariants
    own        checked against 100 of the invariants that inferred has
    inferred   checked against all that was learned from two full collections
    reference  --collect
    full       --collect, with all functions of the catalogue
"""

import argparse
import dataclasses
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "integration")]
import cost_processes
import cost_start
import harness
import traincheck_plan
from cost_statistics import median_interval

PIPELINES = {
    "mnist_cnn": "MNIST CNN",
    "resnet18": "ResNet-18",
    "gcn": "GCN",
    "gat": "GAT",
    "vae": "VAE",
    "dcgan": "DCGAN",
    "siamese": "siamese",
    "lstm_lm": "LSTM LM",
    "transformer_lm": "transformer LM",
    "mixer_ddp": "DDP, 2 ranks",
}
MODES = (
    "skeleton",
    "builtin",
    "bare",
    "selective",
    "traincheck",
    "own",
    "inferred",
    "reference",
    "full",
)
SKELETON = {"format": 1, "mode": "selective", "state": {}}
REFERENCES = 2  # runs that a set is learned from
OWN = 100  # invariants of the set "own"
HEAD = """\
| pipeline | mode | step, ms | ratio | 95% | CPU s, without | with | relay | \
records | dropped | lost | MiB more |
|---|---|---|---|---|---|---|---|---|---|---|---|"""


@dataclasses.dataclass
class Run:
    step_s: float
    usage: cost_processes.Usage


class Bench:
    def __init__(self, options, folder: pathlib.Path):
        self.options, self.folder = options, folder
        self.daemon = harness.Daemon(folder).start()
        self.runs = 0
        self.steps = options.steps
        self.learned: set = set()
        if options.set:
            self.daemon.ctl("invariants", "import", str(options.set), "--set", "given")

    def environment(self, *words: str, **extra: str) -> dict:
        """As `traincheckctl env` makes it; without words that of a plain training."""
        env = harness.others_environment()
        env["OMP_NUM_THREADS"] = "1"
        if not words:
            return env
        env["TRAINCHECK_SPOOL_DIR"] = str(self.folder / "spool")
        server = ["--server", self.daemon.address]
        command = [str(harness.DIST / "traincheckctl"), *server, "env", *words]
        lines = subprocess.run(command, env=env, stdout=subprocess.PIPE, check=True)
        # The shell's own reading of the lines.
        command = ["sh", "-c", lines.stdout.decode() + "env -0"]
        shell = subprocess.run(command, env=env, stdout=subprocess.PIPE, check=True)
        pairs = shell.stdout.decode().rstrip("\0").split("\0")
        return {**dict(pair.split("=", 1) for pair in pairs), **extra}

    def watched(self, mode: str, pipeline: str, run: str) -> dict:
        words = ["--run", run]
        if mode == "builtin":
            return self.environment(*words)
        words.append("--no-builtin")
        if mode == "selective":
            words += ["--check", "given"]
            if self.options.plan:
                words += ["--plan", str(self.options.plan)]
        elif mode == "skeleton":
            words += ["--plan", str(self._plan("skeleton", lambda: SKELETON))]
        elif mode == "traincheck":
            words += ["--plan", str(self._plan("traincheck", self._of_traincheck))]
        elif mode in ("own", "inferred"):
            words += ["--check", f"{mode}-{pipeline}"]
        elif mode != "bare":
            words.append("--collect")
        extra = {"TRAINCHECK_COLLECT": "full"} if mode == "full" else {}
        return self.environment(*words, **extra)

    def train(self, pipeline: str, environment: dict) -> Run:
        times = self.folder / "times"
        times.unlink(missing_ok=True)
        script = harness.PIPELINES / f"{pipeline}.py"
        command = [sys.executable, str(script), "--times", str(times), "--threads=1"]
        command += [f"--steps={self.steps}"]
        log = self.folder / "training.log"
        usage = cost_processes.run(command, environment, log)
        if usage.code != 0:
            raise RuntimeError(
                f"{pipeline} ended with {usage.code}:\n{log.read_text()}"
            )
        moments = [float(line) for line in times.read_text().split()]
        kept = moments[self.options.warmup :]
        return Run((kept[-1] - kept[0]) / (len(kept) - 1), usage)

    def train_watched(self, pipeline: str, mode: str):
        self.runs += 1
        run = f"{pipeline}-{mode}-{self.runs}"
        result = self.train(pipeline, self.watched(mode, pipeline, run))
        return result, self.daemon.run_ended(run)

    def _of_traincheck(self) -> dict:
        return traincheck_plan.plan_of(self.options.traincheck)

    def _plan(self, name: str, make) -> pathlib.Path:
        path = self.folder / f"{name}.json"
        if not path.exists():
            path.write_text(json.dumps(make()))
        return path

    def learn(self, pipeline: str) -> None:
        """The sets inferred-PIPELINE and own-PIPELINE."""
        if pipeline in self.learned:
            return
        self.learned.add(pipeline)
        runs = []
        for _ in range(REFERENCES):
            self.train_watched(pipeline, "full")
            runs.append(f"{pipeline}-full-{self.runs}")
        learned = f"inferred-{pipeline}"
        self.daemon.ctl("infer", "--from", ",".join(runs), "--set", learned)
        file = self.folder / "set.json"
        some = self.daemon.ctl("invariants", "export", "-", "--set", learned)
        rules = some["invariants"]
        kept = min(OWN, len(rules))
        some["invariants"] = [rules[i * len(rules) // kept] for i in range(kept)]
        file.write_text(json.dumps(some))
        self.daemon.ctl("invariants", "import", str(file), "--set", f"own-{pipeline}")

    def measure(self, pipeline: str, modes: list) -> list:
        """A row of the table for each mode."""
        if self.options.seconds:
            self.steps = self.options.warmup + 20
            step_s = self.train(pipeline, self.environment()).step_s
            self.steps = self.options.warmup + max(
                20, round(self.options.seconds / step_s)
            )
        if {"own", "inferred"} & {*modes}:
            self.learn(pipeline)
        plain: list = []
        watched: dict = {mode: [] for mode in modes}
        for turn in range(self.options.pairs):
            order = [None, *modes]
            for mode in reversed(order) if turn % 2 else order:
                if mode is None:
                    plain.append(self.train(pipeline, self.environment()))
                else:
                    watched[mode].append(self.train_watched(pipeline, mode))
        return [
            _row(PIPELINES[pipeline], mode, plain, *zip(*watched[mode]))
            for mode in modes
        ]


def _row(name: str, mode: str, plain: list, watched: list, books: list) -> str:
    ratio, low, high = median_interval(
        [b.step_s / a.step_s for a, b in zip(plain, watched)]
    )
    middle = statistics.median
    interval = "-" if low is None else f"{low:.3f}-{high:.3f}"
    more = middle(
        [b.usage.max_rss_mib - a.usage.max_rss_mib for a, b in zip(plain, watched)]
    )
    cells = [
        name,
        mode,
        f"{1e3 * middle([r.step_s for r in plain]):.1f}",
        f"{ratio:.3f}",
        interval,
        f"{middle([r.usage.cpu_s for r in plain]):.2f}",
        f"{middle([r.usage.cpu_s for r in watched]):.2f}",
        f"{middle([r.usage.relay_cpu_s for r in watched]):.2f}",
        f"{middle([shown['records'] for shown in books]):.0f}",
        str(sum(shown["dropped"] for shown in books)),
        _lost(books),
        f"{more:.0f}",
    ]
    return "| " + " | ".join(cells) + " |"


def _lost(books: list) -> str:
    lost = [shown["lost"] for shown in books]
    return "?" if None in lost else str(sum(lost))


def _summary(rows: list) -> list:
    """Median and worst ratio of each mode."""
    by_mode: dict = {}
    for row in rows:
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        by_mode.setdefault(cells[1], []).append((float(cells[3]), cells[0]))
    lines = [
        "",
        "| mode | median of the pipelines | worst | which |",
        "|---|---|---|---|",
    ]
    for mode, found in by_mode.items():
        worst, name = max(found)
        median = statistics.median(ratio for ratio, _ in found)
        lines.append(f"| {mode} | {median:.3f} | {worst:.3f} | {name} |")
    return lines


def _words(allowed):
    def parse(text: str) -> list:
        words = text.split(",")
        wrong = [word for word in words if word not in allowed]
        if wrong:
            raise argparse.ArgumentTypeError(f"{wrong[0]} is none of {list(allowed)}")
        return words

    return parse


def _parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument(
        "--seconds", type=float, help="instead of --steps: as many as take so long"
    )
    parser.add_argument("--warmup", type=int, default=20)
    parser.add_argument("--modes", type=_words(MODES), default=["bare", "reference", "full"])  # fmt: skip
    parser.add_argument("--pipelines", type=_words(PIPELINES), default=list(PIPELINES))
    parser.add_argument(
        "--set", type=pathlib.Path, help="file to import, for selective"
    )
    parser.add_argument("--plan", type=pathlib.Path, help="capture plan, for selective")
    parser.add_argument(
        "--traincheck", type=pathlib.Path, help="file of TrainCheck's, for traincheck"
    )
    parser.add_argument(
        "--only", choices=["steps", "start"], help="one of the two parts"
    )
    options = parser.parse_args()
    if options.steps < options.warmup + 2:
        parser.error("--steps: at least two more than --warmup")
    if "selective" in options.modes and not options.set:
        parser.error("--modes selective needs --set FILE")
    if "traincheck" in options.modes and not options.traincheck:
        parser.error("--modes traincheck needs --traincheck FILE")
    return options


def _measure_steps(options, folder: pathlib.Path) -> None:
    bench = Bench(options, folder)
    try:
        print(HEAD, flush=True)
        rows = []
        for pipeline in options.pipelines:
            found = bench.measure(pipeline, options.modes)
            print("\n".join(found), flush=True)
            rows += found
        print("\n".join(_summary(rows)))
    finally:
        bench.daemon.stop()


def main() -> None:
    options = _parse()
    harness.PATIENCE_S = cost_processes.PATIENCE_S  # inference takes its time
    os.chdir(HERE.parent.parent)
    cost_processes.adopt_orphans()
    with tempfile.TemporaryDirectory() as folder:
        if options.only != "start":
            _measure_steps(options, pathlib.Path(folder))
        if options.only != "steps":
            cost_start.measure(options.pairs, harness.DIST)


if __name__ == "__main__":
    main()
