"""As built_in_signs.py: numbers that mean another thing in one place than in another: a
count of steps that nobody moves, a count of batches to skip that stays, a warm-up of
steps that goes on by passes, a schedule of all batches that is stepped once an epoch, a
logarithm of a variance that is taken for a deviation, epochs that are counted without a
batch.

    built_in_counts.py [--right] [CASE...]
"""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Sampler, TensorDataset

from built_in_outputs import layers
from built_in_signs import CLASSES, STEPS, Classifier, main, samples


class Corrected(torch.optim.Optimizer):
    """A mean of gradients, divided by what it lacks in its first steps."""

    def __init__(self, params, counts: bool) -> None:
        super().__init__(params, {"lr": 0.01})
        self.counts = counts

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["step"] = torch.tensor(0.0)
                    state["exp_avg"] = torch.zeros_like(p)
                state["step"] += self.counts
                state["exp_avg"].lerp_(p.grad, 0.1)
                lacks = 1 - 0.9 ** max(1.0, state["step"].item())
                p.add_(state["exp_avg"] / lacks, alpha=-group["lr"])


def counter_that_stands(right: bool) -> None:
    model = Classifier()
    optimizer = Corrected(model.parameters(), counts=right)
    for _ in range(STEPS):
        x, y = samples(16)
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


class Batches(Sampler):
    """Orders of 8 batches of 8; the first `skip` were trained with before a resume."""

    def __init__(self, skip: int) -> None:
        self.skip = skip

    def __len__(self) -> int:
        return 8

    def __iter__(self):
        yield from torch.randperm(64).view(8, 8)[self.skip :].tolist()


def batches_of(skip: int):
    sampler = Batches(skip)
    return sampler, DataLoader(TensorDataset(*samples(64)), batch_sampler=sampler)


def train_passes(loader, passes: int, pass_ends, schedule=lambda optimizer: None):
    model, optimizer = layers(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, CLASSES))
    scheduler = schedule(optimizer)
    for _ in range(passes):
        for x, y in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        pass_ends(scheduler)


def skip_that_stays(right: bool) -> None:
    sampler, loader = batches_of(skip=5)

    def pass_ends(_) -> None:
        sampler.skip = 0 if right else sampler.skip

    train_passes(loader, 4, pass_ends)


def warm_up(steps: int):
    def factor(step: int) -> float:
        return min(1.0, (step + 1) / steps)

    return lambda optimizer: torch.optim.lr_scheduler.LambdaLR(optimizer, factor)


def warm_up_by_passes(right: bool) -> None:
    """It was counted in steps: four passes have 32."""
    _, loader = batches_of(skip=0)
    train_passes(loader, 4, lambda it: it.step(), warm_up(3 if right else 24))


def length_of_all_batches(right: bool) -> None:
    _, loader = batches_of(skip=0)
    model, optimizer = layers(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, CLASSES))
    steps = 4 * len(loader)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps)
    for _ in range(4):
        for x, y in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            if right:
                scheduler.step()
        if not right:
            scheduler.step()


class Variational(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.Linear(8, 8), nn.Linear(4, 8)

    def forward(self, x):
        mean, log = self.encoder(x).chunk(2, 1)
        z = mean + torch.exp(0.5 * log) * torch.randn_like(mean)
        return self.decoder(z), mean, log


def of_logarithms(mean, log):
    return 0.5 * (mean**2 + log.exp() - log - 1).sum(1).mean()


def of_deviations(mean, deviation):
    variance = deviation**2
    return 0.5 * (mean**2 + variance - torch.log(variance + 1e-8) - 1).sum(1).mean()


def logarithm_for_a_deviation(right: bool) -> None:
    model = Variational()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    divergence = of_logarithms if right else of_deviations
    for _ in range(STEPS):
        x, _ = samples(16)
        made, mean, log = model(x)
        optimizer.zero_grad()
        (F.mse_loss(made, x) + divergence(mean, log)).backward()
        optimizer.step()


def epochs_without_batches(right: bool) -> None:
    """The pairs of batches were made once: the first epoch uses them up."""
    tables = [TensorDataset(*samples(32)) for _ in "ab"]
    loaders = [DataLoader(table, batch_size=8, shuffle=True) for table in tables]
    model = Classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=8)
    pairs = zip(*loaders)
    for _ in range(8):
        if right:
            pairs = zip(*loaders)
        for (x, y), (others, _) in pairs:
            optimizer.zero_grad()
            apart = (model(others) - model(others + 0.1)).square().mean()
            (F.cross_entropy(model(x), y) + apart).backward()
            optimizer.step()
        scheduler.step()


CASES = (
    counter_that_stands,
    skip_that_stays,
    warm_up_by_passes,
    length_of_all_batches,
    logarithm_for_a_deviation,
    epochs_without_batches,
)

if __name__ == "__main__":
    main(CASES)
