"""Start of the relay, hand-over of rings, and life without it."""

import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from records_for_testing import CoreCase, Recording  # noqa: E402


class RelayTest(CoreCase):
    START = "core.wrap(lambda: None, 'm.f', 'x')()\n"

    def test_starts_where_nobody_sees_it(self):
        recording = self.record(
            "import signal\n"
            "seen = []\n"
            "signal.signal(signal.SIGCHLD, lambda *args: seen.append(args))\n"
            "signal.signal(signal.SIGUSR1, signal.SIG_IGN)\n"
            "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])\n"
            + self.START
            + "assert signal.pthread_sigmask(0, []) == {signal.SIGTERM}\n"
            "try:\n"
            "    os.waitpid(-1, os.WNOHANG)\n"
            "    raise SystemExit('there is a child')\n"
            "except ChildProcessError:\n"
            "    pass\n"
            "core.exit_flush()\n"
            "assert not seen\n",
            LD_PRELOAD="libc.so.6",
            ORDINARY="value",
        )
        (relay,) = recording.relays
        self.assertNotIn("LD_PRELOAD", relay["environment"])
        self.assertEqual(relay["environment"]["ORDINARY"], "value")
        pid = recording.process.rings[0][0].id
        self.assertEqual(relay["environment"]["TRAINCHECK_OWNER_PID"], str(pid))
        self.assertTrue(relay["session"])
        self.assertEqual(relay["stdout"], "/dev/null")
        self.assertEqual(relay["mask"], [])

    def test_inherits_no_descriptor(self):
        recording = self.record(
            "files = [os.dup(1) for _ in range(20)]\n"
            "for file in files: os.set_inheritable(file, True)\n" + self.START
        )
        self.assertEqual(recording.relays[0]["fds"][:5], [0, 1, 2, 3, 4])
        self.assertLess(max(recording.relays[0]["fds"]), 12)

    def test_absent_relay_is_one_line(self):
        recording = Recording(self.START * 3, with_relay=False)
        self.assertEqual(recording.result.returncode, 0)
        (line,) = recording.result.stderr.splitlines()
        self.assertIn("recording is off", line)
        self.assertIn("traincheck-relay", line)

    def test_exit_waits_for_a_relay_that_lags(self):
        recording = self.record(
            "import threading, time\n"
            "hold = os.path.join(os.environ['TRAINCHECK_TEST_OUT'], 'hold')\n"
            "open(hold, 'w').close()\n"
            + self.START
            + "threading.Timer(0.3, os.remove, [hold]).start()\n"
            "start = time.monotonic()\n"
            "core.exit_flush()\n"
            "assert 0.2 < time.monotonic() - start < 1.5\n"
        )
        self.assertEqual(len(recording.process.calls()), 2)

    def test_exit_waits_as_long_as_it_may(self):
        self.record(
            "import time\n"
            "hold = os.path.join(os.environ['TRAINCHECK_TEST_OUT'], 'hold')\n"
            "open(hold, 'w').close()\n" + self.START + "start = time.monotonic()\n"
            "core.exit_flush()\n"
            "assert 0.2 < time.monotonic() - start < 1.5\n",
            TRAINCHECK_EXIT_WAIT="0.25",
        )

    KILL = (
        "import json, signal, time\n"
        "out = os.environ['TRAINCHECK_TEST_OUT']\n"
        "def relay():\n"
        "    for name in os.listdir(out):\n"
        "        if name.startswith('relay.'): return int(name.split('.')[1])\n"
        "while not relay(): time.sleep(0.01)\n"
        "os.kill(relay(), signal.SIGKILL)\n"
        "while os.path.exists(f'/proc/{relay()}/fd/3'): time.sleep(0.01)\n"
    )

    def test_dead_relay_holds_nobody_up(self):
        self.record(
            self.START + self.KILL + "f = core.wrap(lambda: None, 'm.f', 'x')\n"
            "for _ in range(200000): f()\n"
            "start = time.monotonic()\n"
            "core.exit_flush()\n"
            "assert time.monotonic() - start < 1\n"
        )

    def test_full_rings_drop_and_count(self):
        process = self.record(
            "hold = os.path.join(os.environ['TRAINCHECK_TEST_OUT'], 'hold')\n"
            "open(hold, 'w').close()\n"
            "f = core.wrap(lambda: None, 'm.f', 'x')\n"
            "for _ in range(200000): f()\n"
            "os.remove(hold)\n"
            "core.exit_flush()\n"
            "f()\n"
            "core.exit_flush()\n"
        ).process
        counters = process.counters[1]
        self.assertGreater(counters["dropped"], 100000)
        self.assertEqual(
            counters["offered"], counters["committed"] + counters["dropped"]
        )
        (drops,) = process.of("drops")
        self.assertEqual(drops.dropped, counters["dropped"])
        self.assertEqual(process.calls()[-1], ("end", "m.f"))

    def test_program_that_closes_all_files_keeps_them(self):
        self.record(
            self.START + "os.closerange(3, 1024)\n"
            "mine = [os.open('/dev/null', os.O_RDONLY) for _ in range(120)]\n"
            "import threading\n"
            "f = core.wrap(lambda: None, 'm.f', 'x')\n"
            "thread = threading.Thread(target=f)\n"
            "thread.start()\n"
            "thread.join()\n"
            "core.exit_flush()\n"
            "if os.fork() == 0:\n"
            "    for fd in mine: os.fstat(fd)\n"
            "    os._exit(0)\n"
            "assert os.wait()[1] == 0\n"
        )


if __name__ == "__main__":
    unittest.main()
