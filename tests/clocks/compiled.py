"""Trainings that torch.compile compiles, in whole or in part.

    compiled.py NAME ...

Prints every loss and the parameters at the end to the bit, and how often the
compiler broke a graph, why, and how many graphs it made.
"""

import sys

import torch
import torch._dynamo
import torch._dynamo.utils
from torch import nn
from torch.utils.checkpoint import checkpoint

STEPS = 4


class Net(nn.Module):
    def __init__(self, checkpointed=None):
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.rest = nn.Sequential(nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 2))
        self.checkpointed = checkpointed

    def forward(self, x):
        x = self.first(x)
        if self.checkpointed is None:
            return self.rest(x)
        return checkpoint(self.rest, x, use_reentrant=self.checkpointed)


def train(model, optimizer, forward=None, step=None):
    forward = model if forward is None else forward
    step = optimizer.step if step is None else step
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = forward(torch.randn(6, 4)).square().mean()
        loss.backward()
        step()
        print(loss.item().hex())
    for name, value in model.state_dict().items():
        print(name, value.double().sum().item().hex())


def model(backend, **options):
    net = Net()
    compiled = torch.compile(net, backend=backend, **options)
    train(net, torch.optim.SGD(net.parameters(), lr=0.1), forward=compiled)


def checkpointed(backend, reentrant, **options):
    net = Net(reentrant)
    compiled = torch.compile(net, backend=backend, **options)
    train(net, torch.optim.SGD(net.parameters(), lr=0.1), forward=compiled)


def module_in_place(backend):
    net = Net()
    net.compile(backend=backend)
    train(net, torch.optim.SGD(net.parameters(), lr=0.1))


def step(backend, kind, **options):
    net = Net()
    optimizer = kind(net.parameters(), lr=0.01)
    compiled = torch.compile(optimizer.step, backend=backend, **options)
    train(net, optimizer, step=compiled)


def step_in_a_function(backend, **options):
    net = Net()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)

    @torch.compile(backend=backend, **options)
    def update():
        optimizer.step()
        optimizer.zero_grad()

    train(net, optimizer, step=update)


def whole_step(backend):
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    @torch.compile(backend=backend)
    def work(x):
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(STEPS):
        print(work(torch.randn(6, 4)).item().hex())
    print(net.first.weight.double().sum().item().hex())


def compiled_autograd(backend):
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    torch._dynamo.config.compiled_autograd = True

    @torch.compile(backend=backend)
    def work(x):
        loss = net(x).square().mean()
        loss.backward()
        return loss

    try:
        for _ in range(STEPS):
            optimizer.zero_grad()
            print(work(torch.randn(6, 4)).item().hex())
            optimizer.step()
    finally:
        torch._dynamo.config.compiled_autograd = False
    print(net.first.weight.double().sum().item().hex())


def evaluation(backend):
    net = Net()
    compiled = torch.compile(net, backend=backend)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        compiled(torch.randn(6, 4)).mean().backward()
        optimizer.step()
        compiled.eval()
        with torch.no_grad():
            print(compiled(torch.randn(6, 4)).mean().item().hex())
        compiled.train()


SGD, ADAM = torch.optim.SGD, torch.optim.Adam
TRAININGS = {
    "model_eager": lambda: model("eager"),
    "model_full": lambda: model("eager", fullgraph=True),
    "model_aot": lambda: model("aot_eager", fullgraph=True),
    "model_inductor": lambda: model("inductor"),
    "checkpointed": lambda: checkpointed("aot_eager", False, fullgraph=True),
    "checkpointed_reentrant": lambda: checkpointed("aot_eager", True),
    "module_in_place": lambda: module_in_place("aot_eager"),
    "step_sgd": lambda: step("eager", SGD),
    "step_adam": lambda: step("aot_eager", ADAM),
    "step_full": lambda: step("eager", ADAM, fullgraph=True),
    "step_in_a_function": lambda: step_in_a_function("eager"),
    "whole_step": lambda: whole_step("eager"),
    "compiled_autograd": lambda: compiled_autograd("aot_eager"),
    "evaluation": lambda: evaluation("aot_eager"),
}


def report(name):
    counters = torch._dynamo.utils.counters
    breaks = counters["graph_break"]
    print(name, "breaks", sum(breaks.values()))
    print(name, "graphs", counters["stats"]["unique_graphs"])


def main():
    torch.set_num_threads(1)
    for name in sys.argv[1:]:
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        torch.manual_seed(0)
        try:
            TRAININGS[name]()
        except Exception as error:
            print(name, type(error).__name__)
        report(name)


if __name__ == "__main__":
    main()
