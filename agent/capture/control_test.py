"""Changes of plan over a real socket, and a real training under a budget."""

import json
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from records_for_testing import PRELUDE, TORCH_PRELUDE, Recording  # noqa: E402

STEP_CLOSED, PLAN_APPLIED, CAPTURE_MODE = 5, 10, 11
OFF, ALL, SKELETON = 0, 1, 2
OF_A_STEP = range(3, 11)  # state points

# step(): one of a training whose gradients are cleared first.
TRAINING = (
    "import torch\n"
    + PRELUDE
    + """
import time
torch.set_num_threads(1)
core.start()
out = os.environ['TRAINCHECK_TEST_OUT']
class Net(torch.nn.Module):
    def __init__(self, table=0, seconds=0):
        super().__init__()
        self.fc = torch.nn.Linear(8, 4)
        self.seconds = seconds
        if table:
            self.register_buffer('table', torch.zeros(table))
    def forward(self, x):
        time.sleep(self.seconds)
        return self.fc(x)
def make(**options):
    global model, optimizer
    model = Net(**options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def step():
    optimizer.zero_grad()
    model(torch.ones(2, 8)).sum().backward()
    optimizer.step()
def send(version, first_step, plan):
    text = plan if isinstance(plan, str) else __import__('json').dumps(plan)
    with open(os.path.join(out, 'unfinished'), 'w') as file:
        file.write(text)
    os.rename(os.path.join(out, 'unfinished'),
              os.path.join(out, f'plan.{version}.{first_step}'))
    while not os.path.exists(os.path.join(out, f'sent.{version}')):
        time.sleep(0.001)
"""
)


def by_step(records):
    """Records by the number of their step. The states of its end come after the
    mark that closes it."""
    steps, at = {}, 0
    for record in records:
        steps.setdefault(at, []).append(record)
        if record.type == "mark" and record.flags == STEP_CLOSED:
            at = record.value + 1
    return steps


def marks(records, kind):
    return [r for r in records if r.type == "mark" and r.flags == kind]


def points(records):
    return {r.point for r in records if r.type == "state"}


class Changes(unittest.TestCase):
    def run_program(self, code, stderr="", **variables):
        recording = Recording(code, prelude=TRAINING, **variables)
        self.assertEqual(recording.result.returncode, 0, recording.result.stderr)
        if stderr:
            (line,) = recording.result.stderr.splitlines()
            self.assertIn(stderr, line)
        else:
            self.assertEqual(recording.result.stderr, "")
        for counters in recording.process.counters.values():
            self.assertEqual(counters["dropped"], 0)
        return recording.process

    def test_holds_from_its_step_on(self):
        role = "torch.optim.optimizer.Optimizer.step"
        process = self.run_program(
            "make()\n"
            "step()\n"
            "send(3, 6, {'format': 1, 'calls': ["
            f"{{'function': '{role}', 'returns': True}}]}})\n"
            "for _ in range(9): step()\n"
        )
        records = process.rings[1]
        steps = by_step(records)
        holding = [n for n, found in steps.items() if marks(found, PLAN_APPLIED)]
        self.assertEqual(holding, [6])
        (mark,) = marks(records, PLAN_APPLIED)
        self.assertEqual(mark.value, 3)
        told = {
            n: any(23 in r.fields for r in found if r.type == "end")  # return
            for n, found in steps.items()
            if any(r.type == "end" and "step" in process.function(r) for r in found)
        }
        self.assertEqual(told, {n: n >= 6 for n in range(10)})

    def test_sampled_off_and_on_again(self):
        process = self.run_program(
            "make()\n"
            "step()\n"
            "send(1, 0, {'format': 1, 'mode': 'sampled',"
            " 'sample': {'every': 4, 'warm_up': 0}})\n"
            "for _ in range(9): step()\n"
            "send(2, 0, {'format': 1, 'mode': 'off'})\n"
            "for _ in range(9): step()\n"
            "send(3, 0, {'format': 1})\n"
            "for _ in range(3): step()\n"
        )
        records = process.rings[1]
        modes = [r.value for r in marks(records, CAPTURE_MODE)]
        self.assertEqual(modes, [SKELETON, ALL, SKELETON, ALL, SKELETON, OFF, ALL])
        self.assertEqual([r.value for r in marks(records, PLAN_APPLIED)], [1, 2, 3])
        steps = by_step(records)
        # The states of a step's end follow the mark that closes it.
        for n in (2, 3, 5, 6, 7):
            self.assertFalse(points(steps[n]) & set(OF_A_STEP) - {10}, n)
            functions = [process.function(r) for r in steps[n] if r.type == "begin"]
            for part in ("forward", "backward", "SGD.step", "zero_grad"):
                self.assertTrue(any(part in f for f in functions), (n, part))
        self.assertTrue({3, 4, 7, 8, 9} <= points(steps[4]))
        # Nothing while it is off, but for what the marks need.
        off = next(i for i, r in enumerate(records) if r.get("value") == OFF
                   and r.type == "mark" and r.flags == CAPTURE_MODE)  # fmt: skip
        self.assertEqual(records[off + 1].type, "clock")
        self.assertEqual(records[off + 2].flags, CAPTURE_MODE)
        self.assertEqual(records[off + 2].value, ALL)
        # Numbers of calls go on: a reader sees no hole that it does not know.
        self.assertEqual(
            records[off + 1].next_call,
            next(r.call for r in records[off + 2 :] if r.type == "begin"),
        )

    def test_a_bad_plan_is_one_line_and_changes_nothing(self):
        process = self.run_program(
            "make()\n"
            "step()\n"
            "send(1, 0, {'format': 1, 'mode': 'all'})\n"
            "step()\n"
            "send(2, 0, ' ' * (1 << 20) + '{}')\n"
            "for _ in range(3): step()\n",
            stderr="a change of the capture plan is refused: plan 1 is not a capture plan: mode 'all'",
        )
        self.assertEqual(marks(process.rings[1], PLAN_APPLIED), [])

    def test_off_at_the_start_is_nothing(self):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as plan:
            plan.write('{"format": 1, "mode": "off"}')
            plan.flush()
            recording = Recording(
                "make()\nfor _ in range(3): step()\n",
                prelude=TRAINING,
                TRAINCHECK_PLAN=plan.name,
            )
        self.assertEqual(recording.result.returncode, 0, recording.result.stderr)
        self.assertEqual(recording.result.stderr, "")
        self.assertEqual((recording.processes, recording.relays), ([], []))

    def test_what_the_user_wrote_wrong_switches_the_agent_off_in_plain_words(self):
        with tempfile.NamedTemporaryFile("w", suffix=".py") as script:
            script.write("import torch\n")
            script.flush()
            for variable, value, line in (
                ("BUDGET", "abc", 'TRAINCHECK_BUDGET is "abc": write a percentage of 0'
                 " to 100, or off"),
                ("PLAN", script.name, f"TRAINCHECK_PLAN: {script.name} is not a capture"
                 " plan: line 1, column 1: Expecting value; name a JSON file as"
                 " docs/capture-plan.md describes it"),
            ):  # fmt: skip
                with self.subTest(variable):
                    recording = Recording(
                        "make()\nstep()\n",
                        prelude=TRAINING,
                        **{f"TRAINCHECK_{variable}": value},
                    )
                    self.assertEqual(recording.result.returncode, 0)
                    said = "traincheck: recording is off: " + line + "\n"
                    self.assertEqual(recording.result.stderr, said)
                    self.assertEqual(recording.processes, [])


class Named(unittest.TestCase):
    def test_what_a_plan_names_is_recorded_without_full_collection(self):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as plan:
            plan.write(
                '{"format": 1, "calls": [{"function": "torch.nn.functional.dropout", "arguments": ["p"]},'
                ' {"function": "torch.relu"},'
                ' {"function": "torch.Tensor.mul"}]}'
            )
            plan.flush()
            recording = Recording(
                "from torch.nn import functional as F\n"
                "x = torch.ones(3)\n"
                "F.dropout(x, 0.25); torch.relu(x); x.mul(2); torch.sin(x)\n"
                "F.gelu(x); x.abs()\n",
                prelude=TRAINING,
                TRAINCHECK_PLAN=plan.name,
            )
        self.assertEqual(recording.result.returncode, 0, recording.result.stderr)
        process = recording.process
        names = [process.function(r) for r in process.of("begin")]
        self.assertEqual(
            sorted(name.rpartition(".")[2] for name in names),
            ["dropout", "mul", "relu"],
        )


def hash_of(name):
    """FNV-1a: whose turn it is must be the same on every rank."""
    value = 2166136261
    for byte in name.encode():
        value = (value ^ byte) * 16777619 % 2**32
    return value


class Turns(unittest.TestCase):
    def test_large_tensors_take_turns_and_the_others_are_unreadable(self):
        recording = Recording(
            "big, small = torch.ones(1 << 15), torch.ones(4)\n"
            "both = [variable(big, 'big'), variable(small, 'small')]\n"
            "for step in range(0, 24, 4):\n"
            "    core.set_capture(core.CAPTURE_ALL, 3, step)\n"
            "    core.record_states(core.POINT_PRE_STEP,"
            " core.STATE_DATA | core.STATE_GRAD, both, [big, small])\n"
            "    core.record_states(core.POINT_GRAD_CLEAR,"
            " core.STATE_GRAD, both[:1], [big])\n",
            prelude=TORCH_PRELUDE,
        )
        self.assertEqual(recording.result.returncode, 0, recording.result.stderr)
        has_data, grad_is_none, unreadable = 1, 4, 64
        states = recording.process.of("state")
        turns = [bool(r.content & has_data) for r in states[::3]]
        name = hash_of("Net.big")
        self.assertEqual(turns, [(name + s) % 3 == 0 for s in range(0, 24, 4)])
        self.assertEqual(sum(turns), 2)
        for record, turn in zip(states[::3], turns):
            self.assertEqual(bool(record.content & unreadable), not turn)
            self.assertEqual(len(record.digests), turn)
        for record in states[1::3]:
            self.assertTrue(record.content & has_data)
        # That there is no gradient costs nothing to tell.
        for record in states[2::3]:
            self.assertEqual(record.content & (grad_is_none | unreadable), grad_is_none)


class UnderBudget(unittest.TestCase):
    # A step of some 10 ms that reads 128 MB when it is recorded in full.
    PROGRAM = """
import json
make(table=16 << 20, seconds=0.01)
def share(steps):
    own, all = core.times()
    for _ in range(steps): step()
    own, all = core.times()[0] - own, core.times()[1] - all
    return 100 * own / (all - own)
step()
print(json.dumps([share(20), share(700), share(200)]))
"""

    def test_a_training_that_full_capture_slows_down(self):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as plan:
            json.dump({"format": 1, "sample": {"every": 1, "warm_up": 24}}, plan)
            plan.flush()
            recording = Recording(
                self.PROGRAM, prelude=TRAINING, TRAINCHECK_PLAN=plan.name
            )
        self.assertEqual(recording.result.returncode, 0, recording.result.stderr)
        warm_up, _, after = json.loads(recording.result.stdout)
        # Other work on the machine counts as ours; the benchmark has figures.
        self.assertLess(after, warm_up / 2)
        process = recording.process
        modes = [r.value for r in marks(process.rings[1], CAPTURE_MODE)]
        self.assertEqual(modes[0], SKELETON)
        closed = marks(process.rings[1], STEP_CLOSED)
        self.assertEqual([r.value for r in closed], list(range(len(closed))))
        for counters in process.counters.values():
            self.assertEqual(counters["dropped"], 0)
        sys.stderr.write(f"share: {warm_up:.0f}% in full, {after:.2f}% after\n")


if __name__ == "__main__":
    unittest.main()
