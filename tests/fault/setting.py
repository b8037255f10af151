"""What one run of a fault happens to: a daemon, a training, maybe a proxy.

Everything lives below one folder and is ended by Setting.close().
"""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import harness
import proxy

HERE = pathlib.Path(__file__).resolve().parent
TOOLS = pathlib.Path(
    os.environ.get("TRAINCHECK_FAULT_TOOLS", "bazel-bin/tests/fault")
).resolve()
STEPS = 40
ERROR_STEP = 12
RUN = "run"
SET = "rules"
LOST_AFTER_S = 8
GRACE_S = 20


class Daemon(harness.Daemon):
    """A daemon that may run under a limit, a shim, or from another file."""

    def __init__(self, folder: pathlib.Path, *options: str):
        super().__init__(folder, *options)
        self.program = harness.DIST / "traincheckd"
        self.prefix: list = []
        self.environment: dict = {}

    def spawn(self) -> None:
        """Starts the process and does not wait for its address."""
        self._port_file.unlink(missing_ok=True)
        command = [*self.prefix, self.program, "--data-dir", self.data_dir]
        command += ["--listen", self.address, "--port-file", self._port_file]
        with open(self.log, "ab") as log:
            self._process = subprocess.Popen(
                [*map(str, command), *self.options],
                stderr=log,
                env={**os.environ, **self.environment},
            )

    def start(self) -> "Daemon":
        self.spawn()

        def answered():
            if self._process.poll() is not None:
                raise AssertionError(f"the daemon ended: {self.tail()}")
            return self._port_file.exists()

        harness.wait_until(answered, "the daemon's address")
        self.address = self._port_file.read_text().strip()
        return self

    @property
    def started(self) -> bool:
        return self._process is not None

    def alive(self) -> bool:
        return self.started and self._process.poll() is None

    def do(self, *arguments: str) -> None:
        """Runs traincheckctl for what it does, not for what it prints."""
        command = [harness.DIST / "traincheckctl", "--server", self.address]
        done = subprocess.run([*command, *arguments], capture_output=True, text=True)
        if done.returncode != 0:
            raise AssertionError(f"{arguments}: {done.returncode} {done.stderr}")

    def wait(self, timeout_s: float) -> int:
        return self._process.wait(timeout_s)

    def tail(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()
        return " | ".join(lines[-3:])


def processes(marker: str, name: str = "") -> dict:
    """pid -> environment of live processes whose environment has the marker."""
    found = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            comm = pathlib.Path(f"/proc/{entry}/comm").read_text()
            if not comm.startswith(name):
                continue
            environ = pathlib.Path(f"/proc/{entry}/environ").read_bytes()
            state = pathlib.Path(f"/proc/{entry}/stat").read_text()
        except OSError:
            continue
        if marker.encode() in environ and state.rsplit(")", 1)[1].split()[0] != "Z":
            pairs = (v.split(b"=", 1) for v in environ.split(b"\0") if b"=" in v)
            found[int(entry)] = {k.decode(): v.decode() for k, v in pairs}
    return found


class Setting:
    def __init__(self, folder: pathlib.Path, ranks: int, seed: int, template):
        self.folder = folder
        self.ranks = ranks
        self.seed = seed
        self.out = folder / "out"
        self.out.mkdir(parents=True)
        self.spool = folder / "spool"
        self.dist = harness.DIST
        self.set_lost_after(LOST_AFTER_S)
        if template:
            subprocess.run(
                ["cp", "-a", "--sparse=always", template, self.daemon.data_dir],
                check=True,
            )
        self.proxy = None
        self.training = None
        self.environment = {
            "TRAINCHECK_SPOOL_DIR": str(self.spool),
            "TRAINCHECK_GRACE": str(GRACE_S),
            "OMP_NUM_THREADS": "1",
        }
        self.train_options: list = []
        self.launcher_options: list = []
        self.torchrun = False
        # None: --collect.
        self.check_set = SET
        self.run = RUN
        self.run_under = "ctl"  # or "preload"
        self._others: list = []
        self._mounts: list = []

    # Making it.

    def use_proxy(self) -> proxy.Proxy:
        self.proxy = proxy.Proxy(self.daemon.address)
        return self.proxy

    def set_lost_after(self, seconds: float) -> None:
        """How long the daemon waits for a silent rank. Before it is started."""
        self.daemon = Daemon(self.folder, "--lost-after", str(seconds))

    def copy_dist(self) -> pathlib.Path:
        """A copy of the shipped files that may be altered."""
        self.dist = self.folder / "dist"
        shutil.copytree(harness.DIST, self.dist)
        for file in self.dist.iterdir():
            file.chmod(0o755)
        return self.dist

    def mount_tmpfs(self, path: pathlib.Path, size: str) -> None:
        path.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "tmpfs", path],
            check=True,
            capture_output=True,
        )
        self._mounts.append(path)

    def _clean_environment(self) -> dict:
        env = {k: v for k, v in os.environ.items() if not k.startswith("TRAINCHECK_")}
        # Of the suite's folders that of tests/quick alone.
        path = env.pop("PYTHONPATH", "").split(":")
        quick = [folder for folder in path if folder.endswith("tests/quick")]
        if quick:
            env.update(PYTHONPATH=quick[0], QUICK_PROGRAMS="1")
        env.update(self.environment)
        return env

    def command(self) -> list:
        train = [HERE / "scripts/train.py", f"--steps={STEPS}", f"--seed={self.seed}"]
        train += self.train_options
        if self.torchrun:
            command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
            command += ["--nproc-per-node", self.ranks, "--max-restarts", 1]
            return [*command, *train, f"--out={self.out}"]
        command = [sys.executable, HERE / "scripts/ranks.py", "--nproc", self.ranks]
        return [*command, "--out", self.out, *self.launcher_options, *train]

    def start_training(self, monitored: bool = True) -> None:
        environment = self._clean_environment()
        command = self.command()
        server = (self.proxy or self.daemon).address
        # The proxy's port is not the one that the daemon's token is for.
        token = self.daemon.data_dir / "admin.token"
        environment["TRAINCHECK_TOKEN_FILE"] = str(token)
        if monitored and self.run_under == "ctl":
            # As a start without ctl has it, which some faults make.
            check = ["--no-builtin", "--check", self.check_set]
            mode = check if self.check_set else ["--collect"]
            command = [
                *(self.dist / "traincheckctl", "--server", server, "run"),
                *("--run", self.run, *mode, "--drain-timeout", "2", "--", *command),
            ]
        elif monitored:
            environment["LD_PRELOAD"] = str(self.dist / "libtraincheck_agent.so")
            environment["TRAINCHECK_SERVER"] = server
            environment["TRAINCHECK_RUN"] = RUN
            environment["TRAINCHECK_CHECK"] = SET
        with open(self.folder / "training.log", "wb") as log:
            self.training = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )

    def restart(self) -> None:
        """The ranks anew, under the same run, once the first ones are dead."""

        def over():
            names = self.leftovers().values()
            return all(name.startswith("traincheck") for name in names)

        harness.wait_until(over, "the end of the first start")
        self.training.wait()
        self.out = self.folder / "out.again"
        self.out.mkdir()
        self.start_training()

    def kill(self, pid: int) -> None:
        """Also one that has ended by itself."""
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def is_told_dead(self, pid: int) -> bool:
        """Has its relay told the daemon of its end?"""
        shown = self.daemon.ctl("runs", "show", self.run)["processes"]
        return any(p["pid"] == pid and p["state"] == "lost" for p in shown)

    def start_other(self, *command) -> subprocess.Popen:
        """A helper process that is ended with the setting."""
        with open(self.folder / "others.log", "ab") as log:
            other = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._clean_environment(),
            )
        self._others.append(other)
        return other

    # Looking at it.

    def steps_done(self) -> int:
        files = list(self.out.glob("loss.0.*"))
        return sum(file.read_bytes().count(b"\n") for file in files)

    def training_over(self) -> bool:
        return self.training.poll() is not None or (self.out / "exit").exists()

    def wait_step(self, step: int) -> None:
        """Until rank 0 has done `step` steps, or the training is over."""
        harness.wait_until(
            lambda: self.steps_done() >= step or self.training_over(), f"step {step}"
        )

    def rank_pid(self, rank: int) -> int:
        return int((self.out / f"pid.{rank}").read_text())

    def marker(self) -> str:
        return f"TRAINCHECK_SPOOL_DIR={self.spool}"

    def relays(self) -> dict:
        """pid of the owner -> pid of its relay."""
        found = processes(self.marker(), "traincheck-rela")
        owners = {int(env["TRAINCHECK_OWNER_PID"]): pid for pid, env in found.items()}
        return owners

    def relay_of(self, rank: int) -> int:
        return harness.wait_until(
            lambda: self.relays().get(self.rank_pid(rank)), f"the relay of rank {rank}"
        )

    def workers_of(self, rank: int) -> list:
        pid = self.rank_pid(rank)
        children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text()
        return [int(child) for child in children.split()]

    def log(self) -> str:
        return (self.folder / "training.log").read_text(errors="replace")

    # Ending it.

    def wait_training(self) -> int:
        """Until it is over; its exit code."""
        harness.wait_until(self.training_over, "the end of the training", 240)
        # The launcher too: it may outlive traincheckctl, and ranks the launcher.
        harness.wait_until(
            lambda: all(n.startswith("traincheck") for n in self.leftovers().values()),
            "the end of the ranks",
            240,
        )
        if not self.torchrun and (self.out / "exit").exists():
            return int((self.out / "exit").read_text())
        return self.training.wait(harness.PATIENCE_S)

    def leftovers(self) -> dict:
        """Processes that are still there; pid -> name."""
        names = {}
        for pid in processes(self.marker()):
            try:
                names[pid] = pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
            except OSError:
                continue
        return names

    def close(self) -> None:
        for pid in [*processes(self.marker()), *[o.pid for o in self._others]]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        for process in [self.training, *self._others]:
            if process:
                process.wait()
        if self.daemon.alive():
            self.daemon.kill()
        if self.proxy:
            self.proxy.close()
        for path in self._mounts:
            for _ in range(50):
                if (
                    subprocess.run(["umount", path], capture_output=True).returncode
                    == 0
                ):
                    break
                time.sleep(0.1)
        shutil.rmtree(self.folder, ignore_errors=True)
