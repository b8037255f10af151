"""As built_in_signs.py: options of parameter groups, types of parameters, tables of data
sets and states of recurrences that do not do what they are for.

    built_in_groups.py [--right] [CASE...]
"""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset

from built_in_signs import CLASSES, STEPS, main, samples


def normed() -> nn.Module:
    return nn.Sequential(
        nn.Linear(8, 32), nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, CLASSES)
    )


def fit(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    kind = next(model.parameters()).dtype
    for _ in range(STEPS):
        x, y = samples(16)
        optimizer.zero_grad()
        F.cross_entropy(model(x.to(kind)).float(), y).backward()
        optimizer.step()


def swapped_decay(right: bool) -> None:
    """Biases and scales are to go without weight decay."""
    model = normed()
    spared = [p for p in model.parameters() if p.dim() < 2]
    decayed = [p for p in model.parameters() if p.dim() > 1]
    groups = (decayed, spared) if right else (spared, decayed)
    fit(
        model,
        torch.optim.AdamW(
            [
                {"params": groups[0], "weight_decay": 0.1},
                {"params": groups[1], "weight_decay": 0.0},
            ],
            lr=0.01,
        ),
    )


def scaled_by_layer(right: bool) -> None:
    """Rates are to become smaller towards the input."""
    model = normed()
    groups = []
    for depth, layer in enumerate((model[0], model[1], model[3])):
        scale = 0.65 ** (2 - depth)
        group = {"params": list(layer.parameters()), "lr_scale": scale}
        groups.append({**group, "lr": 0.01 * scale} if right else group)
    fit(model, torch.optim.AdamW(groups, lr=0.01))


def scales_in_bfloat16(right: bool) -> None:
    """A scale of 1 does not move by 0.001."""
    torch.manual_seed(5)
    model = normed().to(torch.bfloat16)
    for parameter in (model[0].weight, model[3].weight):
        parameter.data *= 0.02  # these can move
    rate = 0.05 if right else 0.001
    fit(model, torch.optim.AdamW(model.parameters(), lr=rate))


class Species(Dataset):
    def __init__(self, names, classes=None):
        self.names = names
        self.classes = classes or sorted(set(names))
        self.class_to_idx = {name: i for i, name in enumerate(self.classes)}

    def __len__(self):
        return len(self.names)

    def __getitem__(self, index):
        label = self.class_to_idx[self.names[index]]
        noise = torch.Generator().manual_seed(index)
        return torch.randn(8, generator=noise) + label, label


def table_of_each_split(right: bool) -> None:
    """No owl was seen in the second year."""
    train = Species(["crow", "owl", "wren", "finch"] * 16)
    later = ["crow", "wren", "finch"] * 8
    checked = Species(later, train.classes if right else None)
    model = normed()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(2):
        for x, y in DataLoader(train, batch_size=16, shuffle=True):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            for x, y in DataLoader(checked, batch_size=8):
                F.cross_entropy(model(x), y)
        model.train()


class Recurrence(nn.Module):
    def __init__(self):
        super().__init__()
        self.cells = nn.GRU(4, 16, batch_first=True)
        self.head = nn.Linear(16, CLASSES)

    def forward(self, x, state):
        out, state = self.cells(x, state)
        return self.head(out[:, -1]), state


def series(count: int) -> TensorDataset:
    y = torch.arange(count) % CLASSES
    return TensorDataset(torch.randn(count, 6, 4) + y[:, None, None], y)


def carried_state(right: bool) -> None:
    """The series of a batch have nothing to do with those of the batch before."""
    model = Recurrence()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    loader = DataLoader(series(16 * STEPS), 16, shuffle=True, drop_last=True)
    state = begin = torch.zeros(1, 16, 16)
    for x, y in loader:
        scores, state = model(x, begin if right else state)
        state = state.detach()
        optimizer.zero_grad()
        F.cross_entropy(scores, y).backward()
        optimizer.step()


class Adapted(nn.Module):
    """A frozen layer and what is added to it."""

    def __init__(self, *names: str):
        super().__init__()
        self.base = nn.Linear(8, 8).requires_grad_(False)
        self.down = nn.ParameterDict({name: torch.randn(8, 2) for name in names})
        self.up = nn.ParameterDict({name: torch.zeros(2, 8) for name in names})

    def forward(self, x):
        parts = [x @ self.down[name] @ self.up[name] for name in self.down]
        return torch.relu(self.base(x) + sum(parts))

    def train_only(self, name: str) -> None:
        for table in (self.down, self.up):
            for key, matrix in table.items():
                matrix.requires_grad_(key == name)


def adapted(*names: str) -> nn.Module:
    layers = [Adapted(*names) for _ in range(2)]
    return nn.Sequential(*layers, nn.Linear(8, CLASSES))


def adapter_frozen_at_zeros(right: bool) -> None:
    """A new adapter is loaded on top of an old one, which stays the active one."""
    model = adapted("old", "new")
    for layer in model[:2]:
        nn.init.normal_(layer.up["old"])
        layer.train_only("new" if right else "old")
    trained = [p for p in model.parameters() if p.requires_grad]
    fit(model, torch.optim.AdamW(trained, lr=0.01))


CASES = (
    carried_state,
    swapped_decay,
    scaled_by_layer,
    scales_in_bfloat16,
    table_of_each_split,
    adapter_frozen_at_zeros,
)

if __name__ == "__main__":
    main(CASES)
