"""AC-2665: the optimizer holds parameters that the model has no more.

Source: huggingface/accelerate#2665 (cause: accelerate#3256, pytorch#107843). The
optimizer is made before the model is sharded; sharding flattens the parameters of
each unit into a new one, and step and zero_grad act on the orphans. --fixed makes
the optimizer afterwards.
"""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class FlatUnit(nn.Module):
    """Holds a module's parameters as one flat parameter, as sharding needs it."""

    def __init__(self, module):
        super().__init__()
        self.module = module
        self.places = []
        pieces = []
        offset = 0
        for owner in module.modules():
            for name, parameter in list(owner._parameters.items()):
                end = offset + parameter.numel()
                self.places.append((owner, name, offset, end, parameter.shape))
                pieces.append(parameter.detach().reshape(-1))
                del owner._parameters[name]
                offset = end
        self.flat_param = nn.Parameter(torch.cat(pieces))

    def forward(self, *inputs):
        for owner, name, start, end, shape in self.places:
            setattr(owner, name, self.flat_param[start:end].view(shape))
        return self.module(*inputs)


def shard(model):
    """Wraps the layers of a sequential model, each a unit of its own."""
    return nn.Sequential(
        *(FlatUnit(m) if list(m.parameters()) else m for m in model.children())
    )


class Accelerator:
    """Prepares what a training loop needs."""

    def prepare(self, *objects):
        return tuple(
            shard(thing) if isinstance(thing, nn.Module) else thing for thing in objects
        )

    def backward(self, loss):
        loss.backward()


def make_optimizer(model):
    return torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=0.01)


def rows(count):
    x = torch.randn(count, 8)
    return TensorDataset(x, (x[:, :4].sum(1) > x[:, 4:].prod(1)).long())


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=18)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    loader = DataLoader(rows(256), batch_size=32, shuffle=True)
    model = nn.Sequential(
        nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 2)
    )
    accelerator = Accelerator()
    if options.fixed:
        model, loader = accelerator.prepare(model, loader)
        optimizer = make_optimizer(model)
    else:
        optimizer = make_optimizer(model)
        model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    begin = [parameter.detach().clone() for parameter in model.parameters()]
    step = 0
    while step < options.steps:
        for x, y in loader:
            if step == options.steps:
                break
            loss = nn.functional.cross_entropy(model(x), y)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
    if options.prove:
        moved = any(not torch.equal(a, b) for a, b in zip(begin, model.parameters()))
        print("fault shows:", "no" if moved else "yes")


if __name__ == "__main__":
    main()
