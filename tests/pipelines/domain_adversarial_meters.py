"""Appliances from current waveforms, from the laboratory to meters in homes.

Training is domain adversarial (gradient reversal): labelled laboratory shards, unlabelled
ones from homes, streamed by an IterableDataset whose workers persist and share the shards
among them. Afterwards the network adapts to a third kind of meter while it predicts:
batch statistics and entropy minimisation over the scales and shifts of BatchNorm (TENT).
"""

import argparse
import itertools
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

APPLIANCES, POINTS, SHARDS, SHARD_SIZE = 6, 96, 8, 160


def waveforms(n, gen, kind):
    """One period of current. Homes: other gain and line filter; field: mains hum and offset."""
    y = torch.randint(0, APPLIANCES, (n,), generator=gen)
    table = torch.Generator().manual_seed(4)
    shared = torch.randn(1, 5, 1, generator=table)
    amplitude = shared + 0.45 * torch.randn(APPLIANCES, 5, 1, generator=table)
    phase = 2 * math.pi * torch.rand(1, 5, 1, generator=table)
    phase = phase + 0.4 * torch.randn(APPLIANCES, 5, 1, generator=table)
    t = torch.arange(POINTS) / POINTS
    order = torch.tensor([1, 3, 5, 7, 9])[:, None]
    jitter = 0.25 * torch.randn(n, 5, 1, generator=gen)
    waves = torch.sin(2 * math.pi * order * t + phase[y] + jitter)
    x = (amplitude[y] / order.sqrt() * waves).sum(1)
    x = x + 0.5 * torch.randn(n, POINTS, generator=gen)
    if kind != "lab":
        x = F.avg_pool1d(F.pad(x, (2, 2), mode="circular"), 5, 1) * 0.7 + 0.1
    if kind == "field":
        x = 2.5 * x + 0.8 * torch.sin(2 * math.pi * 2 * t) - 1.5
    return x[:, None], y


class Shards(IterableDataset):
    """Goes through its shards once an epoch, samples shuffled within a shard."""

    def __init__(self, kind, seed):
        self.kind, self.seed, self.epoch = kind, seed, 0

    def __iter__(self):
        info = get_worker_info()
        worker, workers = (info.id, info.num_workers) if info else (0, 1)
        # lives on in a persistent worker, so every worker counts the epochs itself
        self.epoch += 1
        order = torch.Generator().manual_seed(1000 * self.seed + self.epoch)
        shards = torch.randperm(SHARDS, generator=order).tolist()
        for shard in itertools.islice(shards, worker, None, workers):
            gen = torch.Generator().manual_seed(100 * self.seed + shard)
            x, y = waveforms(SHARD_SIZE, gen, self.kind)
            for i in torch.randperm(SHARD_SIZE, generator=order).tolist():
                yield x[i], y[i]


class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, strength):
        ctx.strength = strength
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return -ctx.strength * grad, None


class Net(nn.Module):
    def __init__(self, width=24):
        super().__init__()

        def stage(i, o, stride):
            conv = nn.Conv1d(
                i, o, 7, stride, padding=3, padding_mode="circular", bias=False
            )
            return [conv, nn.BatchNorm1d(o), nn.ReLU()]

        self.features = nn.Sequential(
            *stage(1, width, 2),
            *stage(width, width, 2),
            *stage(width, 2 * width, 2),
            nn.Flatten(),
            nn.Linear(2 * width * POINTS // 8, 64),
            nn.ReLU(),
        )
        self.appliance = nn.Linear(64, APPLIANCES)
        self.domain = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, x):
        return self.appliance(self.features(x))


@torch.no_grad()
def accuracy(net, x, y):
    net.eval()
    return (net(x).argmax(1) == y).float().mean().item()


def train(net, steps):
    batch = dict(batch_size=32, num_workers=1, persistent_workers=True)
    lab = DataLoader(Shards("lab", 1), **{**batch, "num_workers": 2})
    home = DataLoader(Shards("home", 2), **batch)
    checks = {
        k: waveforms(300, torch.Generator().manual_seed(9), k) for k in ("lab", "home")
    }
    optimizer = torch.optim.SGD(
        net.parameters(), lr=0.02, momentum=0.9, nesterov=True, weight_decay=1e-3
    )
    step = 0
    while step < steps:
        net.train()
        for (xs, ys), (xt, _) in zip(lab, home):
            progress = step / steps
            strength = 2 / (1 + math.exp(-10 * progress)) - 1
            optimizer.param_groups[0]["lr"] = 0.02 / (1 + 10 * progress) ** 0.75

            # in one pass, so that BatchNorm sees both, as its running statistics do
            features = net.features(torch.cat([xs, xt]))
            loss = F.cross_entropy(net.appliance(features[: len(xs)]), ys)
            logits = net.domain(Reverse.apply(features, 0.6 * strength))
            truth = torch.cat([torch.zeros(len(xs), 1), torch.ones(len(xt), 1)])
            confusion = F.binary_cross_entropy_with_logits(logits, truth)
            optimizer.zero_grad()
            (loss + confusion).backward()
            optimizer.step()
            step += 1
            if step % 12 == 0 or step == 1:
                print(
                    f"step {step} appliance {loss.item():.4f} domain {confusion.item():.4f}"
                )
            if step == steps:
                break
        shown = [f"{k} {accuracy(net, *v):.3f}" for k, v in checks.items()]
        print("accuracy", ", ".join(shown))


def entropy(logits):
    return -(logits.softmax(1) * logits.log_softmax(1)).sum(1).mean()


def adapt(net, batches=20):
    """Predicts, then takes a step from the same forward pass; no labels needed."""
    gen = torch.Generator().manual_seed(31)
    net.requires_grad_(False)
    params = []
    for m in net.modules():
        if isinstance(m, nn.BatchNorm1d):
            m.train()
            m.track_running_stats, m.running_mean, m.running_var = False, None, None
            params += [m.weight.requires_grad_(), m.bias.requires_grad_()]
    optimizer = torch.optim.Adam(params, lr=2e-3)
    right = 0
    for i in range(1, batches + 1):
        x, y = waveforms(64, gen, "field")
        logits = net(x)
        right += (logits.argmax(1) == y).sum().item()
        loss = entropy(logits)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if i % 5 == 0:
            print(
                f"adapting {i} entropy {loss.item():.4f} accuracy {right / (64 * i):.3f}"
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=160)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(3)
    model = Net()
    train(model, args.steps)
    field = waveforms(300, torch.Generator().manual_seed(30), "field")
    print(f"field without adaptation {accuracy(model, *field):.3f}")
    adapt(model)
