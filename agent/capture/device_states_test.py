"""Tensors that a device digests: the states name digests that come later.

The driver is one for tests, which takes this process's memory for a device's."""

import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from records_for_testing import IS_FINITE, NOT_FINITE, UNREADABLE  # noqa: E402
from records_for_testing import PRELUDE, TORCH_PRELUDE  # noqa: E402
from records_for_testing import CoreCase, Recording  # noqa: E402
from state_points_test import TRAINING  # noqa: E402

DRIVER = os.path.abspath("agent/device/libcuda_for_testing.so")

TENSORS = """
torch.manual_seed(1)
w = nn.Parameter(torch.randn(300, 7))
w.grad = torch.zeros(300, 7)
views = [torch.randn(40, 30).t(), torch.zeros(5), torch.randn(9)[3:], torch.ones(0),
         torch.randn(8, dtype=torch.complex64).conj(), torch.arange(5).bfloat16()]
numbers = [variable(t, f"t{i}") for i, t in enumerate([w, *views])]
def both():
    core.record_states(core.POINT_PRE_STEP, core.STATE_DATA | core.STATE_GRAD,
                       numbers[:1], [w])
    core.record_states(core.POINT_PRE_STEP, core.STATE_DATA, numbers[1:], views)
def record():
    both()
    with torch.no_grad():
        w.add_(1)
    both()
"""
CONTROL = """
import ctypes
driver = ctypes.CDLL("libcuda.so.1")
"""


class DeviceStatesTest(CoreCase):
    PRELUDE = TORCH_PRELUDE + TENSORS

    def with_driver(self, code, calls=0, **variables):
        return self.record(
            code, LD_PRELOAD=DRIVER, DRIVER_FOR_TESTING=str(calls), **variables
        )

    def with_error(self, code):
        """The driver fails, and one line says so."""
        recording = Recording(
            code, prelude=self.PRELUDE, LD_PRELOAD=DRIVER, DRIVER_FOR_TESTING="0"
        )
        self.assertEqual(recording.result.returncode, 0, recording.result.stderr)
        lines = recording.result.stderr.splitlines()
        self.assertEqual(len(lines), 1, lines)
        self.assertIn("CUDA error 700 CUDA_ERROR_ILLEGAL_ADDRESS", lines[0])
        return recording

    def assert_all_unreadable(self, process, count):
        states = process.joined_states()
        self.assertEqual(len(states), count)
        for _, _, content, digests in states:
            self.assertTrue(content & UNREADABLE)
            self.assertEqual(digests, ())

    def test_digests_are_those_of_the_processor(self):
        expected = self.record("record()").process.joined_states()
        self.assertEqual(len(expected), 14)
        self.assertFalse(any(state[2] & UNREADABLE for state in expected))
        for calls in 0, 9:
            with self.subTest(calls):
                process = self.with_driver("record(); core.finish_states()", calls)
                self.assertEqual(process.process.joined_states(), expected)
                self.assertTrue(process.process.of("deferred"))

    def test_a_digest_says_whether_its_content_is_finite(self):
        code = """
for value in 1.0, float("inf"), float("nan"):
    w.grad[3, 2] = value
    core.record_states(core.POINT_PRE_STEP, core.STATE_GRAD, numbers[:1], [w])
core.finish_states()
"""
        found = self.with_driver(code).process.of("deferred")
        flags = [record.digests[1] for record in found]
        self.assertEqual(flags, [IS_FINITE, NOT_FINITE, NOT_FINITE])

    def test_a_whole_training_records_the_same(self):
        self.PRELUDE = f"import torch\n{PRELUDE}core.start()\n"
        code = "import random, numpy; random.seed(1); numpy.random.seed(1)\n" + TRAINING
        expected = self.record(code).process.joined_states()
        found = self.with_driver(code, 5).process.joined_states()
        self.assertGreater(len(expected), 50)
        self.assertEqual(found, expected)

    def test_what_has_not_come_at_the_exit_is_unreadable(self):
        code = (
            CONTROL + "driver.testing_run_at_once(-1); record(); core.finish_states()"
        )
        recording = self.with_driver(code, TRAINCHECK_EXIT_WAIT="0.2")
        self.assert_all_unreadable(recording.process, 14)

    def test_a_device_that_is_behind_is_not_waited_for(self):
        code = (
            CONTROL
            + """
driver.testing_run_at_once(-1)
for i in range(68):
    core.record_states(core.POINT_PRE_STEP, core.STATE_DATA, numbers[:1], [w])
assert driver.testing_run(None, 1000) > 64
core.finish_states()
"""
        )
        states = self.with_driver(code).process.joined_states()
        unreadable = [bool(content & UNREADABLE) for _, _, content, _ in states]
        self.assertEqual(unreadable, [False] * 64 + [True] * 4)

    COPIES = """
def copied():
    found = dict(core.copies())
    return {n: c and [bytes(one) for one in c] for n, c in found.items()}
assert core.cpu_is_device()
first = core.copy_to_host([w[:3], views[0], views[2], views[4], views[5]])
second = core.copy_to_host([views[3]])
expected = [w[:3].detach().numpy().tobytes(), views[0].contiguous().numpy().tobytes(),
            views[2].numpy().tobytes(), views[4].resolve_conj().numpy().tobytes(),
            views[5].view(torch.int16).numpy().tobytes()]
with torch.no_grad():
    w.add_(1)
"""

    def test_values_are_copied_as_they_were(self):
        code = (
            CONTROL
            + "driver.testing_run_at_once(-1)\n"
            + self.COPIES.replace("expected", "assert not copied()\nexpected", 1)
            + """
assert driver.testing_run(None, 1) == 1  # a copy of the first table
assert not copied()
driver.testing_run(None, 1000)
expected[0] = w[:3].detach().numpy().tobytes()  # what the stream had left
assert copied() == {first: expected, second: [b""]}
assert not copied()
"""
        )
        self.with_driver(code)

    def test_what_is_not_copied(self):
        code = """
assert core.copy_to_host([]) == 0
assert core.copy_to_host([torch.ones(1 << 18), torch.ones(1)]) == 0  # 1 MiB and more
assert core.copy_to_host([torch.ones(2).to_sparse()]) == 0
assert core.copy_to_host(["a"]) == 0
assert core.copy_to_host([torch.ones(1 << 18)]) > 0
"""
        self.with_driver(code)
        self.with_driver("assert core.copy_to_host([w]) == 0", TRAINCHECK_GPU="0")
        self.record(
            "assert not core.cpu_is_device(); assert not core.copy_to_host([w])"
        )

    def test_copies_that_never_come(self):
        code = (
            CONTROL
            + """
driver.testing_run_at_once(-1)
number = core.copy_to_host([w])
driver.testing_fail(b"*", 700)
both()
assert core.copies() == [(number, None)]
assert core.copy_to_host([w]) == 0
"""
        )
        recording = self.with_error(code)
        self.assert_all_unreadable(recording.process, 7)

    def test_an_error_of_the_driver_is_said_once(self):
        code = (
            CONTROL
            + """
driver.testing_run_at_once(-1)
both()
driver.testing_fail(b"*", 700)
both(); both()
driver.testing_fail(b"*", 0)
both()
core.finish_states()
"""
        )
        recording = self.with_error(code)
        self.assert_all_unreadable(recording.process, 28)

    def test_a_capture_is_left_alone(self):
        code = (
            CONTROL
            + """
driver.testing_capture(None, 1)
both()
assert driver.testing_launches() == 0 and driver.testing_captures_hurt() == 0
driver.testing_capture(None, 0)
both()
core.finish_states()
"""
        )
        states = self.with_driver(code).process.joined_states()
        unreadable = [bool(content & UNREADABLE) for _, _, content, _ in states]
        self.assertEqual(unreadable, [True] * 7 + [False] * 7)

    def test_a_child_of_a_process_that_uses_a_device_reads_none(self):
        code = """
both()
pid = os.fork()
both()
core.finish_states()
if pid == 0:
    core.exit_flush()
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
both()
core.finish_states()
"""
        processes = self.with_driver(code, 3).processes
        self.assertEqual(len(processes), 2)
        child, parent = sorted(processes, key=lambda p: len(p.of("state")))
        self.assert_all_unreadable(child, 7)
        states = parent.joined_states()
        self.assertEqual(len(states), 21)
        self.assertFalse(any(state[2] & UNREADABLE for state in states))

    PERIODS = """
import time
def launch():
    core.record_states(core.POINT_PRE_STEP, core.STATE_DATA, numbers[:1], [w])
def run():
    driver.testing_run(None, 1000)
    core.copies()  # polls
driver.testing_run_at_once(-1)
for _ in range(2):  # until the clock is calibrated
    core.device_time(core.end_period())
    time.sleep(0.2)
"""

    def test_its_time_is_of_the_period_in_which_it_was_begun(self):
        code = """
launch(); launch()
both, none, one = core.end_period(), core.end_period(), launch() or core.end_period()
assert (none, one) == (both + 1, both + 2)
assert core.device_time(both - 1) == 0
assert core.device_time(both) is None and core.device_time(one) is None
run()
launch()
assert core.device_time(core.end_period()) is None
times = [core.device_time(period) for period in (both, none, one)]
assert times[0] > 0 and times[1] == 0, times
# Each takes 50 us; in ticks that is rounded.
assert abs(times[0] - 2 * times[2]) <= 1, times
assert core.device_time(one) == 0  # once
run()
assert core.device_time(core.end_period()) == times[2]
"""
        self.with_driver(CONTROL + self.PERIODS + code)

    def test_what_never_comes_takes_no_time(self):
        code = """
launch()
period = core.end_period()
driver.testing_drop()
core.finish_states()
assert core.device_time(period) == 0
"""
        self.with_driver(CONTROL + self.PERIODS + code, TRAINCHECK_EXIT_WAIT="0.2")

    def test_a_child_made_before_may_use_a_device(self):
        code = """
pid = os.fork()
both()
core.finish_states()
core.exit_flush()
if pid == 0:
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
"""
        for process in self.with_driver(code).processes:
            states = process.joined_states()
            self.assertEqual(len(states), 7)
            self.assertFalse(any(state[2] & UNREADABLE for state in states))

    def test_the_setting_switches_it_off(self):
        process = self.with_driver("record()", TRAINCHECK_GPU="0").process
        self.assertFalse(process.of("deferred"))
        self.assert_all_unreadable(process, 14)


if __name__ == "__main__":
    unittest.main()
