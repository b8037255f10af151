"""Healthy trainings that come close to the mistakes of built_in_counts.py, each in its
own way.

    built_in_near_counts.py
"""

import torch
from torch import nn
from torch.nn import functional as F

from built_in_counts import Variational, batches_of, of_deviations, of_logarithms
from built_in_counts import train_passes, warm_up
from built_in_near import main
from built_in_outputs import layers
from built_in_signs import CLASSES, STEPS, Classifier, samples


class Skipping(torch.optim.Optimizer):
    """Moves, and counts, in every second step alone."""

    def __init__(self, params) -> None:
        super().__init__(params, {"lr": 0.1})
        self.asked = 0

    @torch.no_grad()
    def step(self, closure=None):
        self.asked += 1
        factor = float(self.asked % 2)
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["step"], state["exp_avg"] = 0, torch.zeros_like(p)
                state["step"] += int(factor)
                state["exp_avg"].lerp_(p.grad, 0.1 * factor)
                p.add_(state["exp_avg"], alpha=-group["lr"] * factor)


def steps_that_are_left_out() -> None:
    model = Classifier()
    optimizer = Skipping(model.parameters())
    for _ in range(STEPS):
        x, y = samples(16)
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


def passes_that_grow() -> None:
    """A curriculum: what is skipped at first comes later."""
    sampler, loader = batches_of(skip=6)

    def pass_ends(_) -> None:
        sampler.skip = max(0, sampler.skip - 2)

    train_passes(loader, 5, pass_ends)


def warm_up_of_a_few_passes() -> None:
    _, loader = batches_of(skip=0)
    train_passes(loader, 4, lambda it: it.step(), warm_up(5))


def schedule_of_groups_of_batches() -> None:
    """Its length is made of batches, and it is stepped after four of them."""
    _, loader = batches_of(skip=0)
    model, optimizer = layers(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, CLASSES))
    groups = 4 * len(loader) // 4
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=groups)
    for _ in range(4):
        for number, (x, y) in enumerate(loader):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            if number % 4 == 3:
                scheduler.step()


def encoder_of_deviations() -> None:
    """The noise and the divergence take one result for the deviation."""
    encoder, _ = layers(nn.Linear(8, 8))
    decoder, _ = layers(nn.Linear(4, 8))
    parameters = [*encoder.parameters(), *decoder.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=0.01)
    for _ in range(STEPS):
        x, _ = samples(16)
        mean, raw = encoder(x).chunk(2, 1)
        deviation = F.softplus(raw)
        made = decoder(mean + deviation * torch.randn_like(mean))
        optimizer.zero_grad()
        (F.mse_loss(made, x) + of_deviations(mean, deviation)).backward()
        optimizer.step()


def logarithms_that_are_kept_small() -> None:
    """Their squares are added to the divergence, not the logarithms of these."""
    model = Variational()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(STEPS):
        x, _ = samples(16)
        made, mean, log = model(x)
        optimizer.zero_grad()
        divergence = of_logarithms(mean, log) + 0.01 * (log**2).mean()
        (F.mse_loss(made, x) + 0.1 * divergence).backward()
        optimizer.step()


def epochs_that_are_skipped() -> None:
    """The schedule goes on in two epochs without training; each is evaluated."""
    _, loader = batches_of(skip=0)
    model = Classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=4)
    for epoch in range(10):
        for x, y in () if epoch in (5, 6) else loader:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        scheduler.step()
        with torch.no_grad():
            for x, y in loader:
                F.cross_entropy(model(x), y)


CASES = (
    steps_that_are_left_out,
    passes_that_grow,
    warm_up_of_a_few_passes,
    schedule_of_groups_of_batches,
    encoder_of_deviations,
    logarithms_that_are_kept_small,
    epochs_that_are_skipped,
)

if __name__ == "__main__":
    main(CASES)
