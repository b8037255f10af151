"""Life after the relay's death: another one goes on where it left off."""

import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from records_for_testing import CoreCase, Recording  # noqa: E402

# relays(): pids of those that live, oldest first; die(): kills the newest and
# waits until the socket says so; new(known): waits for one not in known.
TOOLS = """
import json, select, signal, time
out = os.environ['TRAINCHECK_TEST_OUT']
def runs(pid):
    try:
        stat = open(f'/proc/{pid}/stat').read().rpartition(')')[2].split()[0]
        return stat not in 'ZX'
    except OSError:
        return False
def relays():
    names = [n for n in os.listdir(out) if n.startswith('relay.')]
    names.sort(key=lambda n: os.stat(os.path.join(out, n)).st_mtime_ns)
    return [p for p in (int(n.split('.')[1]) for n in names) if runs(p)]
def relay():
    while not relays(): time.sleep(0.005)
    return relays()[-1]
def die():
    pid = relay()
    os.kill(pid, signal.SIGKILL)
    while runs(pid): time.sleep(0.001)
f = core.wrap(lambda: None, 'm.f', 'x')
def step():
    f()
    core.step_optimizer(1)
    core.step_end()
"""


class RestartCase(CoreCase):
    def starts(self, recording):
        """TRAINCHECK_RELAY_START of each relay."""
        return sorted(
            relay["environment"].get("TRAINCHECK_RELAY_START", "1")
            for relay in recording.relays
        )

    def assert_all_there(self, process, calls):
        """Nothing dropped, and each record in the files once and in order."""
        for ring, counters in process.counters.items():
            self.assertEqual(counters["dropped"], 0, ring)
            self.assertEqual(counters["committed"], len(process.rings[ring]), ring)
        begins = [record.call for record in process.of("begin")]
        self.assertEqual(begins, list(range(1, calls + 1)))


class RestartTest(RestartCase):
    def test_three_deaths(self):
        recording = self.record(
            TOOLS + "for _ in range(3):\n"
            "    for _ in range(10): step()\n"
            "    die()\n"
            "    for _ in range(10): step()\n"
            "relay()\n"
            "core.exit_flush()\n",
            TRAINCHECK_RELAY_START="7",  # of another process above
        )
        self.assertEqual(self.starts(recording), ["1", "2", "3", "4"])
        self.assert_all_there(recording.process, 60)
        processes = [r for r in recording.process.rings[0] if r.type == "process"]
        self.assertEqual(len(processes), 4)
        self.assertEqual(len({str(r.fields) for r in processes}), 1)

    def test_what_the_dead_one_left_is_read(self):
        recording = self.record(
            TOOLS + "hold = os.path.join(out, 'hold')\n"
            "open(hold, 'w').close()\n"
            "for _ in range(100): step()\n"
            "import threading\n"
            "thread = threading.Thread(target=f)\n"
            "thread.start()\n"
            "thread.join()\n"
            "die()\n"
            "os.remove(hold)\n"
            "f()\n"
            "core.step_optimizer(1)\n"
            "core.step_end()\n"
            "relay()\n"
            "core.exit_flush()\n"
        )
        self.assert_all_there(recording.process, 101)
        self.assertEqual(len(recording.process.of("begin", ring=2)), 1)

    def test_fourth_death_is_one_line(self):
        recording = Recording(
            TOOLS + "for _ in range(4):\n"
            "    step()\n"
            "    die()\n"
            "    step()\n"
            "for _ in range(100000): f()\n"
            "step()\n"
            "start = time.monotonic()\n"
            "core.exit_flush()\n"
            "assert time.monotonic() - start < 1\n"
            "assert not relays()\n"
        )
        self.assertEqual(recording.result.returncode, 0, recording.result.stderr)
        (line,) = recording.result.stderr.splitlines()
        self.assertIn("cannot be replaced", line)
        self.assertEqual(self.starts(recording), ["1", "2", "3", "4"])

    def test_relay_that_does_not_start_again(self):
        recording = Recording(
            TOOLS + "step()\n"
            "die()\n"
            "os.remove(os.path.join(out, 'traincheck-relay'))\n"
            "for _ in range(10): step()\n"
        )
        self.assertEqual(recording.result.returncode, 0, recording.result.stderr)
        (line,) = recording.result.stderr.splitlines()
        self.assertIn("traincheck-relay: No such file", line)

    def test_program_that_closes_our_files(self):
        recording = Recording(
            TOOLS + "step()\n"
            "relay()\n"
            "rings = [int(fd) for fd in os.listdir('/proc/self/fd')\n"
            "         if int(fd) >= 100 and 'memfd' in os.readlink(f'/proc/self/fd/{fd}')]\n"
            "assert len(rings) == 2, rings\n"
            "os.close(max(rings))\n"
            "mine = os.dup2(2, max(rings))\n"
            "die()\n"
            "for _ in range(10): step()\n"
            "relay()\n"
            "os.fstat(mine)\n"
            "core.exit_flush()\n"
        )
        self.assertEqual(recording.result.returncode, 0, recording.result.stderr)
        (line,) = recording.result.stderr.splitlines()
        self.assertIn("has closed files of traincheck", line)
        self.assertEqual(self.starts(recording), ["1", "2"])

    def test_program_that_closes_our_socket_keeps_its_relay(self):
        recording = self.record(
            TOOLS + "step()\n"
            "first = relay()\n"
            "os.closerange(3, 1024)\n"
            "for _ in range(10): step()\n"
            "assert relays() == [first]\n"
        )
        self.assertEqual(len(recording.process.of("begin")), 11)

    def test_few_descriptors_cannot_be_handed_over_again(self):
        for limit in (64, 300):
            recording = Recording(
                "import resource\n"
                f"resource.setrlimit(resource.RLIMIT_NOFILE, ({limit}, {limit}))\n"
                + TOOLS
                + "step()\n"
                "assert not [fd for fd in os.listdir('/proc/self/fd')\n"
                "            if 'memfd' in str(os.path.realpath(f'/proc/self/fd/{fd}'))]\n"
                "die()\n"
                "for _ in range(10): step()\n"
            )
            self.assertEqual(recording.result.returncode, 0, recording.result.stderr)
            (line,) = recording.result.stderr.splitlines()
            self.assertIn("files of its rings", line)
            self.assertEqual(self.starts(recording), ["1"])


class ChildrenTest(RestartCase):
    FORK = (
        "def fork(child):\n"
        "    pid = os.fork()\n"
        "    if pid == 0:\n"
        "        child()\n"
        "        core.exit_flush()\n"
        "        os._exit(3)\n"
        "    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3\n"
    )

    def test_child_of_a_process_whose_relay_died_starts_one(self):
        recording = self.record(
            TOOLS + self.FORK + "f()\n"
            "die()\n"
            "def child():\n"
            "    for _ in range(5): f()\n"
            "fork(child)\n"
        )
        self.assertEqual(self.starts(recording), ["1", "1"])
        (child,) = [p for p in recording.processes if len(p.of("begin")) == 5]
        self.assert_all_there(child, 5)

    def test_child_restarts_its_own(self):
        recording = self.record(
            TOOLS + self.FORK + "f()\n"
            "def child():\n"
            "    core.set_process_kind(core.PROCESS_WORKER, 1)\n"
            "    hooked = core.wrap(f, 'm.g', 'x', before=lambda a, k: None)\n"
            "    f()\n"
            "    for _ in range(3):\n"
            "        die()\n"
            "        time.sleep(0.02)\n"  # it looks every 10 ms at most
            "        hooked()\n"
            "        relay()\n"
            "fork(child)\n"
            "f()\n"
            "core.record_mark(core.MARK_BATCH_FETCHED, 0, 0)\n"
            "relay()\n"
            "core.exit_flush()\n"
        )
        # The parent's; three of the child; another one of the parent.
        self.assertEqual(self.starts(recording), ["1", "2", "2", "3", "4"])
        child, parent = sorted(recording.processes, key=lambda p: len(p.of("begin")))[
            ::-1
        ]
        self.assert_all_there(child, 7)
        self.assert_all_there(parent, 2)

    def test_child_leaves_its_parents_files_alone(self):
        self.record(
            TOOLS + self.FORK + "def ours():\n"
            "    fds = [int(fd) for fd in os.listdir('/proc/self/fd')]\n"
            "    links = {fd: os.path.realpath(f'/proc/self/fd/{fd}') for fd in fds}\n"
            "    return {fd: link for fd, link in links.items()\n"
            "            if 'memfd' in link or 'socket' in link}\n"
            "step()\n"
            "before = ours()\n"
            "assert len(before) == 3, before\n"
            "def child():\n"
            "    assert not ours(), ours()\n"
            "    step()\n"
            "    assert len(ours()) == 3, ours()\n"
            "fork(child)\n"
            "assert ours() == before\n"
        )


if __name__ == "__main__":
    unittest.main()
