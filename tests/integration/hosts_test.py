"""One daemon and a job of three hosts: TLS, tokens, cuts, restarts and rotation.

A host is an address of the loopback, with a path of its own to the daemon, a spool
and a token. Two ranks of the job run on each.
"""

import json
import os
import pathlib
import signal
import socket
import ssl
import stat
import subprocess
import sys
import unittest

import harness
from fault import proxy

DAEMON = "127.0.0.5"
HOSTS = ("127.0.0.2", "127.0.0.3", "127.0.0.4")
RANKS_A_HOST = 2
EACH_HOST = "TRAINCHECK_EACH_HOST" in os.environ


def free_port() -> str:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return str(listener.getsockname()[1])


class Host:
    """Where ranks of the job run, and how they reach the daemon."""

    def __init__(self, case: "HostsCase", address: str):
        self.folder = case.folder / address
        self.folder.mkdir()
        self.token = self.folder / "token"
        self.path = proxy.Proxy(case.daemon.address, address)
        case.addCleanup(self.path.close)

    def environment(self, case: "HostsCase") -> dict:
        return case.environment(
            LD_PRELOAD=str(harness.DIST / "libtraincheck_agent.so"),
            TRAINCHECK_SERVER=self.path.address,
            TRAINCHECK_TLS_CA=str(case.certs / "ca.pem"),
            TRAINCHECK_TOKEN_FILE=str(self.token),
            TRAINCHECK_SPOOL_DIR=str(self.folder / "spool"),
            TRAINCHECK_RUN="job",
            TRAINCHECK_CHECK="builtin",
            TRAINCHECK_BUDGET="off",
        )

    def spooled(self) -> list:
        return list(self.folder.rglob("*.spool"))


class Certificates(harness.TrainingCase):
    """The command alone; no daemon."""

    def certs(self, *words):
        return harness.run_captured(
            [
                harness.DIST / "traincheckctl",
                *("-o", "json", "certs", *words),
                *("--dir", self.folder / "certs"),
            ],
            harness.others_environment(),
        )

    def text(self, name: str) -> str:
        return (self.folder / "certs" / name).read_text()

    def test_keys_are_private_and_nothing_is_replaced_by_a_second_init(self):
        done = self.certs("init", "--host", "node7,10.1.2.3,fd00::7")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(
            json.loads(done.stdout)["hosts"], ["node7", "10.1.2.3", "fd00::7"]
        )
        for name, mode in (
            ("ca.key", 0o600),
            ("server.key", 0o600),
            ("ca.pem", 0o644),
            ("server.pem", 0o644),
        ):
            path = self.folder / "certs" / name
            self.assertEqual(stat.S_IMODE(path.stat().st_mode), mode, name)
        before = self.text("ca.key")
        again = self.certs("init", "--host", "node8")
        self.assertEqual(again.returncode, 2)
        self.assertIn("certs renew", again.stderr)
        self.assertEqual(self.text("ca.key"), before)

    def test_renewal_changes_the_certificate_alone(self):
        self.certs("init", "--host", "node7")
        names = ("ca.pem", "ca.key", "server.key")
        before = [self.text(name) for name in names]
        old = self.text("server.pem")
        done = self.certs("renew", "--days", "30")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(done.stdout)["hosts"], ["node7"])
        self.assertEqual([self.text(name) for name in names], before)
        self.assertNotEqual(self.text("server.pem"), old)
        # A tool that is not ours trusts it, for its host and no other.
        verify = ["openssl", "verify", "-CAfile", self.folder / "certs/ca.pem"]
        verify += ["-purpose", "sslserver", "-x509_strict", "-verify_hostname"]
        for host, code in (("node7", 0), ("node8", 2)):
            done = harness.run_captured(
                [*verify, host, self.folder / "certs/server.pem"], dict(os.environ)
            )
            self.assertEqual(done.returncode, code, done)

    def test_names_that_are_none_are_refused(self):
        for host in ("a b", "node7:1", "IP:1.2.3.4", "x" * 300):
            done = self.certs("init", "--host", host)
            self.assertEqual(done.returncode, 2, (host, done))


class HostsCase(harness.TrainingCase):
    def setUp(self):
        super().setUp()
        self.certs = self.folder / "certs"
        self.made("certs", "init", "--dir", self.certs, "--host", self.names())
        self.daemon = harness.Daemon(
            self.folder,
            *("--tls-cert", str(self.certs / "server.pem")),
            *("--tls-key", str(self.certs / "server.key")),
            host=DAEMON,
        )
        self.daemon.client_environment = {
            "TRAINCHECK_TLS_CA": str(self.certs / "ca.pem"),
            "TRAINCHECK_TOKEN_FILE": str(self.daemon.data_dir / "admin.token"),
        }
        self.daemon.start()
        self.addCleanup(self._end_daemon, self.daemon)

    @staticmethod
    def names() -> str:
        return ",".join((DAEMON, *HOSTS))

    def made(self, *words) -> None:
        done = harness.run_captured(
            [harness.DIST / "traincheckctl", *words], harness.others_environment()
        )
        self.assertEqual(done.returncode, 0, done.stderr)

    def give_token(self, host: Host) -> str:
        """A new token for the host, in the place of its last one; its id."""
        next_token = host.folder / "next"
        made = self.daemon.ctl(
            *("token", "create", "--role", "relay", "--owner", "alice"),
            *("--ttl", "1d", "--out", str(next_token)),
        )
        os.rename(next_token, host.token)
        return made["id"]

    def start_rank(self, host: Host, script, *arguments, **extra: str):
        process = subprocess.Popen(
            [sys.executable, script, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**host.environment(self), **extra},
            start_new_session=True,
        )
        self.addCleanup(self._end_group, process)
        return process

    def shown(self) -> dict:
        """The run, empty until it is there."""
        runs = [run["id"] for run in self.daemon.ctl("runs", "list")]
        return self.daemon.ctl("runs", "show", "job") if "job" in runs else {}


class ThreeHosts(HostsCase):
    """The ranks train as fast as they can, until the test lets them err and end."""

    # One host where time is short, all in tools/long_tests.sh.
    restarted = range(len(HOSTS)) if EACH_HOST else (1,)

    def setUp(self):
        super().setUp()
        self.hosts = [Host(self, address) for address in HOSTS]
        self.tokens = [self.give_token(host) for host in self.hosts]
        self.world = len(self.hosts) * RANKS_A_HOST
        self.until = self.folder / "until"

    def start_job(self) -> list:
        port = free_port()
        return [
            self.start_rank(
                self.hosts[rank // RANKS_A_HOST],
                harness.SCRIPTS / "fleet_ddp.py",
                *("--until", str(self.until)),
                RANK=str(rank),
                LOCAL_RANK=str(rank % RANKS_A_HOST),
                WORLD_SIZE=str(self.world),
                MASTER_ADDR="127.0.0.1",
                MASTER_PORT=port,
            )
            for rank in range(self.world)
        ]

    def records(self, attempt: int) -> list:
        """Of each rank, in the order of ranks; fewer until all have come."""
        ranks = [
            (process["rank"], process["records"])
            for process in self.shown().get("processes", [])
            if process["attempt"] == attempt and process["rank"] is not None
        ]
        return [records for _, records in sorted(ranks)]

    def await_records(self, attempt: int = 0) -> None:
        """Until each rank has delivered some that it had not before."""

        def all_there():
            found = self.records(attempt)
            return found if len(found) == self.world else None

        before = harness.wait_until(all_there, f"the ranks of attempt {attempt}")

        def all_more():
            now = self.records(attempt)
            return all(b > a + 500 for a, b in zip(before, now, strict=True))

        harness.wait_until(all_more, "records of all ranks")

    def cut_off(self, host: Host) -> None:
        host.path.cut()
        harness.wait_until(host.spooled, "the spool of the host that is cut off")
        host.path.calm()

    def kill_relays(self, host: Host) -> None:
        relays = harness.relay_pids(str(host.folder))
        self.assertEqual(len(relays), RANKS_A_HOST)
        for relay in relays:
            os.kill(relay, signal.SIGKILL)

    def test_a_job_is_watched_through_cuts_delays_and_rotation(self):
        ranks = self.start_job()
        self.await_records()
        for host in self.hosts:
            self.cut_off(host)
            self.await_records()
            host.path.delay(0.3)  # each chunk, both ways
            self.await_records()
            host.path.calm()
            self.kill_relays(host)
            self.await_records()

        self.renew_certificate()
        for host in self.hosts:
            host.path.drop(reset=True)  # so that all meet the new certificate
        self.await_records()

        for host in self.hosts:
            self.give_token(host)
        for old in self.tokens:
            self.daemon.ctl("token", "revoke", old)
        self.await_records()

        self.daemon.kill()
        self.daemon.start()
        self.await_records()

        fault = self.end_job(ranks)
        shown = self.daemon.run_ended("job")
        self.assertEqual((shown["lost"], shown["dropped"]), (0, 0))
        self.check_newest(shown, 0)
        self.check_verdicts(fault)

    def test_a_job_that_loses_a_host_is_started_again(self):
        for attempt, host in enumerate(self.restarted):
            ranks = self.start_job()
            self.await_records(attempt)
            self.kill_host(self.hosts[host])
            for rank in ranks:
                rank.communicate(timeout=harness.PATIENCE_S)
                self.assertNotEqual(rank.returncode, 0)
        last = len(self.restarted)
        ranks = self.start_job()
        self.await_records(last)
        fault = self.end_job(ranks)
        shown = self.daemon.run_ended("job")
        self.assertEqual(shown["attempts"], last + 1)
        self.check_newest(shown, last)
        self.check_verdicts(fault)

    def kill_host(self, host: Host) -> None:
        """All at once, as when a machine goes down."""
        marker = str(host.folder).encode()
        for entry in pathlib.Path("/proc").glob("[0-9]*/environ"):
            try:
                if marker in entry.read_bytes():
                    os.kill(int(entry.parent.name), signal.SIGKILL)
            except OSError:
                continue

    def end_job(self, ranks: list) -> int:
        """The first faulty step."""
        self.until.touch()
        said = ""
        for rank in ranks:
            out, err = rank.communicate(timeout=2 * harness.PATIENCE_S)
            self.assertEqual(rank.returncode, 0, err)
            said += out
        return int(said.split("fault from step ")[1])

    def renew_certificate(self) -> None:
        self.made("certs", "renew", "--dir", self.certs)
        new = (self.certs / "server.pem").read_text()
        host, port = self.daemon.address.rsplit(":", 1)

        def shown():
            pem = ssl.get_server_certificate((host, int(port)))
            return pem.strip() == new.strip()

        harness.wait_until(shown, "the renewed certificate")

    def check_newest(self, shown: dict, attempt: int) -> None:
        newest = [p for p in shown["processes"] if p["attempt"] == attempt]
        ranks = sorted(p["rank"] for p in newest if p["rank"] is not None)
        self.assertEqual(ranks, list(range(self.world)))
        self.assertEqual({(p["lost"], p["dropped"]) for p in newest}, {(0, 0)})
        self.assertEqual(shown["status"], "ended")
        self.assertEqual((shown["missing"], shown["owner"]), ([], "alice"))

    def check_verdicts(self, fault: int) -> None:
        violations = self.daemon.ctl("violations", "list", "--run", "job")
        steps = [v["first_step"] for v in violations if v["first_step"] is not None]
        self.assertTrue(steps)
        self.assertGreaterEqual(min(steps), fault - 1, violations)


class WrongCredentials(HostsCase):
    """They cost the training nothing, and the records wait for right ones."""

    def train(self, host: Host) -> str:
        rank = self.start_rank(
            host, harness.SCRIPTS / "single.py", "--steps", "20", TRAINCHECK_GRACE="1"
        )
        _, err = rank.communicate(timeout=harness.PATIENCE_S)
        self.assertEqual(rank.returncode, 0, err)
        self.assertEqual(err.count("traincheckd at"), 1, err)
        self.assertTrue(harness.wait_until(host.spooled, "the spool"))
        self.assertEqual(self.daemon.ctl("runs", "list"), [])
        return err

    def deliver(self, host: Host) -> None:
        """By hand, with right credentials."""

        def sent():
            # The relay may still be there and have the file.
            done = harness.run_captured(
                [
                    harness.DIST / "traincheckctl",
                    "spool",
                    "send",
                    host.folder / "spool",
                ],
                host.environment(self),
            )
            self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
            return not host.spooled()

        harness.wait_until(sent, "the delivery")
        shown = self.daemon.run_ended("job")
        self.assertEqual((shown["lost"], shown["dropped"]), (0, 0))

    def test_another_authority(self):
        host = Host(self, HOSTS[0])
        self.give_token(host)
        ca = self.certs / "ca.pem"
        right = ca.read_text()
        other = self.folder / "other"
        self.made("certs", "init", "--dir", other, "--host", "other")
        ca.write_text((other / "ca.pem").read_text())
        self.daemon.client_environment["TRAINCHECK_TLS_CA"] = str(self.folder / "right")
        (self.folder / "right").write_text(right)
        self.assertIn("not reachable", self.train(host))
        self.assert_explained(host, "is not signed by the authority in")
        ca.write_text(right)
        self.deliver(host)

    def test_an_authority_that_is_not_there(self):
        host = Host(self, HOSTS[0])
        self.give_token(host)
        ca = self.certs / "ca.pem"
        right = ca.read_text()
        self.daemon.client_environment["TRAINCHECK_TLS_CA"] = str(self.folder / "right")
        (self.folder / "right").write_text(right)
        ca.unlink()
        self.train(host)
        ca.write_text(right)
        self.deliver(host)

    def test_a_certificate_for_another_host(self):
        self.made("certs", "renew", "--dir", self.certs, "--host", DAEMON)
        host = Host(self, HOSTS[0])
        self.give_token(host)
        pem = (self.certs / "server.pem").read_text()
        address, port = self.daemon.address.rsplit(":", 1)
        harness.wait_until(
            lambda: ssl.get_server_certificate((address, int(port))) == pem,
            "the certificate",
        )
        self.assertIn("not reachable", self.train(host))
        self.assert_explained(host, f"is not made for {HOSTS[0]}")
        self.made("certs", "renew", "--dir", self.certs, "--host", self.names())
        pem = (self.certs / "server.pem").read_text()
        harness.wait_until(
            lambda: ssl.get_server_certificate((address, int(port))) == pem,
            "the certificate",
        )
        self.deliver(host)

    def test_no_token(self):
        host = Host(self, HOSTS[0])
        self.assertIn(str(host.token), self.train(host))
        self.give_token(host)
        self.deliver(host)

    def test_a_token_that_others_may_read(self):
        host = Host(self, HOSTS[0])
        self.give_token(host)
        host.token.chmod(0o644)
        self.assertIn("mode 0644", self.train(host))
        host.token.chmod(0o600)
        self.deliver(host)

    def test_a_revoked_token(self):
        host = Host(self, HOSTS[0])
        self.daemon.ctl("token", "revoke", self.give_token(host))
        self.assertIn("does not take them", self.train(host))
        self.give_token(host)
        self.deliver(host)

    def assert_explained(self, host: Host, why: str) -> None:
        done = harness.run_captured(
            [harness.DIST / "traincheckctl", "status"], host.environment(self)
        )
        self.assertEqual(done.returncode, 4, done)
        self.assertIn(why, done.stderr)

    def test_plain_text_and_no_authority_are_explained(self):
        environment = harness.others_environment()
        ctl = [harness.DIST / "traincheckctl", "--server", self.daemon.address]
        done = harness.run_captured([*ctl, "status"], environment)
        self.assertEqual(done.returncode, 2)
        self.assertIn("TRAINCHECK_TLS_CA", done.stderr)


if __name__ == "__main__":
    unittest.main()
