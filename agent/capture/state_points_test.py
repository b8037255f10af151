"""A training with core and hooks: which state is recorded where."""

import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from records_for_testing import PRELUDE, CoreCase  # noqa: E402

# StatePoint of record_format.h
CONSTRUCTION, FORWARD_BEGIN, BACKWARD_END, PRE_STEP, POST_STEP = 1, 3, 4, 7, 8
GRAD_CLEAR, STEP_END, SAVE, FETCH = 9, 10, 11, 15
NAME, ROOT_CLASS, VARIABLE, SHADOW_OF = 33, 57, 53, 90

TRAINING = """
import copy, io
torch.manual_seed(1)
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(2, 1)
    def forward(self, x):
        return self.fc(x)
model = Net()
average = copy.deepcopy(model)
optimizer = torch.optim.Adam(model.parameters(), lr=0.5)
data = torch.utils.data.TensorDataset(torch.ones(6, 2))
for (x,) in torch.utils.data.DataLoader(data, batch_size=2):
    optimizer.zero_grad()
    model(x).square().sum().backward()
    optimizer.step()
    with torch.no_grad():
        for mine, theirs in zip(average.parameters(), model.parameters()):
            mine.lerp_(theirs, 0.5)
torch.save({"model": model.state_dict(), "epoch": 1}, io.BytesIO())
"""


class StatePointsTest(CoreCase):
    PRELUDE = "import torch\n" + PRELUDE + "core.start()\n"

    def name(self, number):
        fields = self.process.definitions["variable"][number].fields
        root = self.process.text(fields[ROOT_CLASS][0])
        return f"{root}.{self.process.text(fields[NAME][0])}"

    def states(self, point):
        """name -> digests, one for each time that it was recorded."""
        found = {}
        for record in self.process.of("state"):
            if record.point == point:
                digest = record.digests[0] if record.digests else None
                found.setdefault(self.name(record.variable), []).append(digest)
        return found

    def test_training(self):
        self.process = self.record(TRAINING).process
        parameters = ["Net.fc.weight", "Net.fc.bias"]
        copies = ["Net#2.fc.weight", "Net#2.fc.bias"]
        kept = [
            f"{p}/{s}" for p in parameters for s in ("step", "exp_avg", "exp_avg_sq")
        ]

        self.assertLessEqual(set(parameters), set(self.states(CONSTRUCTION)))
        after = self.states(POST_STEP)
        self.assertEqual(sorted(after), sorted(parameters + kept))
        for name, digests in after.items():
            self.assertEqual(len(set(digests)), 3, name)
        ended = self.states(STEP_END)
        self.assertEqual(sorted(ended), sorted(parameters + copies))
        for name in parameters:
            self.assertEqual(ended[name], after[name])
        self.assertEqual(len(set(ended["Net#2.fc.weight"])), 3)
        copied = [
            v
            for v in self.process.definitions["variable"].values()
            if SHADOW_OF in v.fields
        ]
        self.assertEqual(sorted(self.name(v.id) for v in copied), sorted(copies))

        fetched = self.states(FETCH)
        self.assertEqual(len(set(fetched["DataLoader.indices"])), 3)
        self.assertIn("generator.torch.cpu", fetched)
        scalars = [self.process.text(s.name) for s in self.process.of("scalar")]
        self.assertEqual(
            [scalars.count(n) for n in ("lr", "betas[0]", "indices")], [1] * 3
        )

        saved = [e for e in self.process.of("checkpoint") if e.point == SAVE]
        keys = [self.process.text(entry.key) for entry in saved]
        self.assertEqual(keys, ["model.fc.weight", "model.fc.bias", "epoch"])
        for entry, name in zip(saved, parameters):
            self.assertEqual(self.name(entry.fields[VARIABLE][0]), name)
            self.assertEqual(entry.digest, after[name][-1])


if __name__ == "__main__":
    unittest.main()
