"""Contents that are not read again where nobody has written them."""

import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from records_for_testing import HAS_DATA, HAS_GRAD, TORCH_PRELUDE  # noqa: E402
from records_for_testing import CoreCase  # noqa: E402

PRE_STEP = 7
PROBATION, MOST_LEFT_OUT = 8, 15

# A step reads the parameter after it, and asks again before the next one.
# Each content is 1 MiB; `truth` has the digests of the bytes.
STEPS = """
torch.set_num_threads(1)  # a forked child has no other
torch.manual_seed(1)
w = torch.nn.Parameter(torch.randn(512, 512))
number = variable(w)
optimizer = torch.optim.SGD([w], lr=0.1)
def record(point):
    core.record_states(point, core.STATE_DATA | core.STATE_GRAD, [number], [w])
def step(between=lambda: None, gradient=None):
    optimizer.zero_grad()
    w.grad = torch.randn(512, 512) if gradient is None else gradient
    core.record_states(core.POINT_BACKWARD_END, core.STATE_GRAD, [number], [w])
    between()
    record(core.POINT_PRE_STEP)
    truth.append([int.from_bytes(core.digests([t]), "little") for t in (w, w.grad)])
    optimizer.step()
    record(core.POINT_POST_STEP)
truth = []
"""


class UnwrittenContentsTest(CoreCase):
    PRELUDE = TORCH_PRELUDE

    def before_steps(self, code):
        """[(flags, digests are those of the bytes: data, gradient), ...]."""
        recording = self.record(STEPS + code + "\nfor pair in truth: print(*pair)\n")
        lines = recording.result.stdout.splitlines()
        truth = [tuple(map(int, line.split())) for line in lines]
        states = [s for s in recording.process.of("state") if s.point == PRE_STEP]
        self.assertEqual(len(states), len(truth))
        return [
            (state.flags, *(a == b for a, b in zip(state.digests, digests)))
            for state, digests in zip(states, truth)
        ]

    def test_left_out_after_probation_and_read_now_and_then(self):
        rows = self.before_steps("for _ in range(40): step()")
        self.assertTrue(all(data and grad for _, data, grad in rows))
        left_out = [flags for flags, _, _ in rows]
        # There is nothing to compare the first parameter with.
        self.assertEqual(
            [flags & HAS_GRAD for flags in left_out],
            [0] * PROBATION + ([HAS_GRAD] * MOST_LEFT_OUT + [0]) * 2,
        )
        self.assertEqual(
            [flags & HAS_DATA for flags in left_out],
            [0] * (PROBATION + 1)
            + ([HAS_DATA] * MOST_LEFT_OUT + [0])
            + [HAS_DATA] * MOST_LEFT_OUT,
        )

    def test_uncounted_write_of_all_is_noticed_at_once(self):
        rows = self.before_steps(
            "for _ in range(12): step()\n"
            "for _ in range(12): step(lambda: (w.data.mul_(2), w.grad.data.div_(2)))"
        )
        self.assertTrue(all(data and grad for _, data, grad in rows))
        self.assertEqual(rows[11][0], HAS_DATA | HAS_GRAD)
        self.assertEqual([flags for flags, _, _ in rows[12:]], [0] * 12)

    def test_habit_of_uncounted_writes_is_known_before_it_matters(self):
        rows = self.before_steps(
            "def poke():\n"
            "    w.data[3, 77] = w.grad.data[5, 78] = 0.5\n"
            "for i in range(30): step(poke if i % 2 else lambda: None)"
        )
        self.assertEqual(rows, [(0, True, True)] * 30)

    def test_uncounted_write_of_few_bytes_is_noticed_within_the_bound(self):
        rows = self.before_steps(
            "for _ in range(12): step()\n"
            "w.data[3, 77] = 0.5\n"
            "for _ in range(40): step(lambda: w.data.__setitem__((3, 78), 0.5))"
        )
        wrong = [i for i, (_, data, _) in enumerate(rows) if not data]
        self.assertTrue(wrong)
        self.assertLess(max(wrong), 12 + MOST_LEFT_OUT)
        self.assertTrue(all(not flags & HAS_DATA for flags, *_ in rows[30:]))

    def test_counted_write_between_is_read(self):
        rows = self.before_steps(
            "def clip():\n"
            "    with torch.no_grad(): w.grad[0, 1] = 7; w[0, 1] = 7\n"
            "for i in range(24): step(clip if i > 11 else lambda: None)"
        )
        self.assertTrue(all(data and grad for _, data, grad in rows))
        self.assertEqual([flags for flags, _, _ in rows[12:]], [0] * 12)

    def test_gradient_of_few_rows_is_always_read(self):
        rows = self.before_steps(
            "for i in range(20):\n"
            "    rows = torch.zeros(512, 512)\n"
            "    rows[i] = 1.0\n"
            "    step(gradient=rows)"
        )
        self.assertTrue(all(not flags & HAS_GRAD for flags, *_ in rows))

    def test_another_tensor_in_its_place_is_read(self):
        rows = self.before_steps(
            "for _ in range(12): step()\n"
            "for _ in range(12): step(lambda: w.__setattr__('data', w.detach() + 1))"
        )
        self.assertTrue(all(data and grad for _, data, grad in rows))
        self.assertTrue(all(not flags & HAS_DATA for flags, *_ in rows[12:]))

    def test_forked_child_begins_anew(self):
        recording = self.record(
            STEPS + "for _ in range(12): step()\n"
            "if os.fork() == 0:\n"
            "    number = variable(w, 'child')\n"
            "    for _ in range(4): step()\n"
            "    sys.exit()\n"
            "os.wait()"
        )
        flags = sorted(
            [state.flags for state in process.of("state") if state.point == PRE_STEP]
            for process in recording.processes
        )
        self.assertEqual(flags[0], [0] * 4)
        self.assertEqual(len(flags[1]), 12)


if __name__ == "__main__":
    unittest.main()
