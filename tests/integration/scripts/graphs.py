"""Healthy trainings that replay CUDA graphs, and mistakes in them.

    python graphs.py whole|backward|scaler|two [--left-out] [--steps 12]

There is no device: torch's class gets a base that runs in a replay what was captured, in
NumPy, so that neither the hooks nor torch's versions see it. On the driver for tests, its
stream captures meanwhile.
"""

import argparse
import ctypes
import os

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

RATE = 0.05


def capture_stream(on):
    if "DRIVER_FOR_TESTING" in os.environ:
        ctypes.CDLL("libcuda.so.1").testing_capture(None, on)


class Base:
    def __new__(cls, *args, **kwargs):
        return object.__new__(cls)

    def __init__(self, *args, **kwargs):
        self.work = None

    def capture_begin(self, *args, **kwargs):
        capture_stream(1)

    def capture_end(self):
        capture_stream(0)

    def replay(self):
        self.work()


for name in ("__new__", "__init__", "capture_begin", "capture_end", "replay"):
    setattr(torch._C._CUDAGraph, name, vars(Base)[name])


class Regression:
    """A linear model, its memory and its gradients by hand."""

    def __init__(self, optimizer=torch.optim.SGD):
        torch.manual_seed(0)
        self.model = nn.Linear(4, 1)
        self.optimizer = optimizer(self.model.parameters(), lr=RATE)
        self.x, self.y = torch.zeros(8, 4), torch.zeros(8, 1)

    def loss(self):
        return nn.functional.mse_loss(self.model(self.x), self.y)

    def set_batch(self, x, y):
        self.x.copy_(x)
        self.y.copy_(y)

    def eager_step(self):
        self.optimizer.zero_grad()
        self.loss().backward()
        self.optimizer.step()

    def arrays(self, what):
        return [what(p).detach().numpy() for p in self.model.parameters()]

    def replay_backward(self, scale=1.0):
        weight, bias = self.arrays(lambda p: p)
        of_weight, of_bias = self.arrays(lambda p: p.grad)
        x, y = self.x.numpy(), self.y.numpy()
        error = 2 * (x @ weight.T + bias - y) / len(x)
        of_weight[:] = scale * error.T @ x
        of_bias[:] = scale * error.sum(0)

    def replay_step(self):
        self.replay_backward()
        for p, gradient in zip(self.arrays(lambda p: p), self.arrays(lambda p: p.grad)):
            p -= RATE * gradient


def capture(work, replayed):
    graph = torch.cuda.CUDAGraph()
    graph.work = replayed
    graph.capture_begin()
    work()
    graph.capture_end()
    return graph


def batches(steps):
    generator = np.random.default_rng(0)
    x = torch.tensor(generator.normal(size=(8 * steps, 4)), dtype=torch.float32)
    data = TensorDataset(x, x.sum(1, keepdim=True))
    return DataLoader(data, batch_size=8, shuffle=True)


def whole(options):
    training = Regression()
    for _ in range(3):
        training.eager_step()
    graph = capture(training.eager_step, training.replay_step)
    for x, y in batches(options.steps):
        training.set_batch(x, y)
        graph.replay()


def backward(options):
    training = Regression()
    for _ in range(3):
        training.eager_step()
    training.optimizer.zero_grad()
    work = lambda: training.loss().backward()
    graph = capture(work, training.replay_backward)
    for number, (x, y) in enumerate(batches(options.steps)):
        training.set_batch(x, y)
        if not (options.left_out and number > options.steps // 2):
            graph.replay()
        training.optimizer.step()


def scaler(options):
    training, scaling = Regression(), torch.amp.GradScaler("cpu", init_scale=4.0)
    training.eager_step()
    training.optimizer.zero_grad()
    work = lambda: scaling.scale(training.loss()).backward()
    graph = capture(work, lambda: training.replay_backward(scaling.get_scale()))
    for x, y in batches(options.steps):
        training.set_batch(x, y)
        graph.replay()
        scaling.unscale_(training.optimizer)
        nn.utils.clip_grad_norm_(training.model.parameters(), 10.0)
        scaling.step(training.optimizer)
        scaling.update()


def two(options):
    """An epoch of replays, whose last batch has another size, and a schedule."""
    training = Regression()
    for _ in range(3):
        training.eager_step()
    schedule = torch.optim.lr_scheduler.StepLR(training.optimizer, 10_000)
    graph = capture(training.eager_step, training.replay_step)
    for _ in range(4):
        for x, y in batches(options.steps):
            training.set_batch(x, y)
            graph.replay()
            schedule.step()
        training.eager_step()
        schedule.step()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=["whole", "backward", "scaler", "two"])
    parser.add_argument("--left-out", action="store_true")
    parser.add_argument("--steps", type=int, default=12)
    chosen = parser.parse_args()
    globals()[chosen.kind](chosen)
