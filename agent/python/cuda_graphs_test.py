"""Trainings whose step is replayed from a CUDA graph. Without a device, torch's class
is replaced by one that does when it is replayed what its test says."""

import pathlib
import sys
import unittest

import torch
from torch import nn


class Graph:
    def __init__(self, work):
        self.work = work

    def capture_begin(self):
        pass

    def capture_end(self):
        pass

    def replay(self):
        self.work()


torch.cuda.CUDAGraph = Graph  # before the hooks look at it

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import CORE, HooksCase  # noqa: E402


class CudaGraphs(HooksCase):
    def setUp(self):
        super().setUp()
        self.net = nn.Linear(3, 2)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)

    def step(self):
        self.optimizer.zero_grad()
        self.net(torch.ones(4, 3)).sum().backward()
        self.optimizer.step()

    def captured(self, work, replayed):
        graph = Graph(replayed)
        graph.capture_begin()
        work()
        graph.capture_end()
        return graph

    def limits(self):
        said = (e[2] for e in CORE.log if e[0] == "scalar")
        return [name for name in said if name == "sight:limit replays"]

    def user_steps(self):
        return [e for e in CORE.log if e[0] == "clock" and e[1] == "user"]

    def test_a_replay_of_a_step_is_a_step(self):
        replayed = []
        graph = self.captured(self.step, lambda: replayed.append(True))
        for _ in range(3):
            graph.replay()
        self.assertEqual(len(replayed), 3)
        self.assertEqual(len(self.user_steps()), 3)
        self.assertEqual(len(self.limits()), 1)

    def test_a_replay_of_a_forward_is_none(self):
        x = torch.ones(4, 3)
        graph = self.captured(lambda: self.net(x), lambda: None)
        graph.replay()
        self.assertEqual(self.user_steps(), [])
        self.assertEqual(len(self.limits()), 1)


if __name__ == "__main__":
    unittest.main()
