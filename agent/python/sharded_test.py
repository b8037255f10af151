"""Models sharded by fully_shard, compiled, or in DataParallel: names and shards."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import torch
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import CORE, HooksCase, Net, PARAMS, train_step

try:
    from torch.distributed.fsdp import fully_shard
except ImportError:
    fully_shard = None


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 6)
        self.head = nn.Linear(6, 4)

    def forward(self, x):
        return self.head(self.body(x))


NAMES = ["Two.body.weight", "Two.body.bias", "Two.head.weight", "Two.head.bias"]


def train_sharded():
    """What one rank recorded of a few steps with an evaluation between."""
    model = Two()
    fully_shard(model.body)
    fully_shard(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    CORE.closing = {"clear"}
    for step in range(3):
        optimizer.zero_grad()
        model(torch.ones(2, 4)).square().sum().backward()
        optimizer.step()
        with torch.no_grad():
            model(torch.ones(2, 4))
    optimizer.zero_grad()
    model.state_dict()
    return {
        "facts": {name: facts[3] for name, facts in CORE.facts.items()},
        "begin": CORE.states("FORWARD_BEGIN"),
        "backward": CORE.states("BACKWARD_END"),
        "pre": CORE.states("PRE_STEP"),
        "post": CORE.states("POST_STEP"),
        "end": CORE.states("STEP_END"),
        "given": [
            {key: alias for key, (_, alias) in record[2].items()}
            for record in CORE.of("checkpoint")
        ],
        "classes": sorted({row[0] for row in CORE.objects.values()}),
        "raised": [repr(error) for error in CORE.raised],
    }


def main(rank, world, store):
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=world
    )
    result = train_sharded()
    torch.distributed.destroy_process_group()
    print(json.dumps(result), flush=True)
    # The group's threads outlive it; one that still waits for the interpreter when
    # that ends aborts the process.
    os._exit(0)


@unittest.skipUnless(fully_shard, "this torch has no fully_shard")
class Sharded(HooksCase):
    def results(self, world):
        with tempfile.TemporaryDirectory() as folder:
            ranks = [
                subprocess.Popen(
                    [sys.executable, __file__, str(rank), str(world), folder + "/s"],
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                    env={**os.environ, "OMP_NUM_THREADS": "1"},
                )
                for rank in range(world)
            ]
            outputs = [rank.communicate(timeout=300) for rank in ranks]
        for rank, (_, errors) in zip(ranks, outputs):
            self.assertEqual(rank.returncode, 0, errors)
        return [json.loads(out) for out, _ in outputs]

    def test_one_and_two_ranks(self):
        for world in (1, 2):
            for result in self.results(world):
                self.check(result)

    def check(self, result):
        self.assertEqual(result["raised"], [])
        states = [f"{n}/{s}" for n in NAMES for s in ("step", "exp_avg", "exp_avg_sq")]
        # No name of FSDP's, and no parameter was replaced by its whole self.
        names = [n for n in result["facts"] if not n.startswith("generator.")]
        self.assertEqual(sorted(names), sorted(NAMES + states))
        self.assertEqual(set(result["facts"].values()), {0})
        for names in (result["begin"][0], *result["backward"], *result["pre"]):
            self.assertEqual(sorted(names), sorted(NAMES))
        for names in result["post"]:
            self.assertEqual(sorted(names), sorted(NAMES + states))
        self.assertEqual(len(result["end"]), 3)
        (given,) = result["given"]
        self.assertEqual(given, {name[4:]: name for name in NAMES})


class Wrapped(HooksCase):
    def test_compiled_model_has_the_names_of_its_original(self):
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        train_step(torch.compile(model, backend="eager"), optimizer)
        self.assertEqual(CORE.states("PRE_STEP"), [PARAMS])
        self.assertEqual([n for n in CORE.facts if "_orig_mod" in n], [])

    def test_data_parallel(self):
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        train_step(nn.DataParallel(model), optimizer)
        self.assertEqual(CORE.states("PRE_STEP"), [PARAMS])
        self.assertFalse([n for n in CORE.facts if ".module." in n])


if __name__ == "__main__":
    if len(sys.argv) == 4:
        main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
    else:
        unittest.main()
