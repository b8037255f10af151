"""As built_in_signs.py: what is measured, kept and shown to a training.

    built_in_metrics.py [--right] [CASE...]
"""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset

from built_in_outputs import layers
from built_in_signs import CLASSES, Classifier, main, samples, train

EPOCHS = 4


class Accuracy:
    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.right = self.total = 0

    def update(self, scores: torch.Tensor, y: torch.Tensor) -> None:
        self.right += (scores.argmax(1) == y).sum().item()
        self.total += len(y)

    def compute(self) -> float:
        return self.right / max(1, self.total)


@torch.no_grad()
def evaluate(model: torch.nn.Module, loader: DataLoader, metric: Accuracy) -> float:
    model.eval()
    for x, y in loader:
        metric.update(model(x), y)
    model.train()
    return metric.compute()


def metric_that_goes_on(right: bool) -> None:
    model, metric = Classifier(), Accuracy()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    loader = DataLoader(TensorDataset(*samples(64)), 16)
    for _ in range(EPOCHS):
        train(model, F.cross_entropy, optimizer)
        if right:
            metric.reset()
        evaluate(model, loader, metric)
    train(model, F.cross_entropy, optimizer)


class Episodes:
    """Signals that were recorded, and are replayed."""

    def __init__(self, right: bool) -> None:
        self.right = right
        self.now: list[torch.Tensor] = []
        self.kept: list[list[torch.Tensor]] = []

    def record(self) -> None:
        if self.right:
            self.now = []
        self.now.clear()
        for _ in range(16):
            self.now.append(torch.randn(8))
        self.kept.append(self.now)


def episodes_in_one_list(right: bool) -> None:
    model, episodes = Classifier(), Episodes(right)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(20):
        episodes.record()
        x = torch.stack(episodes.kept[int(torch.randint(len(episodes.kept), ()))])
        optimizer.zero_grad()
        F.cross_entropy(model(x), x[:, :CLASSES].argmax(1)).backward()
        optimizer.step()


class Fields(Dataset):
    """Pictures, and maps of what grows where, which are made larger."""

    def __init__(self, mode: str, hot: bool = False) -> None:
        self.mode, self.hot = mode, hot
        areas = torch.randint(CLASSES, (32, 4, 4))
        self.maps = areas.repeat_interleave(3, 1).repeat_interleave(3, 2)

    def __len__(self) -> int:
        return len(self.maps)

    def resized(self, planes: torch.Tensor, mode: str) -> torch.Tensor:
        return F.interpolate(planes[None].float(), 32, mode=mode)[0]

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        kinds = self.maps[index]
        picture = self.resized(kinds[None] + torch.randn(3, 12, 12), "bilinear")
        if self.hot:
            shares = F.one_hot(kinds, CLASSES).permute(2, 0, 1)
            return picture, self.resized(shares, self.mode).argmax(0)
        return picture, self.resized(kinds[None], self.mode)[0].round().long()


def segment(fields: Dataset) -> None:
    model, optimizer = layers(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, CLASSES, 1)
    )
    for picture, kinds in DataLoader(fields, 4, shuffle=True):
        optimizer.zero_grad()
        F.cross_entropy(model(picture), kinds).backward()
        optimizer.step()


def interpolated_maps(right: bool) -> None:
    segment(Fields("nearest-exact" if right else "bilinear"))


def learn_rows(rows: torch.Tensor) -> None:
    model = Classifier()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for (x,) in DataLoader(TensorDataset(rows), 16, shuffle=True):
        optimizer.zero_grad()
        F.cross_entropy(model(x), torch.randint(CLASSES, (len(x),))).backward()
        optimizer.step()


def rows_of_one_number(right: bool) -> None:
    """A buffer is filled with the numbers of a sample, in place of samples."""
    rows = torch.zeros(96, 8)
    for place, state in enumerate(torch.randn(96, 8)):
        rows[place] = state if right else state[0]
    learn_rows(rows)


CASES = (
    metric_that_goes_on,
    episodes_in_one_list,
    interpolated_maps,
    rows_of_one_number,
)

if __name__ == "__main__":
    main(CASES)
