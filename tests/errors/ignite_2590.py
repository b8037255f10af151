"""IGNITE-2590: the averaged teacher keeps the batch statistics it began with.

Source: pytorch/ignite#2590 (also HiLab-git/SSL4MIS#77). The moving average takes the
parameters, and the teacher is always in evaluation mode: its batch normalisation
uses mean 0 and variance 1 for ever, in what it teaches and where it is validated.
--fixed copies the buffers too.
"""

import argparse
import copy

import torch
from torch import nn
from torch.nn import functional as F


class SoundNet(nn.Module):
    """Tags of a short recording from its mel bands."""

    def __init__(self, bands=16, width=24, tags=4):
        super().__init__()
        self.features = nn.Sequential(
            nn.BatchNorm1d(bands),
            nn.Conv1d(bands, width, 3, padding=1, bias=False),
            nn.BatchNorm1d(width),
            nn.ReLU(),
            nn.Conv1d(width, width, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm1d(width),
            nn.ReLU(),
        )
        self.tags = nn.Linear(width, tags)

    def forward(self, mels):
        return self.tags(self.features(mels).mean(dim=2))


class EMAHandler:
    def __init__(self, model, momentum, handle_buffers):
        self.ema_model = copy.deepcopy(model).eval().requires_grad_(False)
        self.momentum = momentum
        self.handle_buffers = handle_buffers

    @torch.no_grad()
    def update(self, model):
        pairs = zip(self.ema_model.parameters(), model.parameters())
        for average, current in pairs:
            average.mul_(1 - self.momentum).add_(current, alpha=self.momentum)
        if self.handle_buffers == "copy":
            for average, current in zip(self.ema_model.buffers(), model.buffers()):
                average.copy_(current)


def recordings(count, bands=16, frames=20, tags=4):
    """Log energies, far from zero, in which each tag has bands of its own."""
    labels = (torch.rand(count, tags) < 0.4).float()
    tones = labels.repeat_interleave(bands // tags, dim=1)
    mels = -3 + 2 * torch.randn(count, bands, frames) + 1.5 * tones[:, :, None]
    return mels, labels


@torch.no_grad()
def error_of(model, mels, labels):
    return F.binary_cross_entropy_with_logits(model(mels), labels).item()


def calibrated(model, mels):
    """A copy with the statistics of these recordings."""
    model = copy.deepcopy(model)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d):
            module.reset_running_stats()
            module.momentum = None
    model.train()
    with torch.no_grad():
        model(mels)
    return model.eval()


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=20)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    student = SoundNet()
    buffers = "copy" if options.fixed else None
    ema = EMAHandler(student, momentum=0.2, handle_buffers=buffers)
    optimizer = torch.optim.Adam(student.parameters(), lr=1e-2)
    held_out = recordings(128)
    for step in range(options.steps):
        mels, labels = recordings(32)
        unlabelled, _ = recordings(32)
        logits = student(torch.cat([mels, unlabelled]))
        with torch.no_grad():
            target = ema.ema_model(unlabelled).sigmoid()
        supervised = F.binary_cross_entropy_with_logits(logits[:32], labels)
        consistency = F.mse_loss(logits[32:].sigmoid(), target)
        loss = supervised + min(1.0, step / 10) * consistency
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        ema.update(student)
        print(f"step {step} loss {loss.item():.4f}", flush=True)
    error = error_of(ema.ema_model, *held_out)
    print(f"validation of the teacher {error:.4f}", flush=True)
    if options.prove:
        possible = error_of(calibrated(ema.ema_model, held_out[0]), *held_out)
        print("fault shows:", "yes" if error > 2 * possible else "no")


if __name__ == "__main__":
    main()
