"""The two systems that vs_traincheck.py compares, with the same four methods.

    train    a training recorded in full, to learn from or to be checked later
    infer    learns invariants from one of them
    watch    a training of which what the invariants need is recorded
    check    checks a training of either kind

Each returns a dictionary: status is "ok" or says why there is nothing else in it.
Seconds are those of the whole command, MiB as vs_traincheck_measure.py says;
violated has identity and text of each violated invariant.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import harness
import vs_traincheck_measure as measure

HERE = pathlib.Path(__file__).resolve().parent
SCRIPT = "train.py"  # the training, as it is called in the folder


class System:
    """What both share: a folder for everything and a time limit of each command."""

    daemons: set = set()  # of all systems: no part of any command

    def __init__(self, folder: pathlib.Path, limit_s: float):
        self.folder, self.limit_s = folder, limit_s
        self.commands: dict = {}  # the first command of each kind, as text
        self.folder.mkdir()
        shutil.copy(HERE / "vs_traincheck_train.py", self.folder / SCRIPT)
        self.environment = harness.others_environment()
        self.environment["OMP_NUM_THREADS"] = "1"

    def run(self, command: list, log: str) -> measure.Measured:
        """Runs a command in the folder; its output goes to the file log there."""
        with open(self.folder / log, "wb") as file:
            done = measure.run(
                command,
                self.limit_s,
                self.daemons,
                cwd=self.folder,
                env=self.environment,
                stdout=file,
                stderr=subprocess.STDOUT,
            )
        if done.status != "ok":
            text = (self.folder / log).read_text(errors="replace")
            print(f"{log}: {done.status}\n{text[-1500:]}", file=sys.stderr)
        return done

    def note(self, kind: str, *words) -> None:
        """Remembers a command for the report, with programs by their names only."""
        names = [pathlib.Path(str(w)).name if os.sep in str(w) else w for w in words]
        self.commands.setdefault(kind, " ".join(names))

    def step_ms(self, label: str) -> float:
        """Mean time of a step from the end of the second one on, between-epoch
        evaluation included."""
        text = (self.folder / f"{label}.times").read_text()
        moments = [float(line) for line in text.split()]
        return 1e3 * (moments[-1] - moments[2]) / (len(moments) - 3)

    def training(self, done: measure.Measured, label: str) -> dict:
        """The figures that every training has."""
        if done.status != "ok":
            return {"status": done.status}
        step_ms = self.step_ms(label)
        return {
            "status": "ok",
            "seconds": done.seconds,
            "mib": done.mib,
            "step_ms": step_ms,
        }


def _script_words(label: str, words: list) -> list:
    return [SCRIPT, *words, "--times", f"{label}.times"]


class Plain(System):
    """The training alone."""

    def train(self, label: str, words: list) -> dict:
        command = [sys.executable, *_script_words(label, words)]
        return self.training(self.run(command, f"{label}.log"), label)


class TrainCheck(System):
    """The package, by its command line with the options of its documentation."""

    name = "traincheck"

    def __init__(self, folder, limit_s, environment: pathlib.Path):
        super().__init__(folder, limit_s)
        self.programs = environment / "bin"
        path = f"{self.programs}{os.pathsep}{self.environment['PATH']}"
        self.environment["PATH"] = path  # as in an activated environment

    def versions(self) -> dict:
        """Of the packages that its figures depend on."""
        names = ("traincheck", "torch", "numpy", "pandas", "numba")
        code = (
            "import importlib.metadata as m, json, sys;"
            "print(json.dumps({n: m.version(n) for n in sys.argv[1:]}))"
        )
        command = [self.programs / "python", "-c", code, *names]
        return json.loads(subprocess.check_output(command))

    def command(self, kind: str, name: str, *words) -> list:
        self.note(kind, name, *words)
        # By its interpreter: the first line of a script does not take long paths.
        return [self.programs / "python", self.programs / name, *words]

    def collect(self, kind: str, label: str, words: list, *more: str) -> dict:
        # A training with arguments is given as a shell script that has them.
        label_there = f'"$folder"/{label}'  # it runs in the folder of the trace
        line = " ".join(["exec python", *_script_words(label_there, words)])
        (self.folder / "train.sh").write_text(f'folder="{self.folder}"\n{line}\n')
        output = self.folder / label
        shutil.rmtree(output, ignore_errors=True)
        command = self.command(
            kind,
            "traincheck-collect",
            *("--pyscript", SCRIPT, "--shscript", "train.sh"),
            *("--models-to-track", "model", "--output-dir", label, *more),
        )
        result = self.training(self.run(command, f"{label}.log"), label)
        if result["status"] == "ok":
            traces = [*output.glob("trace_*"), *output.glob("proxy_log.json*")]
            result["bytes"] = sum(file.stat().st_size for file in traces)
            result["all_bytes"] = sum(f.stat().st_size for f in output.iterdir())
            result["records"] = sum(_lines(file) for file in traces)
        return result

    def train(self, label: str, words: list) -> dict:
        return self.collect("train", label, words)

    def watch(self, label: str, words: list) -> dict:
        more = ("--invariants", "invariants.json")
        return self.collect("watch", label, words, *more)

    def infer(self, label: str) -> dict:
        words = ("-f", label, "-o", "invariants.json")
        command = self.command("infer", "traincheck-infer", *words)
        done = self.run(command, "infer.log")
        if done.status != "ok":
            return {"status": done.status}
        count = _lines(self.folder / "invariants.json")
        return {
            "status": "ok",
            "seconds": done.seconds,
            "mib": done.mib,
            "invariants": count,
        }

    def check(self, label: str) -> dict:
        words = ("-f", label, "-i", "invariants.json", "-o", f"{label}-results")
        command = self.command("check", "traincheck-check", *words)
        done = self.run(command, f"{label}-check.log")
        if done.status != "ok":
            return {"status": done.status}
        results = self.folder / f"{label}-results" / label
        failed = [one["invariant"] for one in objects(results / "failed.log")]
        violated = {_identity(one): one["text_description"] for one in failed}
        passed = len(objects(results / "passed.log"))
        return {
            "status": "ok",
            "seconds": done.seconds,
            "mib": done.mib,
            "decided": passed + len(violated),
            "violated": violated,
        }

    def stop(self) -> None:
        """Nothing of it is left running."""


def _lines(path: pathlib.Path) -> int:
    with open(path, "rb") as file:
        return sum(1 for _ in file)


def objects(path: pathlib.Path) -> list:
    """The JSON objects that a file has one after the other."""
    text, at, found = path.read_text(), 0, []
    decoder = json.JSONDecoder()
    while text[at:].strip():
        at += len(text[at:]) - len(text[at:].lstrip())
        one, at = decoder.raw_decode(text, at)
        found.append(one)
    return found


def _identity(invariant: dict) -> str:
    """TrainCheck's own: relation and parameters."""
    return json.dumps([invariant["relation"], invariant["params"]], sort_keys=True)


class Traincheckd(System):
    """This system: a daemon with an empty data directory."""

    name = "traincheckd"

    def __init__(self, folder, limit_s):
        super().__init__(folder, limit_s)
        self.daemon = harness.Daemon(self.folder).start()
        self.daemons.add(self.daemon.pid)
        self.environment["TRAINCHECK_SPOOL_DIR"] = str(self.folder / "spool")
        self.environment["TRAINCHECK_SERVER"] = self.daemon.address

    def versions(self) -> dict:
        versions = {"traincheckd": self.daemon.ctl("status")["server"]["version"]}
        command = ["git", "-C", HERE, "describe", "--always", "--dirty"]
        commit = subprocess.run(command, capture_output=True, text=True)
        if commit.returncode == 0:
            versions["commit"] = commit.stdout.strip()
        return versions

    def _ctl(self, kind: str, log: str, *words: str) -> measure.Measured:
        """Runs traincheckctl; the daemon's peak meanwhile counts as memory of it."""
        self.note(kind, "traincheckctl", *words)
        measure.forget_peak(self.daemon.pid)
        command = [harness.DIST / "traincheckctl", "-o", "json", *words]
        done = self.run(command, log)
        done.mib += measure.memory_kib(self.daemon.pid, "VmHWM")[0] / 1024
        return done

    def _train(self, kind: str, label: str, words: list, *options: str) -> dict:
        script = [sys.executable, *_script_words(label, words)]
        command = ["run", "--run", label, *options, "--", *script]
        done = self._ctl(kind, f"{label}.log", *command)
        result = self.training(done, label)
        if result["status"] == "ok":
            shown = self.daemon.run_ended(label)
            if shown["dropped"] or shown["lost"]:
                result["status"] = "records dropped"
            result["bytes"] = result["all_bytes"] = shown["stored_bytes"]
            result["records"] = shown["records"]
        return result

    def train(self, label: str, words: list) -> dict:
        return self._train("train", label, words, "--collect", "--full")

    def watch(self, label: str, words: list) -> dict:
        """Checked while it trains: what check() says of it has cost nothing more."""
        result = self._train("watch", label, words, "--check", "learned")
        if result["status"] == "ok":
            found = self.daemon.ctl("violations", "list", "--run", label)
            result["verdict"] = {
                "status": "ok",
                "seconds": "online",
                "mib": "online",
                "decided": self.daemon.ctl("runs", "show", label)["check"]["decided"],
                "violated": {row["invariant_id"]: row["text"] for row in found},
            }
        return result

    def infer(self, label: str) -> dict:
        words = ("infer", "--from", label, "--set", "learned")
        done = self._ctl("infer", "infer.log", *words)
        if done.status != "ok":
            return {"status": done.status}
        (job,) = self.daemon.ctl("jobs", "list")
        # The job's process is the daemon's child.
        worker_mib = (job["peak_bytes"] or 0) / 2**20
        return {
            "status": "ok",
            "seconds": done.seconds,
            "mib": done.mib + worker_mib,
            "worker_mib": worker_mib,
            "invariants": job["invariants"],
        }

    def check(self, label: str) -> dict:
        log = f"{label}-check.log"
        done = self._ctl("check", log, "check", "--run", label, "--set", "learned")
        if done.status != "ok":
            return {"status": done.status}
        text = (self.folder / log).read_text()
        answer = json.loads(text[text.index("{") :])
        verdicts = answer["verdicts"]
        return {
            "status": "ok",
            "seconds": done.seconds,
            "mib": done.mib,
            "decided": answer["coverage"]["decided"],
            "violated": {
                v["invariant_id"]: v["text"]
                for v in verdicts
                if v["verdict"] == "violated"
            },
        }

    def stop(self) -> None:
        self.daemon.stop()
