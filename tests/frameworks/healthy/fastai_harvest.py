"""Predicts the yield of an orchard from soil, weather and variety: entity embeddings and
a small network in fastai's Learner. First a few epochs with only the last group of
layers trained (freeze_to), then everything by one-cycle with different rates for the
groups, weight decay, clipping, early saving of the best model and its loading.

    python fastai_harvest.py --steps 120
"""

import argparse
import tempfile

import torch
from fastai.basics import DataLoaders, Learner, params, set_seed
from fastai.callback.core import Callback
from fastai.callback.schedule import fit_one_cycle  # noqa: F401 (patches Learner)
from fastai.callback.tracker import SaveModelCallback
from fastai.callback.training import GradientClip
from fastai.data.load import DataLoader
from fastai.losses import MSELossFlat
from fastai.metrics import mae
from torch import nn

VARIETIES, REGIONS, NUMBERS = 14, 9, 6
BATCH, TRAIN, VALID = 64, 1280, 400


class Harvest:
    """Rows as fastai's loaders want them: ((categories, numbers), target)."""

    def __init__(self, count, seed):
        world = torch.Generator().manual_seed(0)
        variety = torch.randn(VARIETIES, generator=world)
        region = torch.randn(REGIONS, NUMBERS, generator=world) / 2
        g = torch.Generator().manual_seed(seed)
        v = torch.randint(VARIETIES, (count,), generator=g)
        r = torch.randint(REGIONS, (count,), generator=g)
        x = torch.randn(count, NUMBERS, generator=g)
        y = variety[v] + (x * region[r]).sum(1) - 0.5 * x[:, 0].square()
        y = y + 0.2 * torch.randn(count, generator=g)
        self.cats, self.numbers = torch.stack([v, r], 1), x
        self.target = y.unsqueeze(1)

    def __len__(self):
        return len(self.target)

    def __getitem__(self, i):
        return self.cats[i], self.numbers[i], self.target[i]


class OrchardNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.embeds = nn.ModuleList(
            [nn.Embedding(VARIETIES, 8), nn.Embedding(REGIONS, 6)]
        )
        self.bn = nn.BatchNorm1d(NUMBERS)
        self.body = nn.Sequential(
            nn.Linear(14 + NUMBERS, 96),
            nn.BatchNorm1d(96),
            nn.ReLU(inplace=True),
            nn.Dropout(0.05),
        )
        self.head = nn.Sequential(nn.Linear(96, 48), nn.ReLU(), nn.Linear(48, 1))

    def forward(self, cats, numbers):
        parts = [embed(cats[:, i]) for i, embed in enumerate(self.embeds)]
        return self.head(self.body(torch.cat([*parts, self.bn(numbers)], 1)))


def groups(model):
    first = nn.ModuleList([model.embeds, model.bn])
    return [params(first), params(model.body), params(model.head)]


class Report(Callback):
    order = 70

    def __init__(self, steps):
        self.left = steps

    def after_batch(self):
        if self.training:
            self.left -= 1

    def after_train(self):
        self.mean = self.recorder.smooth_loss.value.item()

    def after_epoch(self):
        valid = [f"{v:.4f}" for v in self.recorder.log[2:] if isinstance(v, float)]
        print(f"{self.left} steps left, train {self.mean:.4f} valid, mae {valid}")


def learner(train, valid, steps, folder):
    loaders = DataLoaders(
        DataLoader(train, bs=BATCH, shuffle=True, drop_last=True),
        DataLoader(valid, bs=200),
        device=torch.device("cpu"),
    )
    learn = Learner(
        loaders,
        OrchardNet(),
        loss_func=MSELossFlat(),
        splitter=groups,
        metrics=mae,
        wd=0.02,
        path=folder,
        cbs=[Report(steps), GradientClip(2.0)],
    )
    return learn


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--seed", type=int, default=4)
    args = parser.parse_args()
    torch.set_num_threads(1)
    set_seed(args.seed, reproducible=True)
    per_epoch = min(TRAIN // BATCH, args.steps)
    epochs = max(args.steps // per_epoch, 1)
    train, valid = Harvest(per_epoch * BATCH, seed=1), Harvest(VALID, seed=2)
    with tempfile.TemporaryDirectory() as folder:
        learn = learner(train, valid, epochs * per_epoch, folder)
        with learn.no_bar(), learn.no_logging():
            learn.freeze_to(-1)
            warm = min(1, epochs - 1)
            if warm:
                learn.fit_one_cycle(warm, 1e-2)
            learn.unfreeze()
            keep = SaveModelCallback(fname="best", with_opt=True)
            learn.fit_one_cycle(epochs - warm, slice(2e-3, 1e-2), cbs=keep)
            loss, error = learn.validate()
    print(f"best model: validation loss {loss:.4f}, mean error {error:.4f}")


if __name__ == "__main__":
    main()
