"""Threads that come and go, and more of them than there are rings."""

import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from records_for_testing import CoreCase, Recording  # noqa: E402

OVERFLOW_RING = 63
F = "import threading, time\nf = core.wrap(lambda: None, 'm.f', 'x')\n"
# Joined threads have still to give their rings back.
WAIT = "while len(os.listdir('/proc/self/task')) > 1: time.sleep(0.0005)\n"


class ThreadsTest(CoreCase):
    def assert_books_balance(self, process):
        for ring, counters in process.counters.items():
            self.assertEqual(
                counters["offered"], counters["committed"] + counters["dropped"]
            )
            self.assertEqual(counters["committed"], len(process.rings[ring]), ring)

    def dropped(self, process):
        return sum(counters["dropped"] for counters in process.counters.values())

    def test_ten_thousand_short_threads_share_few_rings(self):
        process = self.record(
            F + "f()\n"
            "for _ in range(10000):\n"
            "    thread = threading.Thread(target=f)\n"
            "    thread.start()\n"
            "    thread.join()\n"
            "core.exit_flush()\n"
        ).process
        self.assertLess(len(process.rings), 12)
        self.assertEqual(self.dropped(process), 0)
        self.assert_books_balance(process)
        begins = [process.of("begin", ring=ring) for ring in process.rings if ring != 0]
        self.assertEqual(sum(map(len, begins)), 10001)
        for calls in begins:
            # One sequence, whoever writes it.
            self.assertEqual(
                [call.call for call in calls], list(range(1, len(calls) + 1))
            )
            self.assertEqual({call.distance for call in calls}, {0})

    def test_ring_goes_on_with_a_clock(self):
        process = self.record(
            F + "f()\n"
            "for _ in range(2):\n"
            "    thread = threading.Thread(target=f)\n"
            "    thread.start()\n"
            "    thread.join()\n" + WAIT + "f()\n"
        ).process
        self.assertIn(len(process.rings), (3, 4))
        if len(process.rings) == 3:
            kinds = [record.type for record in process.rings[2]]
            self.assertEqual(kinds, ["clock", "begin", "end"] * 2)
            self.assertEqual(process.of("clock", ring=2)[1].next_call, 2)
        self.assertEqual(process.counters[2]["closed"], 1)

    def test_threads_beyond_the_rings_are_counted(self):
        recording = Recording(
            F + "f()\n"
            "started, go = threading.Barrier(101), threading.Event()\n"
            "def work():\n"
            "    f()\n"
            "    started.wait()\n"
            "    go.wait()\n"
            "    for _ in range(10): f()\n"
            "threads = [threading.Thread(target=work) for _ in range(100)]\n"
            "for thread in threads: thread.start()\n"
            "started.wait()\n"
            "core.record_mark(core.MARK_BATCH_FETCHED, 0, 0)\n"
            "go.set()\n"
            "for thread in threads: thread.join()\n"
            "core.record_mark(core.MARK_BATCH_FETCHED, 0, 1)\n"
            "core.exit_flush()\n"
        )
        self.assertEqual(recording.result.returncode, 0, recording.result.stderr)
        (line,) = recording.result.stderr.splitlines()
        self.assertIn("more than 62 threads", line)
        process = recording.process
        self.assertEqual(len(process.rings), 64)
        self.assert_books_balance(process)
        # 39 threads found no ring: 11 calls each, and the clocks of 38.
        overflow = process.counters[OVERFLOW_RING]
        self.assertEqual(overflow["dropped"], 39 * 22 + 38)
        self.assertEqual(self.dropped(process), overflow["dropped"])
        clock, *drops = process.rings[OVERFLOW_RING]
        self.assertEqual({record.type for record in drops}, {"drops"})
        self.assertEqual(clock.type, "clock")
        said = [record.dropped for record in drops]
        self.assertEqual(said, sorted(set(said)))
        # At the marks: before and after the calls of all.
        self.assertIn(39 * 2 + 38, said)
        self.assertEqual(said[-1], overflow["dropped"])

    def test_rings_free_again_after_too_many_threads(self):
        recording = Recording(
            F + "f()\n"
            "def wave(number):\n"
            "    all = threading.Barrier(number)\n"
            "    def work():\n"
            "        f()\n"
            "        all.wait()\n"
            "    threads = [threading.Thread(target=work) for _ in range(number)]\n"
            "    for thread in threads: thread.start()\n"
            "    for thread in threads: thread.join()\n"
            "    " + WAIT + "wave(80)\n"
            "for _ in range(5): wave(30)\n"
            "core.exit_flush()\n"
        )
        self.assertEqual(recording.result.returncode, 0, recording.result.stderr)
        overflow = recording.process.counters[OVERFLOW_RING]
        self.assertEqual(overflow["dropped"], 19 * 2 + 18)
        self.assertEqual(self.dropped(recording.process), overflow["dropped"])


if __name__ == "__main__":
    unittest.main()
