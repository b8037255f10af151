"""DS-6772: the engine overwrites an attribute of the user's modules.

Source: deepspeedai/DeepSpeed#6772 (fixed by PR #6847). To tell modules apart, the
engine numbers them in an attribute `id`; the model's experts have an `id` as well,
by which the layer places them, and after initialisation tokens go to other experts
or to none. --fixed numbers them in an attribute of its own.
"""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Expert(nn.Module):
    def __init__(self, number, width):
        super().__init__()
        self.id = number
        self.net = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )

    def forward(self, tokens):
        return self.net(tokens)


class SparseLayer(nn.Module):
    def __init__(self, width, count):
        super().__init__()
        self.gate = nn.Linear(width, count)
        self.experts = nn.ModuleList(Expert(i, width) for i in range(count))
        self.processed = 0

    def forward(self, x):
        weight, chosen = self.gate(x).softmax(-1).max(-1)
        result = torch.zeros_like(x)
        self.processed = 0
        for expert in self.experts:
            rows = chosen == expert.id
            self.processed += int(rows.sum())
            result[rows] = expert(x[rows])
        return x + weight[:, None] * result


class Model(nn.Module):
    def __init__(self, count=6):
        super().__init__()
        self.inputs = nn.Linear(7, 16)
        self.sparse = SparseLayer(16, count)
        self.outputs = nn.Linear(16, 3)

    def forward(self, x):
        return self.outputs(self.sparse(torch.tanh(self.inputs(x))))


class Engine:
    """Keeps a trace of the order in which modules run."""

    def __init__(self, model, optimizer, attribute):
        self.module = model
        self.optimizer = optimizer
        self.attribute = attribute
        self.trace = []
        for number, module in enumerate(model.modules()):
            setattr(module, attribute, number)
            module.register_forward_pre_hook(self.before)

    def before(self, module, inputs):
        self.trace.append(getattr(module, self.attribute))

    def __call__(self, *inputs):
        self.trace.clear()
        return self.module(*inputs)

    def step(self, loss):
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


def table(count):
    x = torch.randn(count, 7)
    return TensorDataset(x, (x[:, 0] * x[:, 1] > 0).long() + (x[:, 2] > 0).long())


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=20)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    loader = DataLoader(table(256), batch_size=32, shuffle=True)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    engine = Engine(model, optimizer, "ds_id" if options.fixed else "id")
    step = 0
    while step < options.steps:
        for x, y in loader:
            if step == options.steps:
                break
            loss = nn.functional.cross_entropy(engine(x), y)
            engine.step(loss)
            print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
    if options.prove:
        engine(x)
        all_of_them = model.sparse.processed == len(x)
        print("fault shows:", "no" if all_of_them else "yes")


if __name__ == "__main__":
    main()
