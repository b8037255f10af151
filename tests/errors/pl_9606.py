"""PL-9606: gradients are clipped while they are still scaled.

Source: Lightning-AI/pytorch-lightning#9606. The precision plugin unscales in the
optimizer step, after the trainer has clipped; the threshold applies to gradients
that are larger by the loss scale, and the step uses next to nothing of them.
--fixed unscales before it clips.
"""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class MixedPrecision:
    """Autocast and loss scaling, called by the trainer at its hooks."""

    def __init__(self, unscale_first):
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
        self.unscale_first = unscale_first

    def forward_context(self):
        return torch.autocast("cpu", dtype=torch.float16)

    def backward(self, loss):
        self.scaler.scale(loss).backward()

    def after_backward(self, optimizer):
        if self.unscale_first:
            self.scaler.unscale_(optimizer)

    def optimizer_step(self, optimizer):
        self.scaler.step(optimizer)
        self.scaler.update()


class Trainer:
    def __init__(self, precision, gradient_clip_val):
        self.precision = precision
        self.gradient_clip_val = gradient_clip_val

    def training_step(self, model, optimizer, x, y):
        with self.precision.forward_context():
            loss = nn.functional.mse_loss(model(x).squeeze(-1).float(), y)
        optimizer.zero_grad()
        self.precision.backward(loss)
        self.precision.after_backward(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), self.gradient_clip_val)
        self.precision.optimizer_step(optimizer)
        return loss.item()

    def fit(self, model, optimizer, loader, steps):
        step = 0
        while step < steps:
            for x, y in loader:
                if step == steps:
                    break
                loss = self.training_step(model, optimizer, x, y)
                print(f"step {step} loss {loss:.4f}", flush=True)
                step += 1


def prices(count):
    x = torch.rand(count, 9)
    y = 2 * x[:, 0] + x[:, 1] * x[:, 2] - x[:, 3] + 0.1 * torch.randn(count)
    return TensorDataset(x, y)


def gradient_norm(model):
    norms = [parameter.grad.norm() for parameter in model.parameters()]
    return torch.stack(norms).norm().item()


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=24)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    data = prices(256)
    loader = DataLoader(data, batch_size=32, shuffle=True)
    model = nn.Sequential(nn.Linear(9, 40), nn.Tanh(), nn.Linear(40, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    trainer = Trainer(MixedPrecision(options.fixed), gradient_clip_val=0.5)
    trainer.fit(model, optimizer, loader, options.steps)
    if options.prove:
        used = []
        optimizer.register_step_pre_hook(lambda *_: used.append(gradient_norm(model)))
        x, y = data[:64]
        y = y + 3  # a clear error, so that there is something to clip
        trainer.training_step(model, optimizer, x, y)
        print("fault shows:", "yes" if used[0] < 0.9 * 0.5 else "no")


if __name__ == "__main__":
    main()
