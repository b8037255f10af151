"""Which of six cheeses a spectrum is of, trained by a Lion of one's own library.

Weight decay is large, as is usual with Lion. bitsandbytes-foundation/bitsandbytes#1992.
"""

import argparse

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


class Lion(torch.optim.Optimizer):
    """Sign of an interpolated momentum."""

    def __init__(self, params, lr, betas=(0.9, 0.99), weight_decay=0.0, decoupled=True):
        self.decoupled = decoupled
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self.update(p, group)

    def update(self, p, group):
        lr, decay, (beta1, beta2) = group["lr"], group["weight_decay"], group["betas"]
        grad = p.grad
        if self.decoupled:
            p.mul_(1 - lr * decay)
        else:
            grad = grad + decay * p
        average = self.state[p].setdefault("exp_avg", torch.zeros_like(p))
        p.sub_((beta1 * average + (1 - beta1) * grad).sign(), alpha=lr)
        average.lerp_(grad, 1 - beta2)


class SpectrumNet(nn.Module):
    def __init__(self, width=64, classes=6):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(1, 16, 7, stride=2, padding=3),
            nn.GELU(),
            nn.Conv1d(16, 32, 5, stride=2, padding=2),
            nn.GELU(),
            nn.Flatten(),
            nn.Linear(32 * 16, width),
            nn.LayerNorm(width),
            nn.GELU(),
        )
        self.head = nn.Linear(width, classes)

    def forward(self, spectrum):
        return self.head(self.body(spectrum[:, None]))


def spectra(count, seed, classes=6, length=64):
    generator = torch.Generator().manual_seed(7)
    peaks = torch.rand(classes, 3, generator=generator) * length
    generator = torch.Generator().manual_seed(seed)
    label = torch.randint(classes, (count,), generator=generator)
    shift = torch.randn(count, 1, generator=generator)
    gap = torch.arange(length) - (peaks[label] + shift)[:, :, None]
    spectrum = torch.exp(-((gap / 2.5) ** 2)).sum(1)
    spectrum += 0.4 * torch.randn(count, length, generator=generator)
    return TensorDataset(spectrum, label)


@torch.no_grad()
def accuracy(model, data):
    model.eval()
    spectrum, label = data.tensors
    right = (model(spectrum).argmax(1) == label).float().mean().item()
    model.train()
    return right


class Watch:
    """Compares each step with one that decays the weights apart from the sign."""

    def __init__(self, optimizer):
        self.optimizer, self.other, self.all = optimizer, 0, 0

    def before(self):
        group = self.optimizer.param_groups[0]
        lr, beta1 = group["lr"], group["betas"][0]
        self.expected = []
        for p in group["params"]:
            state = self.optimizer.state.get(p, {})
            average = state.get("exp_avg", torch.zeros_like(p))
            sign = (beta1 * average + (1 - beta1) * p.grad).sign()
            kept = p.detach() * (1 - lr * group["weight_decay"])
            self.expected.append(kept - lr * sign)

    def after(self):
        group = self.optimizer.param_groups[0]
        for p, expected in zip(group["params"], self.expected):
            self.other += ((p.detach() - expected).abs() > 0.5 * group["lr"]).sum()
            self.all += p.numel()


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=100)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    data, valid = spectra(1600, 1), spectra(400, 2)
    loader = DataLoader(data, batch_size=32, shuffle=True)
    model = SpectrumNet()
    optimizer = Lion(
        model.parameters(), lr=3e-4, weight_decay=1.0, decoupled=options.fixed
    )
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, options.steps)
    watch = Watch(optimizer)
    step = 0
    while step < options.steps:
        for spectrum, label in loader:
            if step == options.steps:
                break
            loss = F.cross_entropy(model(spectrum), label)
            optimizer.zero_grad()
            loss.backward()
            if options.prove:
                watch.before()
            optimizer.step()
            if options.prove:
                watch.after()
            schedule.step()
            if step % 10 == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
        print(f"accuracy {accuracy(model, valid):.4f}", flush=True)
    if options.prove:
        share = float(watch.other) / watch.all
        print(f"{share:.3f} of all single updates have another sign", flush=True)
        print("fault shows:", "yes" if share > 0.01 else "no", flush=True)


if __name__ == "__main__":
    main()
