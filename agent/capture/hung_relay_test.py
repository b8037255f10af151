"""A relay that takes nothing for a while: names come late, but they come."""

import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from records_for_testing import CoreCase  # noqa: E402

STOP = """
import signal, time
out = os.environ['TRAINCHECK_TEST_OUT']
def relay():
    while True:
        for name in os.listdir(out):
            if name.startswith('relay.'): return int(name.split('.')[1])
        time.sleep(0.005)
def stop(): os.kill(relay(), signal.SIGSTOP)
def go_on(): os.kill(relay(), signal.SIGCONT)
class Thing: pass
f = core.wrap(lambda: None, 'm.first', 'x')
f()
core.exit_flush()
"""
# 16,000 functions of 128 bytes and a name of 80: twice what ring 0 holds.
MANY = 16000
FILL = (
    "functions = [core.wrap(lambda *a: None, f'm.{i}' + 'x' * 80, 'x')\n"
    f"             for i in range({MANY})]\n"
    "stop()\n"
    "for function in functions: function()\n"
)
NAME_SUFFIX = "x" * 80


class HungRelayTest(CoreCase):
    def assert_books_balance(self, process):
        for ring, counters in process.counters.items():
            self.assertEqual(
                counters["offered"], counters["committed"] + counters["dropped"]
            )
            self.assertEqual(counters["committed"], len(process.rings[ring]), ring)
        self.assertEqual(process.counters[0]["dropped"], 0)

    def names(self, process):
        return [process.function(begin) for begin in process.of("begin")]

    def test_all_names_come(self):
        process = self.record(
            STOP + FILL + "go_on()\n"
            "core.exit_flush()\n"
            "f()\n"
            "for function in functions: function()\n"
            "core.exit_flush()\n"
        ).process
        self.assert_books_balance(process)
        # No record has a function that is not known, or an unknown site.
        for record in process.of("begin", "end"):
            self.assertIn(record.function, process.definitions["function"])
        for record in process.of("begin"):
            self.assertIn(record.site, process.definitions["site"])
        names = self.names(process)
        every = {f"m.{i}{NAME_SUFFIX}" for i in range(MANY)}
        self.assertEqual(every - set(names), set())
        dropped = process.counters[1]["dropped"]
        self.assertGreater(dropped, 1000)
        # What was seen before the ring was full, and all of the second round.
        self.assertGreater(len(names), MANY + 2000)
        self.assertEqual(2 * (2 * MANY + 2), 2 * len(names) + dropped)
        drops = process.of("drops")
        self.assertEqual(drops[-1].dropped, dropped)

    def test_what_is_said_once_is_kept(self):
        process = self.record(
            STOP + FILL + "things = [Thing() for _ in range(500)]\n"
            "ids = [core.define_object(t, core.OBJECT_OTHER, f'path {i}')\n"
            "       for i, t in enumerate(things)]\n"
            "assert all(ids), ids\n"
            "core.define_hold(ids[0], 0, [1, 2])\n"
            "core.define_hold(ids[0], 0, list(range(1, 20001)))\n"
            "core.set_process_kind(core.PROCESS_WORKER, 3)\n"
            "go_on()\n"
            "core.exit_flush()\n"
            "functions[0](things[-1])\n"
            "core.exit_flush()\n"
        ).process
        self.assert_books_balance(process)
        objects = process.definitions["object"]
        self.assertEqual(len(objects), 500)
        paths = {process.text(o.fields[42][0]) for o in objects.values()}
        self.assertEqual(paths, {f"path {i}" for i in range(500)})
        kinds = [r.fields[68] for r in process.rings[0] if r.type == "process"]
        self.assertEqual(kinds, [[3], [2]])
        last = process.of("begin")[-1]
        self.assertIn(last.fields[1][0], objects)
        self.assert_holds(process)

    def assert_holds(self, process):
        holds = [r for r in process.rings[0] if r.type == "hold"]
        self.assertEqual(holds[0].fields[53], [1, 2])
        whole = []
        for part in holds[1:]:
            self.assertEqual(part.fields.get(58, [0]), [len(whole)])
            whole += part.fields[53]
        self.assertEqual(whole, list(range(1, 20001)))

    def test_long_lists_come_in_parts(self):
        process = self.record(
            "core.define_hold(7, 0, [1, 2])\n"
            "core.define_hold(7, 0, list(range(1, 20001)))\n"
            "core.define_replica_group(1, 'DDP', 7, [0, 1], list(range(1, 9000)))\n"
            "core.exit_flush()\n"
        ).process
        self.assert_holds(process)
        first, *more = [r for r in process.rings[0] if r.type == "replica_group"]
        self.assertEqual(first.fields[55], [0, 1])
        self.assertEqual([r.fields[58][0] for r in more], [4000, 8000])
        self.assertTrue(all(55 not in r.fields for r in more))

    def test_exit_waits_no_longer_than_it_may(self):
        for seconds in ("0.3", "0"):
            self.record(
                STOP + "stop()\n"
                "f()\n"
                "start = time.monotonic()\n"
                "core.exit_flush()\n"
                f"assert {seconds} <= time.monotonic() - start < {seconds} + 2\n"
                "go_on()\n",
                TRAINCHECK_EXIT_WAIT=seconds,
            )

    def test_threads_record_while_it_waits(self):
        process = self.record(
            STOP + "import threading\n"
            "stop()\n"
            "end = threading.Event()\n"
            "def work():\n"
            "    while not end.is_set():\n"
            "        thread = threading.Thread(target=f)\n"
            "        thread.start()\n"
            "        thread.join()\n"
            "worker = threading.Thread(target=work)\n"
            "worker.start()\n"
            "core.exit_flush()\n"
            "end.set()\n"
            "worker.join()\n"
            "go_on()\n"
            "core.exit_flush()\n",
            TRAINCHECK_EXIT_WAIT="0.5",
        ).process
        self.assert_books_balance(process)


if __name__ == "__main__":
    unittest.main()
