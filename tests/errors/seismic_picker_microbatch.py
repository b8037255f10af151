"""P-wave arrival picker.

A small 1-D U-net gives, for each sample of a seismogram, the probability that
the P wave arrives there. Memory is tight in the field box, so every optimizer
step is put together from several micro-batches.
"""
import argparse
import torch
import torch.nn as nn
import torch.nn.functional as F

LENGTH = 96


def seismograms(n, gen):
    t = torch.arange(LENGTH).float()
    onset = torch.randint(15, LENGTH - 20, (n, 1), generator=gen)
    freq = 0.5 + 0.7 * torch.rand(n, 1, generator=gen)
    size = 0.8 + 1.5 * torch.rand(n, 1, generator=gen)
    dt = (t - onset).clamp(min=0)
    wave = size * torch.sin(freq * dt) * torch.exp(-dt / 25) * (t >= onset)
    noise = 0.45 * torch.randn(n, LENGTH, generator=gen)
    noise = noise + 0.2 * torch.sin(0.2 * t + 6.28 * torch.rand(n, 1, generator=gen))
    return (wave + noise).unsqueeze(1), onset.squeeze(1)


class Picker(nn.Module):
    def __init__(self, c=12):
        super().__init__()
        self.a = nn.Conv1d(1, c, 7, padding=3)
        self.b = nn.Conv1d(c, 2 * c, 7, stride=2, padding=3)
        self.c = nn.Conv1d(2 * c, 2 * c, 7, padding=3)
        self.up = nn.ConvTranspose1d(2 * c, c, 4, stride=2, padding=1)
        self.out = nn.Conv1d(2 * c, 1, 5, padding=2)
        self.norm = nn.GroupNorm(4, 2 * c)

    def forward(self, x):
        s = F.relu(self.a(x))
        h = F.relu(self.norm(self.b(s)))
        h = F.relu(self.c(h))
        h = F.relu(self.up(h))
        return self.out(torch.cat([s, h], 1)).squeeze(1)


def pick_loss(logits, onset):
    return F.cross_entropy(logits, onset)


@torch.no_grad()
def test(model, x, onset):
    off = (model(x).argmax(1) - onset).abs().float()
    return off.mean().item(), (off <= 2).float().mean().item()


def current_grads(model):
    return torch.cat(
        [
            torch.zeros(p.numel()) if p.grad is None else p.grad.flatten()
            for p in model.parameters()
        ]
    )


# size: the whole run in one place, read from top to bottom
def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=150, help="optimizer steps")
    ap.add_argument("--micro", type=int, default=4, help="seismograms per micro-batch")
    ap.add_argument("--accumulate", type=int, default=8)
    ap.add_argument("--lr", type=float, default=3e-3)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()

    torch.manual_seed(19)
    gen = torch.Generator().manual_seed(19)
    x, onset = seismograms(1200, gen)
    x_test, onset_test = seismograms(300, gen)

    model = Picker()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr * 20, momentum=0.9)
    print(f"effective batch {args.micro * args.accumulate}")

    step, micro, shown, ratio = 0, 0, 0.0, []
    parts = []
    optimizer.zero_grad()
    while step < args.steps:
        rows = torch.randint(0, len(x), (args.micro,), generator=gen)
        loss = pick_loss(model(x[rows]), onset[rows]) / args.accumulate
        if args.prove:
            pieces = torch.autograd.grad(
                loss, list(model.parameters()), retain_graph=True
            )
            parts.append(torch.cat([g.flatten() for g in pieces]))
        if not args.fixed:
            optimizer.zero_grad()
        loss.backward()
        shown += loss.item()
        micro += 1
        if micro % args.accumulate != 0:
            continue

        if args.prove:
            whole = torch.stack(parts).sum(0)
            ratio.append(((current_grads(model) - whole).norm() / whole.norm()).item())
            parts.clear()
        optimizer.step()
        if args.fixed:
            optimizer.zero_grad()
        step += 1
        if step % 25 == 0:
            err, near = test(model, x_test, onset_test)
            print(
                f"step {step:4d}  loss {shown / 25:.4f}  mean error {err:5.2f} samples  "
                f"within two samples {near:.3f}"
            )
            shown = 0.0

    err, near = test(model, x_test, onset_test)
    print(f"picks within two samples: {near:.3f}, mean error {err:.2f}")

    if args.prove:
        worst = sum(ratio) / len(ratio)
        print(
            f"applied gradient against the sum over the micro-batches: "
            f"relative difference {worst:.4f}"
        )
        print("fault shows:", "yes" if worst > 0.01 else "no")


if __name__ == "__main__":
    main()
