"""Minerals from their spectra with eight labels a class (FixMatch). The guesses about
weakly altered spectra become labels for strongly altered ones where they are sure;
they are made in training mode, without gradient. The weights are averaged; before a
validation the BatchNorm statistics of the average are estimated anew, from scratch,
as plain means over forty batches.

    python fixmatch_spectra.py --steps 30
"""

import argparse
import itertools

import torch
from torch import nn
from torch.nn import functional as F

N_BANDS, N_CLASSES = 80, 5


def make_spectra(n, g):
    y = torch.randint(N_CLASSES, (n,), generator=g)
    bands = torch.arange(N_BANDS)
    lines = torch.tensor(
        [[12, 40, 61], [20, 33, 70], [9, 52, 66], [26, 45, 58], [15, 30, 74]]
    )
    x = torch.zeros(n, N_BANDS)
    for k in range(3):
        centre = lines[y, k : k + 1] + torch.randn(n, 1, generator=g)
        depth = 0.5 + torch.rand(n, 1, generator=g)
        x -= depth * torch.exp(-(((bands - centre) / 2.5) ** 2))
    slope = torch.randn(n, 1, generator=g) * torch.linspace(-0.5, 0.5, N_BANDS)
    return (x + slope + 0.15 * torch.randn(n, N_BANDS, generator=g)).unsqueeze(1), y


def weak(x):
    return x.roll(int(torch.randint(-1, 2, ())), dims=-1) + 0.02 * torch.randn_like(x)


def strong(x):
    x = x * (0.6 + 0.8 * torch.rand(len(x), 1, 1))
    x = x + torch.randn(len(x), 1, 1) * torch.linspace(-0.5, 0.5, N_BANDS)
    start = torch.randint(N_BANDS - 10, (len(x), 1, 1))
    band = torch.arange(N_BANDS)
    cut = (band >= start) & (band < start + 10)
    return x.masked_fill(cut, 0.0) + 0.1 * torch.randn_like(x)


def conv(i, o):
    return [
        nn.Conv1d(i, o, 7, padding=3, bias=False),
        nn.BatchNorm1d(o),
        nn.LeakyReLU(0.1),
    ]


def build():
    return nn.Sequential(
        *conv(1, 16),
        nn.MaxPool1d(2),
        *conv(16, 32),
        nn.MaxPool1d(2),
        *conv(32, 32),
        nn.Flatten(),
        nn.Linear(32 * (N_BANDS // 4), N_CLASSES),
    )


def precise_bn(model, batches):
    norms = [m for m in model.modules() if isinstance(m, nn.BatchNorm1d)]
    kept = [m.momentum for m in norms]
    for m in norms:
        m.reset_running_stats()
        m.momentum = None  # a cumulative mean
    model.train()
    with torch.no_grad():
        for x in batches:
            model(x)
    for m, momentum in zip(norms, kept):
        m.momentum = momentum
    model.eval()


def endless(n, size):
    while True:
        yield from torch.randperm(n).split(size)[: n // size]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=30)
    ap.add_argument("--mu", type=int, default=4, help="unlabelled for one labelled")
    ap.add_argument("--threshold", type=float, default=0.9)
    ap.add_argument("--every", type=int, default=10)
    args = ap.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(40)
    g = torch.Generator().manual_seed(41)
    pool, truth = make_spectra(1200, g)
    test_x, test_y = make_spectra(300, g)
    labelled = torch.cat([(truth == c).nonzero()[:8, 0] for c in range(N_CLASSES)])
    few_x, few_y = pool[labelled], truth[labelled]

    model = build()
    average = torch.optim.swa_utils.AveragedModel(
        model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.85)
    )
    opt = torch.optim.SGD(
        model.parameters(), lr=0.03, momentum=0.9, nesterov=True, weight_decay=5e-4
    )
    picks = zip(endless(len(few_x), 20), endless(len(pool), 20 * args.mu))
    for step, (i, j) in enumerate(itertools.islice(picks, args.steps), 1):
        model.train()
        with torch.no_grad():
            confidence, pseudo = model(weak(pool[j])).softmax(-1).max(-1)
        sure = (confidence >= args.threshold).float()
        out = model(torch.cat([weak(few_x[i]), strong(pool[j])]))
        out_few, out_pool = out.split([len(i), len(j)])
        supervised = F.cross_entropy(out_few, few_y[i])
        # early on nobody is sure and this is exactly zero
        consistency = (
            sure * F.cross_entropy(out_pool, pseudo, reduction="none")
        ).mean()
        loss = supervised + consistency
        opt.zero_grad()
        loss.backward()
        opt.step()
        average.update_parameters(model)
        print(
            f"{step} sup {supervised.item():.4f} cons {consistency.item():.4f} "
            f"sure {sure.mean().item():.2f}"
        )
        if step % args.every == 0 or step == args.steps:
            precise_bn(average, (weak(pool[k]) for k in torch.randperm(1200).split(30)))
            with torch.no_grad():
                right = average(test_x).argmax(-1) == test_y
            print(f"   averaged model: {right.float().mean().item():.3f} right")


if __name__ == "__main__":
    main()
