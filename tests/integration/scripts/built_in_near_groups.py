"""Healthy trainings that come close to the mistakes of built_in_groups.py and of
built_in_ranks.py, each in its own way.

    built_in_near_groups.py
"""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset

from built_in_groups import Recurrence, adapted, fit, normed, series
from built_in_near import main
from built_in_signs import CLASSES, STEPS, Classifier, samples


def decay_of_some() -> None:
    """The scores of the classes decay with all biases; what lies below does not."""
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, CLASSES))
    others = [model[0].bias, *model[2].parameters()]
    groups = [
        {"params": others},
        {"params": [model[0].weight], "weight_decay": 0.0},
    ]
    fit(model, torch.optim.AdamW(groups, lr=0.01))


def temperature_with_a_rate_of_its_own() -> None:
    """It is a tensor and not a parameter, and the optimizer is given it."""

    class Tempered(nn.Sequential):
        def forward(self, x):
            return super().forward(x) / self.temperature

    model = Tempered(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, CLASSES))
    model.temperature = torch.ones((), requires_grad=True)
    groups = [
        {"params": list(model.parameters())},
        {"params": [model.temperature], "lr": 0.002},
    ]
    fit(model, torch.optim.AdamW(groups, lr=0.01))


class Scaled(torch.optim.SGD):
    """Reads the scale of each group itself."""

    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.grad.mul_(group["lr_scale"])
        return super().step(closure)


def scales_that_are_read() -> None:
    """By the optimizer, or by a schedule that sets all rates after the first step."""
    model = normed()
    groups = [
        {"params": list(model[0].parameters()), "lr_scale": 0.1},
        {"params": list(model[1:].parameters()), "lr_scale": 1.0},
    ]
    fit(model, Scaled(groups, lr=0.05))
    model = normed()
    optimizer = torch.optim.SGD(
        [
            {"params": list(model[0].parameters()), "lr_mult": 0.1},
            {"params": list(model[1:].parameters()), "lr_mult": 1.0},
        ],
        lr=0.05,
    )
    for step in range(STEPS):
        x, y = samples(16)
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        for group in optimizer.param_groups:
            group["lr"] = 0.05 * 0.99**step * group["lr_mult"]


def large_steps_in_bfloat16() -> None:
    """Each moves a scale by more than its last digit."""
    torch.manual_seed(6)
    model = normed().to(torch.bfloat16)
    fit(model, torch.optim.AdamW(model.parameters(), lr=0.05))


class Sessions(Dataset):
    """The same users in both parts, at other places, and as often as they came."""

    def __init__(self, users):
        self.users = users
        self.first = {user: users.index(user) for user in users}
        self.label_counts = {user: users.count(user) for user in users}
        self.label_to_idx = {user: i for i, user in enumerate(sorted(set(users)))}

    def __len__(self):
        return len(self.users)

    def __getitem__(self, index):
        label = self.label_to_idx[self.users[index]]
        noise = torch.Generator().manual_seed(index)
        return torch.randn(8, generator=noise) + label, label % CLASSES


def tables_of_a_part() -> None:
    model = nn.Linear(8, CLASSES)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    parts = [Sessions(["ann", "bo", "cy"] * 8), Sessions(["bo", "cy", "ann"] * 4)]
    for part in parts:
        for x, y in DataLoader(part, batch_size=8, shuffle=True):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()


def pieces_of_a_batch() -> None:
    """A long series is learned in pieces, and each batch begins anew."""
    model = Recurrence()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for x, y in DataLoader(series(16 * STEPS), 16, shuffle=True):
        state = torch.zeros(1, 16, 16)
        for piece in x.chunk(2, 1):
            scores, state = model(piece, state)
            state = state.detach()
            optimizer.zero_grad()
            F.cross_entropy(scores, y).backward()
            optimizer.step()


def adapter_that_waits() -> None:
    """Each task has an adapter, and the first one is trained first."""
    model = adapted("first", "second")
    for layer in model[:2]:
        layer.train_only("first")
    trained = [p for p in model.parameters() if p.requires_grad]
    fit(model, torch.optim.AdamW(trained, lr=0.01))


class SlicedLoss(nn.Module):
    """Goes backward from all slices but the last itself."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x, y):
        for rows in torch.arange(len(x)).chunk(4):
            begin, end = int(rows[0]), int(rows[-1]) + 1
            loss = F.cross_entropy(self.model(x[begin:end]), y[begin:end]) / 4
            if end < len(x):
                loss.backward()
        return loss


def losses_within_a_loss() -> None:
    """And a loop over batches whose sum goes backward."""
    model = Classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    criterion = SlicedLoss(model)
    loader = DataLoader(TensorDataset(*samples(64)), batch_size=8, shuffle=True)
    for step in range(2 * STEPS):
        optimizer.zero_grad()
        if step % 2:
            criterion(*samples(16)).backward()
        else:
            losses = [F.cross_entropy(model(x), y) for x, y in loader]
            torch.stack(losses).mean().backward()
        optimizer.step()


CASES = (
    losses_within_a_loss,
    pieces_of_a_batch,
    decay_of_some,
    temperature_with_a_rate_of_its_own,
    scales_that_are_read,
    large_steps_in_bfloat16,
    tables_of_a_part,
    adapter_that_waits,
)

if __name__ == "__main__":
    main(CASES)
