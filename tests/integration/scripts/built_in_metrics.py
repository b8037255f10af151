"""As built_in_signs.py: what is measured, kept and shown to a training.

    built_in_metrics.py [--right] [CASE...]
"""

import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

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


CASES = (metric_that_goes_on, episodes_in_one_list)

if __name__ == "__main__":
    main(CASES)
