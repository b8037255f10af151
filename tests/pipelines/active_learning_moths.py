"""Which of three lamps a moth spirals around (MLP with dropout): active learning.

In each round the labels that the net would learn most from are bought (BALD: ten passes
without gradient, in evaluation mode but for the dropout). The rows grow, so loader,
optimizer and OneCycleLR are made anew and the rate jumps up; before that the weights
are halved and half of a fresh net is added (shrink and perturb), so that they change a
lot without an optimizer, and the loss jumps. Twelve rows at first, fewer than a batch:
they are drawn with replacement. Mixup with a share for each row gives soft targets, and
the loss a floor well above zero.
"""

import argparse

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, RandomSampler, Subset, TensorDataset

LAMPS, BATCH, STEPS = 3, 48, 15


def places(count, seed):
    generator = torch.Generator().manual_seed(seed)
    lamp = torch.randint(LAMPS, (count,), generator=generator)
    radius = torch.rand(count, generator=generator).sqrt()
    angle = 5.0 * radius + lamp * 2 * torch.pi / LAMPS
    angle = angle + 0.1 * torch.randn(count, generator=generator)
    return torch.stack([radius * angle.cos(), radius * angle.sin()], 1) * 2, lamp


def new_net():
    return nn.Sequential(
        nn.Linear(2, 96), nn.SiLU(), nn.Dropout(0.15),
        nn.Linear(96, 96), nn.SiLU(), nn.Dropout(0.15),
        nn.Linear(96, LAMPS),
    )  # fmt: skip


@torch.no_grad()
def accuracy(net, place, lamp):
    net.eval()
    return (net(place).argmax(1) == lamp).float().mean().item()


def entropy(chances):
    return -(chances * (chances + 1e-9).log()).sum(-1)


@torch.no_grad()
def most_told(net, place, count):
    """The rows on whose answers the nets that dropout makes disagree most."""
    net.eval()
    for module in net.modules():
        if isinstance(module, nn.Dropout):
            module.train()
    chances = torch.stack([net(place).softmax(-1) for _ in range(10)])
    told = entropy(chances.mean(0)) - entropy(chances).mean(0)
    return (told + 0.02 * torch.rand(len(place))).topk(count).indices


@torch.no_grad()
def shrink_and_perturb(net):
    for parameter, fresh in zip(net.parameters(), new_net().parameters()):
        parameter.mul_(0.5).add_(fresh, alpha=0.5)


def fit(net, rows):
    sampler = RandomSampler(rows, replacement=True, num_samples=BATCH * STEPS)
    optimizer = torch.optim.AdamW(net.parameters(), weight_decay=0.02)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=2e-2, total_steps=STEPS, pct_start=0.2
    )
    net.train()
    for place, lamp in DataLoader(rows, BATCH, sampler=sampler):
        share = torch.distributions.Beta(0.3, 0.3).sample((len(place), 1))
        other = torch.randperm(len(place))
        target = F.one_hot(lamp, LAMPS).float()
        mixed = share * place + (1 - share) * place[other]
        loss = F.cross_entropy(net(mixed), share * target + (1 - share) * target[other])
        net.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return loss.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", "--epochs", type=int, default=4)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    place, lamp = places(600, 1)
    held_out = places(400, 2)
    everything = TensorDataset(place, lamp)
    labelled = torch.randperm(600)[:12].tolist()
    net = new_net()
    for number in range(options.rounds):
        if number:
            shrink_and_perturb(net)
            rest = torch.tensor(sorted(set(range(600)) - set(labelled)))
            labelled += rest[most_told(net, place[rest], 24)].tolist()
        loss = fit(net, Subset(everything, labelled))
        print(
            f"round {number} labelled {len(labelled)} loss {loss:.3f} "
            f"accuracy {accuracy(net, *held_out):.3f}"
        )


if __name__ == "__main__":
    main()
