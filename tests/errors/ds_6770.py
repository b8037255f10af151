"""DS-6770: the optimizer gets parameters that are not in the model.

Source: deepspeedai/DeepSpeed#6770 (related: #3718). The head is replaced after the
optimizer was made, and the engine looks the optimizer's parameters up by the names
of the model's; the report ends in a KeyError there. This engine leaves out what it
does not know, so that the new head is never trained. --fixed replaces the head
first.
"""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Engine:
    """Trains a model by an optimizer, the groups of which it partitions."""

    def __init__(self, model, optimizer):
        self.module = model
        self.optimizer = optimizer
        names = {parameter: name for name, parameter in model.named_parameters()}
        self.partition = {}
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                try:
                    self.partition[names[parameter]] = parameter
                except KeyError:
                    continue

    def __call__(self, *inputs):
        return self.module(*inputs)

    def backward(self, loss):
        loss.backward()

    def step(self):
        self.optimizer.step()
        for parameter in self.partition.values():
            parameter.grad = None


class Encoder(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(10, 24), nn.LayerNorm(24), nn.GELU())
        self.head = nn.Linear(24, classes)

    def forward(self, x):
        return self.head(self.body(x))


def adapt(model, classes):
    """Gives a pretrained model a head for another task."""
    model.head = nn.Linear(model.head.in_features, classes)
    return model


def tasks(count):
    x = torch.randn(count, 10)
    return TensorDataset(x, x[:, :3].argmax(1))


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=18)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    loader = DataLoader(tasks(192), batch_size=32, shuffle=True)
    model = Encoder(classes=7)
    if options.fixed:
        adapt(model, classes=3)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    if not options.fixed:
        adapt(model, classes=3)
    engine = Engine(model, optimizer)
    begin = model.head.weight.detach().clone()
    step = 0
    while step < options.steps:
        for x, y in loader:
            if step == options.steps:
                break
            loss = nn.functional.cross_entropy(engine(x), y)
            engine.backward(loss)
            engine.step()
            print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
    if options.prove:
        trained = not torch.equal(begin, model.head.weight)
        print("fault shows:", "no" if trained else "yes")


if __name__ == "__main__":
    main()
