"""Who a process is: its run, its attempt, its place, and who is no rank."""

import json
import os
import subprocess
import sys
import unittest

import harness

RANKS = harness.SCRIPTS / "ranks.py"


class IdentityCase(harness.TrainingCase):
    def setUp(self):
        super().setUp()
        self.start_daemon()

    def preloaded(self, **extra: str) -> dict:
        """The agent and nothing that names a run."""
        env = self.environment(
            LD_PRELOAD=str(harness.DIST / "libtraincheck_agent.so"),
            TRAINCHECK_SERVER=self.daemon.address,
            **extra,
        )
        for name in list(env):
            if name.startswith(("SLURM_", "TORCHELASTIC_", "PMIX_", "OMPI_")):
                del env[name]
        return {**env, **extra}

    def start(self, *command, **extra: str):
        return subprocess.Popen(
            [*map(str, command)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self.preloaded(**extra),
        )

    def rendezvous_port(self) -> str:
        port, lock = harness.take_port()
        self.addCleanup(lock.close)
        return str(port)

    def finish(self, *processes, code: int = 0) -> str:
        outputs = []
        for process in processes:
            outputs.append(process.communicate(timeout=5 * harness.PATIENCE_S)[0])
            self.assertEqual(process.returncode, code, outputs[-1])
        return "\n".join(outputs)

    def run_of(self, count: int = 1) -> list:
        """All runs, once they have ended."""

        def ended():
            runs = self.daemon.ctl("runs", "list")
            done = len(runs) >= count and all(r["status"] != "running" for r in runs)
            return runs if done else None

        runs = harness.wait_until(ended, f"{count} runs to end")
        self.assertEqual(len(runs), count, runs)
        return [self.daemon.ctl("runs", "show", run["id"]) for run in runs]

    def places(self, run: dict) -> list:
        return sorted(
            (p["attempt"], p["rank"]) for p in run["processes"] if p["rank"] is not None
        )

    def others(self, run: dict) -> list:
        return [p for p in run["processes"] if p["kind"] == "other"]


class Identity(IdentityCase):
    def test_ranks_that_shells_started_agree_on_one_run(self):
        # Two shells, as on two nodes: no parent in common but this test's.
        port = self.rendezvous_port()
        script = f'"{sys.executable}" "{RANKS}" --spawned-worker; true'
        shells = [
            self.start(
                *("sh", "-c", f"(sh -c '{script}'); true"),
                RANK=str(rank),
                WORLD_SIZE="2",
                MASTER_ADDR="127.0.0.1",
                MASTER_PORT=port,
            )
            for rank in (0, 1)
        ]
        self.finish(*shells)
        (run,) = self.run_of()
        self.assertEqual(self.places(run), [(0, 0), (0, 1)])
        workers = [p for p in run["processes"] if p["kind"] == "worker"]
        # Spawned, with relays of their own: they know the agreed name too.
        self.assertEqual(len(workers), 2, run["processes"])

    def test_ranks_that_nothing_in_the_environment_announces(self):
        store = f"file://{self.folder}/store"
        ranks = [
            self.start(sys.executable, RANKS, "--init", store, "--rank", str(rank))
            for rank in (0, 1)
        ]
        self.finish(*ranks)
        (run,) = self.run_of()
        self.assertEqual(self.places(run), [(0, 0), (0, 1)])

    def test_spawned_ranks_are_one_run(self):
        self.finish(
            self.start(
                sys.executable,
                harness.PIPELINES / "mlp_ddp.py",
                *("--steps", "4"),
            )
        )
        (run,) = self.run_of()
        self.assertEqual(self.places(run), [(0, 0), (0, 1)])

    def torchrun(self, *options: str, **extra: str):
        return self.start(
            *(sys.executable, "-m", "torch.distributed.run"),
            *("--nproc-per-node", "2"),
            *options,
            **extra,
        )

    def test_torchrun_without_an_id(self):
        port = self.rendezvous_port()
        options = ("--nnodes", "1", "--master-port", port, "--max-restarts", "2")
        self.finish(self.torchrun(*options, str(RANKS)))
        (run,) = self.run_of()
        self.assertEqual(self.places(run), [(0, 0), (0, 1)])

    def test_restart_by_torchrun_is_an_attempt(self):
        # Without a group: a restarted gloo may meet addresses of the ranks
        # before it, and fail once more.
        self.finish(
            self.torchrun(
                *("--standalone", "--max-restarts", "2"),
                *(str(RANKS), "--alone", "--kill-once", str(self.folder / "trained")),
            )
        )
        (run,) = self.run_of()
        self.assertEqual(self.places(run), [(0, 0), (0, 1), (1, 0), (1, 1)])
        self.assertEqual(run["attempts"], 2)
        second = [p for p in run["processes"] if p["attempt"] == 1]
        # Steps start anew.
        self.assertEqual({p["last_step"] for p in second}, {5})
        self.assertEqual(self.others(run), [])

    def test_a_rank_that_imports_for_long_is_in_its_attempt(self):
        # Without a group; rank 0 has trained before rank 1 has imported torch.
        go_on = self.folder / "go-on"
        late = (
            "import os, runpy, sys, time\n"
            f"while not os.path.exists({str(go_on)!r}): time.sleep(0.05)\n"
            f"sys.argv = [{str(RANKS)!r}, '--alone']\n"
            "runpy.run_path(sys.argv[0], run_name='__main__')\n"
        )
        place = {"WORLD_SIZE": "2", "TRAINCHECK_RUN": "late"}
        second = self.start(sys.executable, "-c", late, RANK="1", **place)
        self.finish(self.start(sys.executable, RANKS, "--alone", RANK="0", **place))
        self.run_of()
        go_on.touch()
        self.finish(second)
        harness.wait_until(lambda: len(self.run_of()[0]["processes"]) > 1, "rank 1")
        (run,) = self.run_of()
        self.assertEqual(self.places(run), [(0, 0), (0, 1)])

    def test_standalone_and_what_rank_0_starts(self):
        self.finish(self.torchrun("--standalone", str(RANKS), "--subprocess"))
        (run,) = self.run_of()
        self.assertEqual(self.places(run), [(0, 0), (0, 1)])
        # It has RANK=0 from its parent, trains, and is no rank.
        (other,) = self.others(run)
        self.assertIsNone(other["rank"])
        self.assertEqual(other["state"], "ended")
        self.assertEqual(other["reason"], "clean exit")

    def test_a_program_that_follows_by_exec_is_a_process_of_its_own(self):
        script = harness.SCRIPTS / "exec_again.py"
        self.finish(self.start(sys.executable, script, "4", "7"))
        (run,) = self.run_of()
        self.assertEqual(self.places(run), [(0, 0), (1, 0)])
        first, second = sorted(run["processes"], key=lambda p: p["attempt"])
        self.assertEqual(first["pid"], second["pid"])
        self.assertIn("another program took its place (exec)", first["reason"])
        self.assertEqual(second["reason"], "clean exit")
        self.assertEqual((first["last_step"], second["last_step"]), (2, 6))
        self.assertEqual((first["lost"], second["lost"]), (0, 0))

    def test_second_owner_of_a_rank_is_left_out_by_name(self):
        hold = str(self.folder / "hold")
        place = {"RANK": "0", "WORLD_SIZE": "2", "TRAINCHECK_RUN": "twice"}
        command = (sys.executable, RANKS, "--alone", "--hold", hold)
        first = self.start(*command, **place)

        def ranks():
            status = self.daemon.ctl("status")
            return status["runs"][0]["ranks"] if status["runs"] else None

        harness.wait_until(lambda: ranks() and ranks()[0]["pid"], "the first owner")
        second = self.start(*command, **place)
        harness.wait_until(lambda: ranks()[0]["others"], "the second owner")
        (refused,) = ranks()[0]["others"]
        self.assertEqual(ranks()[0]["pid"], first.pid)
        self.assertEqual(refused["pid"], second.pid)
        self.assertIn(f"held by pid {first.pid}", refused["reason"])
        self.assertEqual(ranks()[1]["state"], "missing")
        self.assertIn("nothing heard", ranks()[1]["reason"])
        open(hold, "w").close()
        self.finish(first, second)

    def test_interpreter_that_trains_nothing_is_no_rank(self):
        code = "import torch\nprint(torch.nn.Linear(2, 1)(torch.ones(2)).shape)\n"
        done = subprocess.run(
            [sys.executable, "-i", "-q"],
            input=code,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.preloaded(RANK="0", WORLD_SIZE="2", TRAINCHECK_RUN="i"),
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        (run,) = self.run_of()
        self.assertEqual(self.places(run), [])
        self.assertEqual(run["experiment"], "python")

    def test_a_broken_connection_is_no_attempt(self):
        hold = str(self.folder / "hold")
        process = self.start(sys.executable, RANKS, "--alone", "--hold", hold)
        stored = lambda: [r["records"] for r in self.daemon.ctl("runs", "list")]
        harness.wait_until(lambda: any(stored()), "records")
        self.daemon.kill()
        self.daemon.start()
        open(hold, "w").close()
        self.finish(process)
        (run,) = self.run_of()
        self.assertEqual(self.places(run), [(0, 0)])


class Doctor(IdentityCase):
    def doctor(self, *options: str, **extra: str) -> tuple:
        done = subprocess.run(
            [str(harness.DIST / "traincheckctl"), "--server", self.daemon.address]
            + ["-o", "json", "doctor", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment(**extra),
        )
        findings = {row["check"]: row for row in json.loads(done.stdout)}
        return done.returncode, findings

    def test_all_is_well(self):
        code, findings = self.doctor("--python", sys.executable)
        states = {check: row["state"] for check, row in findings.items()}
        for check in ("preload", "agent files", "python", "torch", "relay", "server"):
            self.assertEqual(states.get(check), "ok", findings)
        self.assertEqual(code, 0, findings)
        self.assertEqual(self.daemon.ctl("runs", "list"), [])

    def test_says_what_is_wrong(self):
        dist = self.folder / "dist"
        dist.mkdir()
        for name in ("libtraincheck_agent.so", "libtraincheck_agent_core.so"):
            os.symlink(harness.DIST / name, dist / name)
        code, findings = self.doctor(
            *("--python", "/bin/false"), TRAINCHECK_AGENT_DIR=str(dist)
        )
        self.assertEqual(code, 1)
        self.assertEqual(findings["agent files"]["state"], "fail")
        self.assertIn("traincheck-relay", findings["agent files"]["text"])
        (dist / "traincheck-relay").write_text("no program")
        (dist / "traincheck-relay").chmod(0o755)
        code, findings = self.doctor(
            *("--python", sys.executable), TRAINCHECK_AGENT_DIR=str(dist)
        )
        self.assertEqual((code, findings["relay"]["state"]), (1, "fail"), findings)
        self.daemon.kill()
        code, findings = self.doctor("--python", "/nonexistent/python")
        self.assertEqual(findings["python"]["state"], "fail")
        self.assertIn("/nonexistent/python", findings["python"]["text"])
        self.assertEqual(findings["server"]["state"], "fail")
        self.assertIn("traincheckd", findings["server"]["advice"])

    def test_says_what_a_program_with_gccs_address_sanitizer_needs(self):
        program = str(self.folder / "sanitized")
        built = subprocess.run(
            ["gcc", "-fsanitize=address", "-o", program, "-x", "c", "-"],
            input="int main() { return 0; }",
            text=True,
            stderr=subprocess.PIPE,
        )
        if built.returncode != 0:
            self.skipTest(f"gcc has no -fsanitize=address: {built.stderr}")
        code, findings = self.doctor("--python", program)
        self.assertEqual((code, findings["python"]["state"]), (1, "fail"), findings)
        setting = "ASAN_OPTIONS=verify_asan_link_order=0"
        self.assertIn(setting, findings["python"]["advice"])
        # With it the program runs, and is not an interpreter.
        name, _, value = setting.partition("=")
        code, findings = self.doctor("--python", program, **{name: value})
        self.assertNotIn("ASan", str(findings))


if __name__ == "__main__":
    unittest.main()
