"""Kinds of lichen by their spectra (residual MLP without BatchNorm), a greedy soup. One
net is trained on all kinds of samples, then copies of it are tuned on the herbarium's
samples with different rates, orders and noise. The copies are averaged, the best first;
one is taken in only if the average gets no worse on the validation rows; the test is
used once.

    python greedy_soup_lichens.py --steps 150 --tune 40
"""

import argparse
import copy

import torch
import torch.nn.functional as F
from torch import nn

BANDS, KINDS = 40, 8


def spectra(count, seed, shift):
    """Smooth spectra of the kinds; the herbarium's samples have faded by a shift."""
    shapes = torch.randn(KINDS, BANDS, generator=torch.Generator().manual_seed(77))
    shapes = F.avg_pool1d(shapes[:, None], 5, 1, 2)[:, 0] * 2
    fading = torch.linspace(0, 1, BANDS) ** 2
    g = torch.Generator().manual_seed(seed)
    kind = torch.randint(0, KINDS, (count,), generator=g)
    x = shapes[kind] + 1.8 * torch.randn(count, BANDS, generator=g)
    return x - shift * fading * (1 + 0.5 * shapes[kind].roll(3, 1)), kind


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


def network(width=48):
    blocks = [Block(width) for _ in range(3)]
    return nn.Sequential(nn.Linear(BANDS, width), *blocks, nn.Linear(width, KINDS))


def train(model, data, steps, lr, noise, generator, every=10):
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.02)
    warm = max(1, steps // 10)
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda step: min((step + 1) / warm, 1 - (step - warm) / (steps - warm + 1)),
    )
    for step in range(steps):
        rows = torch.randint(0, len(data[0]), (64,), generator=generator)
        x = data[0][rows]
        x = x + noise * torch.randn(x.shape, generator=generator)
        loss = F.cross_entropy(model(x), data[1][rows], label_smoothing=0.05)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        if step % every == 0:
            print(f"step {step} loss {loss.item():.6f}", flush=True)
    return model


@torch.no_grad()
def accuracy(model, data):
    return (model(data[0]).argmax(1) == data[1]).float().mean().item()


def average(states):
    return {
        name: torch.stack([state[name] for state in states]).mean(0)
        for name in states[0]
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--tune", type=int, default=40)
    parser.add_argument("--seed", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    generator = torch.Generator().manual_seed(args.seed)
    fresh = spectra(3000, 1, shift=0.0)
    herbarium, val, test = (
        spectra(n, s, 1.5) for n, s in ((600, 2), (500, 3), (800, 4))
    )
    base = train(network(), fresh, args.steps, 3e-3, 0.0, generator)
    print(f"before the tuning {accuracy(base, val):.4f}")

    tuned = []
    for lr, noise in ((3e-4, 0.0), (1e-3, 0.0), (2e-3, 0.1), (1e-3, 0.3), (3e-3, 0.3)):
        model = train(copy.deepcopy(base), herbarium, args.tune, lr, noise, generator)
        tuned.append((accuracy(model, val), model.state_dict()))
        print(f"rate {lr} noise {noise} validation {tuned[-1][0]:.4f}", flush=True)

    tuned.sort(key=lambda pair: pair[0], reverse=True)
    soup, best = [tuned[0][1]], tuned[0][0]
    taster = network()
    for _, state in tuned[1:]:
        taster.load_state_dict(average([*soup, state]))
        reached = accuracy(taster, val)
        if reached >= best:
            soup, best = [*soup, state], reached
    taster.load_state_dict(average(soup))
    print(
        f"soup of {len(soup)} validation {best:.4f} test {accuracy(taster, test):.4f}"
    )


if __name__ == "__main__":
    main()
