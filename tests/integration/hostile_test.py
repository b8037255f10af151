"""Garbage, silence and wrong versions end their own stream and nothing else."""

import os
import random
import socket
import unittest

import harness


class Hostile(harness.TrainingCase):
    def test_garbage_and_silent_connections_disturb_nobody(self):
        daemon = self.start_daemon()
        host, port = daemon.address.rsplit(":", 1)
        noise = random.Random(7)
        silent = [socket.create_connection((host, int(port))) for _ in range(20)]
        for _ in range(50):
            with socket.create_connection((host, int(port))) as stream:
                try:
                    stream.sendall(noise.randbytes(noise.randint(1, 5000)))
                except OSError:
                    pass  # refused already
        # A valid HTTP/2 opening, then garbage frames.
        with socket.create_connection((host, int(port))) as stream:
            stream.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + noise.randbytes(4000))
        done = self.monitored(
            harness.SCRIPTS / "single.py",
            "--steps",
            "10",
            options=("--run", "r", "--collect"),
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        shown = daemon.run_ended("r")
        self.assertEqual(shown["status"], "ended")
        self.assertEqual(shown["lost"], 0)
        self.assertEqual(shown["quarantined_batches"], 0)
        for stream in silent:
            stream.close()
        self.assertEqual(daemon.stop(), 0)

    def test_corrupt_handover_is_refused_by_the_relay(self):
        daemon = self.start_daemon()
        done = self.monitored(
            harness.SCRIPTS / "single.py",
            "--steps",
            "10",
            "--scribble-ring",
            options=("--run", "r", "--collect"),
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        shown = daemon.run_ended("r")
        self.assertEqual(daemon.ctl("status")["runs"], [])
        self.assertGreater(shown["lost"] or 0, 0, shown)


if __name__ == "__main__":
    unittest.main()
