"""A rank, its workers or its threads meet something."""

import os
import signal
import time

from faults.base import KILLED_RANK, NOTHING, Cost, Fault


class RankKilled(Fault):
    name = "rank-kill"
    what = "kill -9 of one rank"
    cost = KILLED_RANK

    def strike(self, s):
        os.kill(s.rank_pid(self.rank(s)), signal.SIGKILL)


class RankTerminated(Fault):
    name = "rank-term"
    what = "SIGTERM to one rank"
    cost = KILLED_RANK

    def strike(self, s):
        os.kill(s.rank_pid(self.rank(s)), signal.SIGTERM)


class RankSegfaults(Fault):
    name = "rank-segv"
    what = "SIGSEGV to one rank"
    cost = KILLED_RANK

    def strike(self, s):
        os.kill(s.rank_pid(self.rank(s)), signal.SIGSEGV)


class AllRanksKilled(Fault):
    name = "rank-kill-all"
    what = "kill -9 of all ranks at once"
    cost = KILLED_RANK

    def strike(self, s):
        for rank in range(s.ranks):
            os.kill(s.rank_pid(rank), signal.SIGKILL)


class RankKilledAtStart(Fault):
    name = "rank-kill-start"
    what = "kill -9 of a rank in its first moments"
    cost = Cost(dies=True, records="unknown", verdicts="unknown", stored=False)
    first, last = 0, 0

    def strike(self, s):
        rank = self.rank(s)
        deadline = time.monotonic() + 60
        while not (s.out / f"pid.{rank}").exists() and time.monotonic() < deadline:
            time.sleep(0.005)
        time.sleep(self.draw.uniform(0, 0.5))
        os.kill(s.rank_pid(rank), signal.SIGKILL)


class RankStopped(Fault):
    name = "rank-stop"
    what = "SIGSTOP of one rank for up to 3 s"

    def strike(self, s):
        pid = s.rank_pid(self.rank(s))
        os.kill(pid, signal.SIGSTOP)
        time.sleep(self.draw.uniform(0.3, 3))
        os.kill(pid, signal.SIGCONT)


class RankStoppedLong(Fault):
    name = "rank-hang"
    what = "SIGSTOP of one rank for longer than --lost-after"
    cost = NOTHING

    def strike(self, s):
        pid = s.rank_pid(self.rank(s))
        os.kill(pid, signal.SIGSTOP)
        time.sleep(10)
        os.kill(pid, signal.SIGCONT)


class _WithWorkers(Fault):
    def prepare(self, s):
        s.train_options.append("--workers=2")


class WorkerKilled(_WithWorkers):
    name = "worker-kill"
    what = "kill -9 of a DataLoader worker"
    cost = KILLED_RANK

    def strike(self, s):
        os.kill(self.draw.choice(s.workers_of(self.rank(s))), signal.SIGKILL)


class WorkerStopped(_WithWorkers):
    name = "worker-stop"
    what = "SIGSTOP of a DataLoader worker for up to 3 s"

    def strike(self, s):
        worker = self.draw.choice(s.workers_of(self.rank(s)))
        os.kill(worker, signal.SIGSTOP)
        time.sleep(self.draw.uniform(0.3, 3))
        os.kill(worker, signal.SIGCONT)


class ElasticRestart(Fault):
    name = "elastic-restart"
    what = "kill -9 of a rank under torchrun --max-restarts 1"
    # The second attempt trains to its end: nothing of it may be missing.
    cost = Cost(verdicts="unknown", dies=True)
    exit_code = 0
    last = 20

    def prepare(self, s):
        s.torchrun = True

    def strike(self, s):
        os.kill(s.rank_pid(self.rank(s)), signal.SIGKILL)


class LauncherKilled(Fault):
    name = "launcher-kill"
    what = "kill -9 of the launcher; its ranks go on"
    exit_code = 128 + signal.SIGKILL

    def strike(self, s):
        pid = s.rank_pid(0)
        with open(f"/proc/{pid}/stat") as stat:
            launcher = int(stat.read().rsplit(")", 1)[1].split()[1])
        os.kill(launcher, signal.SIGKILL)


class ThreadStorm(Fault):
    name = "thread-storm"
    what = "200 threads record at once in each rank"
    cost = Cost(records="counted", verdicts="unknown")

    def prepare(self, s):
        s.train_options.append("--threads=200")


class FewDescriptors(Fault):
    name = "rank-few-descriptors"
    what = "ranks and relays may open 48 files"
    cost = Cost(records="unknown", verdicts="unknown", stored=False, spool=True)

    def prepare(self, s):
        s.launcher_options += ["--nofile", "48"]
