import argparse
import math
import torch
import torch.nn as nn
import torch.nn.functional as F

# Multi-scale music tagger. Several kernel sizes look at the same mel frames,
# their pooled outputs are concatenated and tagged (multi-label).

cli = argparse.ArgumentParser()
cli.add_argument("--steps", type=int, default=150)
cli.add_argument("--batch", type=int, default=32)
cli.add_argument("--lr", type=float, default=2e-3)
cli.add_argument("--fixed", action="store_true")
cli.add_argument("--prove", action="store_true")

N_MELS, FRAMES, N_TAGS = 16, 48, 6


def synth_clips(n, seed):
    gen = torch.Generator().manual_seed(seed)
    shared = torch.Generator().manual_seed(9)
    timbre = torch.randn(N_TAGS, N_MELS, generator=shared)
    tempo = torch.linspace(2.0, 9.0, N_TAGS)
    tags = (torch.rand(n, N_TAGS, generator=gen) < 0.35).float()
    t = torch.arange(FRAMES) / FRAMES
    phase = 2 * math.pi * torch.rand(n, N_TAGS, 1, generator=gen)
    envelope = torch.sin(2 * math.pi * tempo.view(1, -1, 1) * t + phase)
    clips = torch.einsum("nk,km,nkt->nmt", tags, timbre, envelope)
    clips += 0.6 * torch.randn(n, N_MELS, FRAMES, generator=gen)
    return clips, tags


class Branch(nn.Module):
    def __init__(self, kernel, width):
        super().__init__()
        self.conv1 = nn.Conv1d(N_MELS, width, kernel, padding=kernel // 2)
        self.conv2 = nn.Conv1d(width, width, kernel, padding=kernel // 2)
        self.norm = nn.GroupNorm(2, width)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.relu(self.norm(self.conv2(x)))
        return torch.cat([x.mean(-1), x.amax(-1)], dim=1)


class Tagger(nn.Module):
    def __init__(self, kernels=(3, 7, 15), width=12, fixed=False):
        super().__init__()
        branches = [Branch(k, width) for k in kernels]
        self.branches = nn.ModuleList(branches) if fixed else branches
        self.head = nn.Sequential(
            nn.Linear(2 * width * len(kernels), 48),
            nn.ReLU(),
            nn.Dropout(0.1),
            nn.Linear(48, N_TAGS),
        )

    def forward(self, clips):
        feats = [branch(clips) for branch in self.branches]
        return self.head(torch.cat(feats, dim=1))


def macro_f1(logits, tags):
    pred = (logits > 0).float()
    tp = (pred * tags).sum(0)
    return (2 * tp / (pred.sum(0) + tags.sum(0)).clamp(min=1)).mean().item()


def batches(n, size, seed):
    g = torch.Generator().manual_seed(seed)
    while True:
        order = torch.randperm(n, generator=g)
        for part in order.split(size):
            if len(part) == size:
                yield part


def train(args):
    torch.manual_seed(21)
    x, y = synth_clips(1600, seed=1)
    vx, vy = synth_clips(400, seed=2)
    model = Tagger(fixed=args.fixed)
    start = [b.conv1.weight.detach().clone() for b in model.branches]

    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)
    sched = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=args.lr, total_steps=args.steps
    )
    stream = batches(len(x), args.batch, seed=8)

    model.train()
    avg = 0.0
    for step in range(args.steps):
        idx = next(stream)
        loss = F.binary_cross_entropy_with_logits(model(x[idx]), y[idx])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        sched.step()
        avg += loss.item()
        if (step + 1) % 25 == 0:
            print(
                "step %4d  loss %.4f  lr %.2e"
                % (step + 1, avg / 25, sched.get_last_lr()[0])
            )
            avg = 0.0

    model.eval()
    with torch.no_grad():
        logits = model(vx)
        print(
            "val bce %.4f  macro-F1 %.4f"
            % (
                F.binary_cross_entropy_with_logits(logits, vy).item(),
                macro_f1(logits, vy),
            )
        )
    return model, start


def main():
    args = cli.parse_args()
    model, start = train(args)
    if args.prove:
        moved = [
            (b.conv1.weight.detach() - w).abs().max().item()
            for b, w in zip(model.branches, start)
        ]
        print(
            "largest change of first-layer weights per branch:",
            ["%.5f" % m for m in moved],
        )
        print("fault shows:", "yes" if max(moved) == 0.0 else "no")


if __name__ == "__main__":
    main()
