"""Fault classification of machine sensors with a compiled residual net. The batch
size doubles twice while it trains and the last batch of an epoch is smaller; the
backend is one that needs no compiler.

    python compiled_faults.py --steps 100 --backend aot_eager
"""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

FAULTS = 5


def readings(count, seed, sensors=24):
    """Twenty-four correlated sensors; a fault shifts and couples a few of them."""
    generator = torch.Generator().manual_seed(4)
    mixing = torch.randn(6, sensors, generator=generator) / 6**0.5
    shift = 1.2 * torch.randn(FAULTS, sensors, generator=generator)
    shift *= torch.rand(FAULTS, sensors, generator=generator) < 0.3
    generator.manual_seed(seed)
    state = torch.randn(count, 6, generator=generator)
    fault = torch.randint(0, FAULTS, (count,), generator=generator)
    noise = 0.3 * torch.randn(count, sensors, generator=generator)
    return state @ mixing + shift[fault] * (1 + state[:, :1].abs()) + noise, fault


class ResidualUnit(nn.Module):
    def __init__(self, width, expansion=2):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, expansion * width)
        self.down = nn.Linear(expansion * width, width)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


class FaultNet(nn.Module):
    def __init__(self, sensors, width=48, units=2):
        super().__init__()
        self.embed = nn.Linear(sensors, width)
        self.units = nn.ModuleList([ResidualUnit(width) for _ in range(units)])
        self.readout = nn.Linear(width, FAULTS)

    def forward(self, x):
        x = self.embed(x)
        for unit in self.units:
            x = unit(x)
        return self.readout(x.tanh())


def growing_batches(dataset, sizes, epochs_each):
    """Endless batches; after some epochs the next size, the last one to the end."""
    for number, size in enumerate(sizes):
        loader = DataLoader(dataset, batch_size=size, shuffle=True)
        last = number == len(sizes) - 1
        epoch = 0
        while last or epoch < epochs_each:
            yield from loader
            epoch += 1


def score(net, x, y, criterion):
    net.eval()
    with torch.no_grad():
        logits = net(x)
    net.train()
    right = (logits.argmax(dim=1) == y).float().mean()
    return criterion(logits, y).item(), right.item()


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--steps", type=int, default=100)
    cli.add_argument("--backend", default="aot_eager")
    cli.add_argument("--sizes", type=int, nargs="+", default=[32, 64, 128])
    cli.add_argument("--lr", type=float, default=2e-3)
    args = cli.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(77)
    x, y = readings(1000, seed=1)
    x_held, y_held = readings(400, seed=2)

    net = FaultNet(x.shape[1])
    compiled = torch.compile(net, backend=args.backend, dynamic=True)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adamax(net.parameters(), lr=args.lr)

    batches = growing_batches(TensorDataset(x, y), args.sizes, epochs_each=1)
    for step, (inputs, labels) in zip(range(args.steps), batches):
        optimizer.zero_grad()
        loss = criterion(compiled(inputs), labels)
        loss.backward()
        optimizer.step()
        if step % 10 == 0 or step == args.steps - 1:
            print(f"{step:4d} [{len(inputs):3d}] loss {loss.item():.6f}", flush=True)
    held_loss, right = score(compiled, x_held, y_held, criterion)
    print(f"held-out loss {held_loss:.4f} accuracy {right:.4f}")


if __name__ == "__main__":
    main()
