"""Children of a training, of every kind: each with its own books, all there."""

import json
import os
import signal
import time
import unittest

import agent_test
import delivery_test
import harness

CHILDREN = harness.SCRIPTS / "children.py"


class ProcessesCase(delivery_test.Books):
    daemon_options = ("--lost-after", "60")
    quick_programs = False

    unwatched: dict = {}  # losses by kind of children

    def losses_of(self, kind: str) -> list:
        """As without us. They do not depend on how children are started."""
        if kind not in self.unwatched:
            plain = self.plain(CHILDREN, kind)
            self.assertEqual(plain.returncode, 0, plain.stderr)
            self.unwatched[kind] = plain.stdout.splitlines()[:-1]
        return self.unwatched[kind]

    def record(self, *arguments: str) -> tuple[dict, dict]:
        """Runs children.py with and without us; (processes by pid, its pids)."""
        self.start_daemon()
        done = self.monitored(CHILDREN, *arguments, options=("--run", "r", "--collect"))
        self.assertEqual(done.returncode, 0, done.stderr)
        *losses, pids = done.stdout.splitlines()
        self.assertEqual(losses, self.losses_of(arguments[0]))
        pids = json.loads(pids)
        shown = self.settled(len(pids))
        self.assert_books_balance(shown)
        self.assertEqual(
            sorted(process["pid"] for process in shown["processes"]),
            sorted(pids.values()),
        )
        return {process["pid"]: process for process in shown["processes"]}, pids

    def settled(self, count: int) -> dict:
        """The run when `count` processes have ended and all is delivered."""

        def look():
            shown = self.daemon.ctl("runs", "show", "r")
            states = [process["state"] for process in shown["processes"]]
            done = len(states) == count and "running" not in states
            return shown if done and shown["status"] != "running" else None

        return harness.wait_until(look, f"the end of {count} processes")


class Loaders(ProcessesCase):
    def check(self, method: str, persistent: bool) -> None:
        options = ["--persistent"] if persistent else []
        processes, pids = self.record("loader", "--start-method", method, *options)
        self.assertEqual(len(pids), 1 + (2 if persistent else 4))
        for name, pid in pids.items():
            process = processes[pid]
            kind, *number = name.split()
            self.assertEqual(process["kind"], kind, name)
            self.assertEqual(process["state"], "ended", process)
            if kind == "worker":
                self.assertEqual(process["worker_id"], int(number[0]))
                # 12 rows of an epoch, in batches of 4: 3 fetches, begin and end.
                self.assertGreaterEqual(process["records"], 3 * 2)

    def test_forked(self):
        self.check("fork", False)

    def test_forked_and_kept(self):
        self.check("fork", True)

    def test_spawned(self):
        self.check("spawn", True)

    def test_from_a_fork_server(self):
        self.check("forkserver", True)


class Owners(agent_test.AgentCase):
    """A worker serves the process that trains, whoever its parent is."""

    def test_owner_of_workers(self):
        for method in ("fork", "spawn", "forkserver"):
            with self.subTest(method=method):
                done = self.run_watched(
                    CHILDREN, "loader", "--start-method", method, "--persistent"
                )
                pids = json.loads(done.stdout.splitlines()[-1])
                (main,) = self.processes(agent_test.PROCESS_MAIN, 1)
                for worker in self.processes(agent_test.PROCESS_WORKER, 2):
                    said = worker.defined("process")[-1]
                    self.assertEqual(pids[f"worker {said['worker_id']} 0"], worker.pid)
                    self.assertEqual(said["owner_pid"], pids["main"])
                for dump in self.dumps.iterdir():
                    dump.unlink()


class Children(ProcessesCase):
    def check(self, *arguments: str) -> dict:
        processes, pids = self.record(*arguments)
        for name, pid in pids.items():
            self.assertEqual(processes[pid]["kind"], "main", name)
            # 4 steps at least, each with some 20 records.
            self.assertGreater(processes[pid]["records"], 80, name)
            # Where it leaves by os._exit, its last step stays open.
            self.assertGreaterEqual(processes[pid]["last_step"], 2, name)
        return {name: processes[pid] for name, pid in pids.items()}

    def test_forked_child_that_leaves_by_os_exit(self):
        shown = self.check("forks")
        self.assertEqual(shown["main"]["state"], "ended")
        self.assertEqual(shown["child"]["state"], "lost")

    def test_grandchild(self):
        self.assertEqual(len(self.check("nested")), 3)

    def test_fork_in_a_thread(self):
        self.check("in_thread")

    def test_forks_while_other_threads_record(self):
        processes, pids = self.record("while_recording")
        self.assertEqual(len(pids), 6)

    def test_child_that_outlives_its_parent(self):
        shown = self.check("outlives")
        # It went on: 4 steps before its parent's end, 4 behind it.
        self.assertGreaterEqual(shown["child"]["last_step"], 5)

    def test_commands_record_nothing(self):
        self.assertEqual(list(self.check("commands")), ["main"])

    def test_multiprocessing(self):
        for method in ("fork", "spawn", "forkserver"):
            with self.subTest(method=method):
                shown = self.check("multiprocess", "--start-method", method)
                self.assertEqual({p["state"] for p in shown.values()}, {"ended"})
                self.daemon.kill()
                (self.folder / "data").rename(self.folder / f"data-{method}")


class RelaysKilled(delivery_test.Books):
    """Three times in one training of two ranks."""

    script = harness.PIPELINES / "mlp_ddp.py"
    arguments = ("--steps", "120", "--sleep", "0.05", "--print-digest")

    def kill_newest(self, known: set) -> None:
        """Kills a relay of each rank that is not known yet."""
        marker = str(self.folder)
        fresh = harness.wait_until(
            lambda: (
                set(harness.relay_pids(marker)) - known
                if len(set(harness.relay_pids(marker)) - known) >= 2
                else None
            ),
            "two new relays",
        )
        time.sleep(0.3)  # some steps
        for pid in fresh:
            os.kill(pid, signal.SIGKILL)
        known |= fresh

    def test_nothing_is_changed_lost_or_doubled(self):
        """A relay goes on where another one left off."""
        plain = self.plain(self.script, *self.arguments)
        self.assertEqual(plain.returncode, 0, plain.stderr)
        self.start_daemon()
        training = self.monitored_start(
            self.script, *self.arguments, options=("--run", "r", "--collect")
        )
        self.daemon.await_first_steps()
        known: set = set()
        for _ in range(3):
            self.kill_newest(known)
            self.assertIsNone(training.poll(), "the run was over too early")
        out, err = training.communicate(timeout=harness.PATIENCE_S)
        self.assertEqual(training.returncode, 0, err)
        self.assertEqual(out, plain.stdout)
        self.assertNotIn("cannot be replaced", err)
        shown = self.daemon.run_ended("r")
        self.assertEqual({p["state"] for p in shown["processes"]}, {"ended"})
        self.assert_books_balance(shown)


if __name__ == "__main__":
    unittest.main()
