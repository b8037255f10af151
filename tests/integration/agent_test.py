"""The whole agent in real trainings: preloaded library, core and hooks.

A relay that writes to files takes the place of the real one.
"""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import harness
import record_dump

SINGLE = harness.SCRIPTS / "single.py"
DRIFT = harness.SCRIPTS / "drift_ddp.py"
FROZEN = harness.SCRIPTS / "frozen_head_ddp.py"
COMPILED = harness.SCRIPTS / "compiled_calls.py"
CNN = harness.PIPELINES / "cnn_ddp.py"
RELAY = pathlib.Path("agent/capture/relay_for_testing.py").resolve()
LIBRARIES = ("libtraincheck_agent.so", "libtraincheck_agent_core.so")
PROCESS_MAIN, PROCESS_WORKER = 1, 2


class AgentCase(unittest.TestCase):
    python = sys.executable  # that trains

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR")))
        self.addCleanup(shutil.rmtree, self.folder)
        for library in LIBRARIES:
            shutil.copy(harness.DIST / library, self.folder)
        relay = self.folder / "traincheck-relay"
        relay.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{RELAY}"\n')
        relay.chmod(0o755)
        self.dumps = self.folder / "dumps"
        self.dumps.mkdir()

    def run_plain(self, *command, **extra):
        environment = {
            **harness.others_environment(),
            **{"OMP_NUM_THREADS": "1", "QUICK_PROGRAMS": "1"},
            **extra,
        }
        return subprocess.run(
            [str(self.python), *map(str, command)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            timeout=5 * harness.PATIENCE_S,
        )

    def run_watched(self, *command, code=0, **extra):
        done = self.run_plain(
            *command,
            LD_PRELOAD=str(self.folder / LIBRARIES[0]),
            TRAINCHECK_AGENT_DIR=str(self.folder),
            TRAINCHECK_SERVER="127.0.0.1:9",
            TRAINCHECK_TEST_OUT=str(self.dumps),
            **extra,
        )
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def processes(self, kind, count):
        """Dumps of the processes; relays may need a moment after the end."""
        for _ in range(200):
            pids = record_dump.pids(self.dumps)
            dumps = [record_dump.Dump(self.dumps, pid) for pid in pids]
            found = [dump for dump in dumps if process_kind(dump) == kind]
            if len(found) == count:
                break
            time.sleep(0.05)
        self.assertEqual(len(found), count)
        for dump in found:
            for ring in dump.rings:
                self.assertEqual(ring["dropped"], 0)
                self.assertEqual(ring["offered"], ring["committed"])
                self.assertEqual(ring["records"], ring["committed"])
        return found

    def ranks(self, count):
        found = self.processes(PROCESS_MAIN, count)
        return sorted(found, key=lambda dump: dump.of("place")[-1]["rank"])


def process_kind(dump):
    return dump.defined("process")[-1].get("process_kind")


def of_the_model(dump):
    """Definitions of parameters and buffers, not of generators and the like."""
    return [v for v in dump.defined("variable") if v["variable_kind"] in (1, 2)]


def states(dump, point):
    """The model's variables and their digests at a state point, in order."""
    names = {f"{v['root_class']}.{v['name']}" for v in of_the_model(dump)}
    return [
        (record["variable"], record["digests"])
        for record in dump.of("state")
        if record["point"] == point and record["variable"] in names
    ]


def calls(dump, name):
    return [r for r in dump.of("begin") if (r["function"] or "").endswith(name)]


def marks(dump, kind):
    return [record for record in dump.of("mark") if record["kind"] == kind]


class OneProcess(AgentCase):
    def test_same_output_and_a_record_of_everything(self):
        arguments = (SINGLE, "--steps", "20", "--workers", "2", "--print-digest")
        plain = self.run_plain(*arguments)
        watched = self.run_watched(*arguments)
        self.assertEqual(watched.stdout, plain.stdout)
        self.assertEqual(watched.stderr, plain.stderr)
        (main,) = self.processes(PROCESS_MAIN, 1)
        self.assertEqual(len(calls(main, "Adam.step")), 20)
        self.assertEqual(len(calls(main, "torch.Tensor.backward")), 20)
        self.assertEqual(len(calls(main, "__main__.Autoencoder.forward")), 20)
        self.assertEqual(len(marks(main, "step_closed")), 20)
        self.assertEqual(len(marks(main, "clean_exit")), 1)
        self.assertEqual([p["world"] for p in main.of("place")], [1])
        parameters = {
            v["name"] for v in main.defined("variable") if v["variable_kind"] == 1
        }
        self.assertEqual(
            parameters,
            {
                f"{layer}.{kind}"
                for layer in ("encode.0", "encode.1", "decode")
                for kind in ("weight", "bias")
            },
        )
        # Digests: changed by the step, the same until the next.
        before, after = states(main, "pre_step"), states(main, "post_step")
        self.assertEqual(len(after), 20 * 6)
        for number, (name, digests) in enumerate(after[:-6]):
            self.assertNotEqual(digests[0], before[number][1][0], name)
            self.assertEqual(digests[0], before[number + 6][1][0], name)
        for call in calls(main, "Adam.step"):
            self.assertRegex(call["site"], r"single\.py:\d+$")
        # 128 rows in batches of 16: a pass over the loader is 8 batches.
        self.assertEqual(len(marks(main, "batch_fetched")), 20)
        self.assertEqual(len(marks(main, "iterator_exhausted")), 2)
        workers = self.processes(PROCESS_WORKER, 6)
        for worker in workers:
            self.assertGreaterEqual(len(calls(worker, ".fetch")), 1)
            self.assertEqual(worker.defined("process")[-1]["owner_pid"], main.pid)

    def test_killed(self):
        done = self.run_watched(SINGLE, "--kill-at", "17", code=-signal.SIGKILL)
        self.assertEqual(done.stderr, "")
        (main,) = self.processes(PROCESS_MAIN, 1)
        self.assertEqual([m["value"] for m in marks(main, "step_closed")][-1], 16)
        self.assertEqual(len(calls(main, "Tensor.backward")), 18)
        self.assertEqual(marks(main, "clean_exit"), [])

    def test_endings(self):
        for option, code, clean in (
            ("--sys-exit-at", 7, True),
            ("--crash-at", 1, False),
            ("--os-exit-at", 5, False),
        ):
            with self.subTest(option):
                plain = self.run_plain(SINGLE, option, "3")
                watched = self.run_watched(SINGLE, option, "3", code=code)
                self.assertEqual(watched.stdout, plain.stdout)
                self.assertEqual(watched.stderr, plain.stderr)
                (main,) = self.processes(PROCESS_MAIN, 1)
                self.assertEqual(len(marks(main, "clean_exit")), int(clean))
                raised = option == "--crash-at"
                self.assertEqual(len(marks(main, "unclean_exit")), int(raised))
                for dump in self.dumps.iterdir():
                    dump.unlink()

    def test_threads_and_forked_child(self):
        arguments = (SINGLE, "--threads", "3", "--fork-child", "--print-digest")
        plain = self.run_plain(*arguments)
        watched = self.run_watched(*arguments)
        self.assertEqual(watched.stdout, plain.stdout)
        child, main = sorted(
            self.processes(PROCESS_MAIN, 2), key=lambda d: len(d.records)
        )
        self.assertEqual(len(calls(child, "SGD.step")), 20)
        self.assertEqual(len(calls(main, "SGD.step")), 40)
        self.assertEqual(len({c["ring"] for c in calls(main, "SGD.step")}), 2)

    def test_threads_that_train_side_by_side(self):
        # A backward replaces gradients without the interpreter's lock: who reads
        # those of another thread's crashes now and then.
        script = harness.SCRIPTS / "side_by_side.py"
        plain = self.run_plain(script)
        self.assertEqual(plain.returncode, 0, plain.stderr)
        for _ in range(2):
            watched = self.run_watched(script)
            self.assertEqual(watched.stdout, plain.stdout)
            for dump in self.dumps.iterdir():
                dump.unlink()

    def test_compiled_model(self):
        for backend in ("eager", "aot_eager"):
            with self.subTest(backend):
                arguments = (SINGLE, "--steps", "8", "--compile", backend)
                plain = self.run_plain(*arguments)
                self.assertEqual(plain.returncode, 0, plain.stderr)
                watched = self.run_watched(*arguments)
                self.assertEqual(watched.stdout, plain.stdout)
                self.assertEqual(watched.stderr, plain.stderr)
                (main,) = self.processes(PROCESS_MAIN, 1)
                self.assertEqual(len(states(main, "post_step")), 8 * 6)
                names = {v["root_class"] for v in of_the_model(main)}
                self.assertEqual(names, {"Autoencoder"})
                for dump in self.dumps.iterdir():
                    dump.unlink()

    def test_compiled_calls_of_what_is_hooked(self):
        plain = self.run_plain(COMPILED)
        self.assertEqual(plain.returncode, 0, plain.stderr)
        watched = self.run_watched(COMPILED)
        self.assertEqual(watched.stdout, plain.stdout)

    def test_spawned_workers(self):
        self.run_watched(
            SINGLE, "--steps", "4", "--workers", "1", "--start-method", "spawn"
        )
        self.processes(PROCESS_MAIN, 1)
        (worker,) = self.processes(PROCESS_WORKER, 1)
        self.assertEqual(len(marks(worker, "clean_exit")), 1)


class TwoRanks(AgentCase):
    def test_replicas(self):
        self.run_watched(CNN, "--steps", "10")
        first, second = self.ranks(2)
        for rank, dump in enumerate((first, second)):
            place = dump.of("place")[-1]
            self.assertEqual((place["rank"], place["world"]), (rank, 2))
            (group,) = dump.defined("replica_group")
            self.assertEqual(group["ranks"], [0, 1])
            self.assertEqual(group["evidence"], "DistributedDataParallel")
            self.assertEqual(len(marks(dump, "clean_exit")), 1)
            self.assertEqual(len(marks(dump, "step_closed")), 10)
            self.assertEqual(
                len(calls(dump, "DistributedDataParallel.forward")),
                10 + 2,  # two batches of evaluation
            )
        for point, equal in (
            ("wrap_end", True),
            ("forward_begin", True),
            ("backward_end", True),
            ("pre_step", True),
            ("post_step", True),
        ):
            seen = states(first, point)
            self.assertTrue(seen, point)
            self.assertEqual(seen, states(second, point), point)
        names = {name for name, _ in states(first, "forward_begin")}
        self.assertIn("SmallCNN.bn1.running_mean", names)
        self.processes(PROCESS_WORKER, 2 * 2 * 2)

    def test_launcher(self):
        self.run_watched(
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--nproc-per-node=2",
            CNN,
            "--steps=2",
            "--workers=0",
        )
        first, second = self.ranks(2)
        # The environment at first, then the group; the launcher is no rank.
        self.assertEqual([p["source"] for p in first.of("place")][-1], 2)
        self.assertEqual(second.of("place")[-1]["local_rank"], 1)

    def test_bypassed_wrapper(self):
        self.run_watched(DRIFT, "--fault-step=3", "--steps=6")
        first, second = self.ranks(2)
        mine, theirs = (states(dump, "backward_end") for dump in (first, second))
        equal = [a == b for a, b in zip(mine, theirs)]
        variables = len(equal) // 6
        self.assertTrue(all(equal[: 3 * variables]))
        self.assertFalse(any(equal[3 * variables :]))
        self.assertEqual(len(calls(first, "DistributedDataParallel.forward")), 3)
        self.assertEqual(len(calls(first, "Regressor.forward")), 6)

    def test_inverted_filter(self):
        self.run_watched(FROZEN, "--steps=3")
        first, _ = self.ranks(2)
        held = {name for hold in first.defined("hold") for name in hold["variables"]}
        self.assertEqual({name.split(".")[1] for name in held}, {"backbone"})
        with_gradient = {n for n, d in states(first, "backward_end") if d}
        self.assertEqual(with_gradient, {"Transfer.head.weight", "Transfer.head.bias"})
        before, after = states(first, "pre_step"), states(first, "post_step")
        self.assertEqual(before[0][1][:1], after[0][1])


if __name__ == "__main__":
    unittest.main()
