"""Keyword spotting on log-mel patches, with micro-batches to fit small cards."""
import argparse
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F

WORDS = ["yes", "no", "up", "down", "left", "right"]
MEL, FRAMES = 20, 32


def patches(n, seed):
    proto_gen = torch.Generator().manual_seed(500)
    start = torch.randint(2, MEL - 2, (len(WORDS), 2), generator=proto_gen).float()
    slope = torch.randn(len(WORDS), 2, generator=proto_gen) * 0.25
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, len(WORDS), (n,), generator=g)
    t = torch.arange(FRAMES).float()
    mel = torch.arange(MEL).float()
    offset = torch.randint(-3, 4, (n,), generator=g).float()
    x = 1.6 * torch.randn(n, MEL, FRAMES, generator=g)
    for k in range(2):
        track = start[y, k, None] + slope[y, k, None] * (t + offset[:, None])
        x += 1.4 * torch.exp(-(((mel[None, :, None] - track[:, None, :]) / 1.2) ** 2))
    return x.unsqueeze(1), y


class SpotNet(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.conv1 = nn.Conv2d(1, width, 3, padding=1)
        self.norm1 = nn.GroupNorm(3, width)
        self.conv2 = nn.Conv2d(width, 2 * width, 3, padding=1)
        self.norm2 = nn.GroupNorm(3, 2 * width)
        self.fc = nn.Linear(2 * width * 5 * 4, len(WORDS))

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm1(self.conv1(x))), 2)
        x = F.max_pool2d(F.relu(self.norm2(self.conv2(x))), (2, 4))
        return self.fc(x.flatten(1))


def flat_grad(model):
    return torch.cat([p.grad.flatten() for p in model.parameters()])


def whole_batch_grad(model, chunks):
    twin = copy.deepcopy(model)
    twin.zero_grad()
    x = torch.cat([c[0] for c in chunks])
    y = torch.cat([c[1] for c in chunks])
    F.cross_entropy(twin(x), y).backward()
    return flat_grad(twin)


def train_step(model, opt, chunks, fixed):
    total = 0.0
    if fixed:
        opt.zero_grad()
    for x, y in chunks:
        if not fixed:
            opt.zero_grad()
        loss = F.cross_entropy(model(x), y) / len(chunks)
        loss.backward()
        total += loss.item()
    return total


@torch.no_grad()
def accuracy(model, x, y):
    model.eval()
    a = (model(x).argmax(1) == y).float().mean().item()
    model.train()
    return a


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=160)
    parser.add_argument("--micro", type=int, default=8)
    parser.add_argument("--accum", type=int, default=4)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(8)
    torch.set_num_threads(1)

    x, y = patches(1600, 1)
    xt, yt = patches(500, 2)
    model = SpotNet()
    opt = torch.optim.SGD(
        model.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-4
    )
    sampler = torch.Generator().manual_seed(4)
    print(f"effective batch {args.micro * args.accum}")

    gaps = []
    for step in range(args.steps):
        idx = torch.randint(0, len(x), (args.accum, args.micro), generator=sampler)
        chunks = [(x[i], y[i]) for i in idx]
        loss = train_step(model, opt, chunks, args.fixed)
        if args.prove and step < 5:
            ref = whole_batch_grad(model, chunks)
            gaps.append(((flat_grad(model) - ref).norm() / ref.norm()).item())
        opt.step()
        if step % 20 == 0 or step == args.steps - 1:
            print(
                f"step {step:4d}  loss {loss:.4f}  test acc {accuracy(model, xt, yt):.3f}"
            )

    if args.prove:
        print(
            "gradient at the step against the whole batch, relative distance:",
            " ".join(f"{g:.4f}" for g in gaps),
        )
        print("fault shows:", "yes" if max(gaps) > 1e-2 else "no")


if __name__ == "__main__":
    main()
