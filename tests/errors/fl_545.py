"""FL-545: weight decay on normalisation layers.

Source: ServiceNow/Fast-LLM#545 (issue #542). Parameters carry a flag by which they
are sorted into groups; a refactoring lost the argument where the normalisation
layers make theirs, the flag fell back to its default, and gains and biases decay.
--fixed passes it.
"""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def make_parameter(value, weight_decay=True):
    parameter = nn.Parameter(value)
    parameter.weight_decay = weight_decay
    return parameter


class Linear(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        weight = torch.randn(outputs, inputs) / inputs**0.5
        self.weight = make_parameter(weight)
        self.bias = make_parameter(torch.zeros(outputs), weight_decay=False)

    def forward(self, x):
        return nn.functional.linear(x, self.weight, self.bias)


class Normalization(nn.Module):
    def __init__(self, width, config):
        super().__init__()
        self.weight = make_parameter(torch.ones(width), **config)
        self.bias = make_parameter(torch.zeros(width), **config)

    def forward(self, x):
        return nn.functional.layer_norm(x, x.shape[-1:], self.weight, self.bias)


class Block(nn.Module):
    def __init__(self, width, config):
        super().__init__()
        self.norm = Normalization(width, config)
        self.up = Linear(width, 2 * width)
        self.down = Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


def build(config, width=16):
    return nn.Sequential(
        Linear(9, width),
        Block(width, config),
        Block(width, config),
        Normalization(width, config),
        Linear(width, 3),
    )


def parameter_groups(model, weight_decay):
    """Matrices decay, gains and biases do not."""
    groups = {True: [], False: []}
    for parameter in model.parameters():
        groups[parameter.weight_decay].append(parameter)
    return [
        {"params": groups[True], "weight_decay": weight_decay},
        {"params": groups[False], "weight_decay": 0.0},
    ]


def flowers(count):
    x = torch.randn(count, 9)
    return TensorDataset(x, (x[:, :3] * x[:, 3:6] + x[:, 6:]).argmax(1))


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=20)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    config = {"weight_decay": False} if options.fixed else {}
    model = build(config)
    optimizer = torch.optim.AdamW(parameter_groups(model, 0.1), lr=5e-3)
    loader = DataLoader(flowers(256), batch_size=32, shuffle=True)
    step = 0
    while step < options.steps:
        for x, y in loader:
            if step == options.steps:
                break
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
    if options.prove:
        decaying = optimizer.param_groups[0]["params"]
        vectors = [parameter for parameter in decaying if parameter.dim() < 2]
        print("fault shows:", "yes" if vectors else "no")


if __name__ == "__main__":
    main()
