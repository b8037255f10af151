"""Two unlike students learn mosses from labels and from each other.

Deep mutual learning: one loss for both, but an optimizer each, of different kinds; each
takes the other's distribution without gradient. A third, that stays out of the training,
is their average in the space of functions, used in the validation. Labels are soft in a
third of the batches (CutMix of leaves), the batch's last rows come without labels.
"""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

KINDS = 6


def mosses(n, gen):
    kind = torch.randint(KINDS, (n,), generator=gen)
    grid = torch.arange(16.0)
    angle = kind * torch.pi / KINDS + 0.15 * torch.randn(n, generator=gen)
    pitch = 0.7 + 0.15 * (kind % 3) + 0.03 * torch.randn(n, generator=gen)
    along = (
        angle.cos()[:, None, None] * grid + angle.sin()[:, None, None] * grid[:, None]
    )
    phase = 6.28 * torch.rand(n, 1, 1, generator=gen)
    leaf = torch.sin(pitch[:, None, None] * along + phase)
    return (leaf + 0.8 * torch.randn(n, 16, 16, generator=gen))[:, None], kind


def conv_student():
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 24, 3, padding=1),
        nn.BatchNorm2d(24),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(96, KINDS),
    )


class PatchStudent(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.cut = nn.Conv2d(1, width, 4, stride=4)
        self.place = nn.Parameter(0.02 * torch.randn(16, width))
        self.layer = nn.TransformerEncoderLayer(
            width, 4, 64, dropout=0.1, batch_first=True, norm_first=True
        )
        self.out = nn.Linear(width, KINDS)

    def forward(self, x):
        return self.out(self.layer(self.cut(x).flatten(2).mT + self.place).mean(1))


def cutmix(x, target, gen):
    x, other = x.clone(), torch.randperm(len(x), generator=gen)
    top, left = torch.randint(0, 9, (2,), generator=gen).tolist()
    x[:, :, top : top + 8, left : left + 8] = x[
        other, :, top : top + 8, left : left + 8
    ]
    return x, 0.75 * target + 0.25 * target[other]


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--steps", type=int, default=200)
    args = p.parse_args()
    torch.manual_seed(8)
    torch.set_num_threads(1)
    gen = torch.Generator().manual_seed(4)
    x, kind = mosses(1500, gen)
    vx, vkind = mosses(400, gen)
    students = [conv_student(), PatchStudent()]
    optimizers = [
        torch.optim.SGD(students[0].parameters(), lr=0.05, momentum=0.9),
        torch.optim.AdamW(students[1].parameters(), lr=3e-3, weight_decay=0.05),
    ]
    for step in range(args.steps):
        pick = torch.randint(len(x), (64,), generator=gen)
        bx, target = x[pick], F.one_hot(kind[pick], KINDS).float()
        bx, target = bx[:48], target[:48]
        if step % 3 == 2:
            bx, target = cutmix(bx, target, gen)
        bx = torch.cat([bx, x[pick[48:]]])  # 16 rows whose labels nobody looks at
        logs = [F.log_softmax(s(bx), 1) for s in students]
        weight = min(1.0, step / 60)
        loss = 0.0
        for mine, other in (logs, logs[::-1]):
            loss = loss - (target * mine[:48]).sum(1).mean()
            pull = F.kl_div(
                mine, other.detach(), reduction="batchmean", log_target=True
            )
            loss = loss + weight * pull
        for o in optimizers:
            o.zero_grad(set_to_none=False)
        loss.backward()
        for o in optimizers:
            o.step()
        if step % 40 == 39 or step == args.steps - 1:
            for s in students:
                s.eval()
            with torch.no_grad():
                chances = [s(vx).softmax(1) for s in students]
            chances.append(sum(chances) / 2)
            right = [(c.argmax(1) == vkind).float().mean().item() for c in chances]
            for s in students:
                s.train()
            shown = " ".join(f"{r:.3f}" for r in right)
            print(
                f"step {step + 1:3d} loss {loss.item():.4f} conv, patches, both: {shown}"
            )


if __name__ == "__main__":
    main()
