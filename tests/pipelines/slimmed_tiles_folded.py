"""Cracks in ceramic tiles by a net that is slimmed: channels cut out, BatchNorm folded.

First the scales of BatchNorm are drawn down by an L1 penalty whose subgradient is
added to `.grad` by hand. Then half of each layer's channels, those of small scale, are
cut: a smaller net is built, weights copied, statistics estimated anew, and trained on
by an optimizer of its own. Last BatchNorm is folded into the convolutions and answers
compared.

    python slimmed_tiles_folded.py --epochs 7
"""

import argparse

import torch
from torch import nn
import torch.nn.functional as F

SIDE, KINDS = 24, 4  # sound, crack, chip at an edge, blister


def tiles(count, generator):
    def uniform(low, high):
        return low + (high - low) * torch.rand(count, 1, 1, generator=generator)

    kind = torch.arange(count) % KINDS
    axis = torch.linspace(-1, 1, SIDE)
    y, x = axis.view(1, -1, 1), axis.view(1, 1, -1)
    angle = uniform(0, 3.1416)
    across = x * angle.cos() + y * angle.sin() - uniform(-0.3, 0.3)
    along = -x * angle.sin() + y * angle.cos()
    wave = across + 0.06 * torch.sin(9 * along + uniform(0, 6))
    crack = -torch.exp(-((wave / 0.05) ** 2))
    where = torch.randint(4, (count, 1, 1), generator=generator)
    shift = uniform(-0.7, 0.7)
    edge = torch.where(where < 2, 1.0, -1.0)
    swap = where % 2 == 0
    u, v = torch.where(swap, x, y), torch.where(swap, y, x)
    chip = -torch.exp(-(((u - edge) / 0.25) ** 2 + ((v - shift) / 0.2) ** 2))
    distance = ((x - uniform(-0.6, 0.6)) ** 2 + (y - uniform(-0.6, 0.6)) ** 2).sqrt()
    blister = torch.exp(-(((distance - 0.2) / 0.07) ** 2))
    pattern = 0.2 * torch.sin(6.0 * (x + y) + uniform(0, 6))
    flaw = torch.stack([torch.zeros_like(crack), crack, chip, blister])
    flaw = flaw[kind, torch.arange(count)]
    noise = 0.25 * torch.randn(count, SIDE, SIDE, generator=generator)
    picture = 0.9 * flaw * uniform(0.7, 1.2) + pattern + noise
    return picture[:, None], kind


class TileNet(nn.Module):
    def __init__(self, widths=(16, 24, 32)):
        super().__init__()
        inputs, self.convs, self.norms = 1, nn.ModuleList(), nn.ModuleList()
        for width in widths:
            self.convs.append(nn.Conv2d(inputs, width, 3, padding=1, bias=False))
            self.norms.append(nn.BatchNorm2d(width))
            nn.init.constant_(self.norms[-1].weight, 0.5)
            inputs = width
        self.out = nn.Linear(inputs, KINDS)

    def forward(self, x):
        for i, (conv, norm) in enumerate(zip(self.convs, self.norms)):
            x = F.relu(norm(conv(x)))
            if i + 1 < len(self.convs):
                x = F.max_pool2d(x, 2)
        return self.out(x.mean((2, 3)))


def mirrored(batch):
    if torch.rand(()) < 0.5:
        batch = batch.flip(3)
    return batch.transpose(2, 3) if torch.rand(()) < 0.5 else batch


def train(net, data, held, epochs, rate, penalty, title):
    decayed = [*(conv.weight for conv in net.convs), net.out.weight]
    plain = [p for p in net.parameters() if all(p is not q for q in decayed)]
    optimizer = torch.optim.SGD(
        [{"params": decayed, "weight_decay": 5e-4}, {"params": plain}],
        rate, momentum=0.9, nesterov=True, foreach=False,
    )  # fmt: skip
    steps = epochs * len(data[0].split(64))
    schedule = torch.optim.lr_scheduler.PolynomialLR(optimizer, steps, power=1.0)
    step = 0
    for epoch in range(epochs):
        net.train()
        for rows in torch.randperm(len(data[0])).split(64):
            loss = F.cross_entropy(net(mirrored(data[0][rows])), data[1][rows])
            optimizer.zero_grad()
            loss.backward()
            for norm in net.norms:
                norm.weight.grad.add_(norm.weight.detach().sign(), alpha=penalty)
            optimizer.step()
            schedule.step()
            print(f"{title} step {step} loss {loss.item():.4f}", flush=True)
            step += 1
        scale = torch.cat([norm.weight.detach().abs() for norm in net.norms]).mean()
        print(f"{title} epoch {epoch} accuracy {test(net, held):.3f} scale {scale:.3f}")


@torch.no_grad()
def test(net, held):
    net.eval()
    return (net(held[0]).argmax(1) == held[1]).float().mean().item()


@torch.no_grad()
def slim(net, share):
    """In each layer the channels with the largest scales stay, in their old order.

    Not over all layers at once: behind the first two another BatchNorm follows, so that
    their scales shrink at no cost and say nothing next to those of the last.
    """
    kept = []
    for norm in net.norms:
        count = round(len(norm.weight) * (1 - share))
        kept.append(norm.weight.abs().topk(count).indices.sort().values)
    small = TileNet([len(rows) for rows in kept])
    inputs = torch.tensor([0])
    for i, rows in enumerate(kept):
        small.convs[i].weight.copy_(net.convs[i].weight[rows][:, inputs])
        for name in ("weight", "bias", "running_mean", "running_var"):
            getattr(small.norms[i], name).copy_(getattr(net.norms[i], name)[rows])
        inputs = rows
    small.out.weight.copy_(net.out.weight[:, inputs])
    small.out.bias.copy_(net.out.bias)
    return small


@torch.no_grad()
def estimate_anew(net, pictures):
    """Cut channels shift what later layers see; an equal average over batches."""
    for norm in net.norms:
        norm.reset_running_stats()
        norm.momentum = None
    net.train()
    for batch in pictures.split(128):
        net(batch)
    for norm in net.norms:
        norm.momentum = 0.1


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=7)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    generator = torch.Generator().manual_seed(args.seed)
    data, held = tiles(1024, generator), tiles(400, generator)
    net = TileNet()
    train(net, data, held, args.epochs, 0.08, 6e-3, "sparse")
    small = slim(net, 0.5)
    widths = [len(norm.weight) for norm in small.norms]
    print(f"cut to {widths}: accuracy {test(small, held):.3f}")
    estimate_anew(small, data[0])
    print(f"statistics anew: accuracy {test(small, held):.3f}")
    train(small, data, held, max(1, args.epochs // 2), 0.02, 0.0, "slim")
    small.eval()
    before = small(held[0]).detach()
    for i, (conv, norm) in enumerate(zip(small.convs, small.norms)):
        small.convs[i] = nn.utils.fuse_conv_bn_eval(conv, norm)
        small.norms[i] = nn.Identity()
    after = small(held[0]).detach()
    torch.testing.assert_close(after, before, atol=1e-4, rtol=1e-3)
    print(f"folded: accuracy {test(small, held):.3f}")


if __name__ == "__main__":
    main()
