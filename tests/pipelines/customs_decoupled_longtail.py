"""Customs declarations, long-tailed goods classes: decoupled two-stage training.

Stage 1 (representation): natural sampling, everything is trained.
Stage 2 (classifier, "cRT", Kang et al. 2020): the backbone is frozen, and kept
in eval mode even inside the training loop, so that its batch norm statistics
stay; the classifier is thrown away, drawn anew, and trained with sampling
balanced over classes. The accuracy on the frequent classes may fall a little
and is traded for the tail; balanced accuracy is what counts.
"""
import argparse
import copy
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler


@dataclass
class StageConfig:
    name: str
    epochs: int
    lr: float
    balanced: bool
    frozen_backbone: bool
    patience: int = 4


@dataclass
class Config:
    classes: int = 10
    largest: int = 1500
    smallest: int = 15
    features: int = 24
    batch_size: int = 64
    seed: int = 81
    stages: list = field(
        default_factory=lambda: [
            StageConfig(
                "representation",
                epochs=8,
                lr=0.05,
                balanced=False,
                frozen_backbone=False,
            ),
            StageConfig(
                "classifier", epochs=6, lr=0.05, balanced=True, frozen_backbone=True
            ),
        ]
    )


def class_counts(cfg):
    ratio = (cfg.smallest / cfg.largest) ** (1 / (cfg.classes - 1))
    return [round(cfg.largest * ratio**c) for c in range(cfg.classes)]


def make_declarations(cfg, counts, rng):
    """Each class is two clusters on a ring, seen through a fixed non-linear mix."""
    fixed = torch.Generator().manual_seed(5)
    centres = 1.6 * torch.randn(cfg.classes, 2, 6, generator=fixed)
    mix = torch.randn(6, cfg.features, generator=fixed) / 2
    label = torch.cat([torch.full((n,), c) for c, n in enumerate(counts)])
    side = torch.randint(2, label.shape, generator=rng)
    hidden = centres[label, side] + 0.7 * torch.randn(len(label), 6, generator=rng)
    x = torch.sin(hidden @ mix) + 0.1 * torch.randn(
        len(label), cfg.features, generator=rng
    )
    return TensorDataset(x, label)


class GoodsNet(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Linear(cfg.features, 96),
            nn.BatchNorm1d(96),
            nn.ReLU(),
            nn.Linear(96, 64),
            nn.BatchNorm1d(64),
            nn.ReLU(),
        )
        self.classifier = nn.Linear(64, cfg.classes)

    def forward(self, x):
        return self.classifier(self.backbone(x))


class EarlyStopping:
    """Keeps the best weights by balanced accuracy, and says when to stop."""

    def __init__(self, patience):
        self.patience, self.best, self.bad, self.weights = patience, -1.0, 0, None

    def update(self, value, model):
        if value > self.best:
            self.best, self.bad, self.weights = (
                value,
                0,
                copy.deepcopy(model.state_dict()),
            )
        else:
            self.bad += 1
        return self.bad >= self.patience


class Trainer:
    def __init__(self, cfg, train, valid):
        self.cfg, self.train_set, self.valid_set = cfg, train, valid
        self.model = GoodsNet(cfg)
        self.counts = torch.bincount(train.tensors[1], minlength=cfg.classes)

    def loader(self, stage):
        rng = torch.Generator().manual_seed(self.cfg.seed + 10)
        if stage.balanced:
            weights = 1.0 / self.counts[self.train_set.tensors[1]].double()
            sampler = WeightedRandomSampler(
                weights, len(self.train_set), replacement=True, generator=rng
            )
            return DataLoader(
                self.train_set, self.cfg.batch_size, sampler=sampler, drop_last=True
            )
        return DataLoader(
            self.train_set,
            self.cfg.batch_size,
            shuffle=True,
            generator=rng,
            drop_last=True,
        )

    def set_modes(self, stage):
        self.model.train()
        if stage.frozen_backbone:
            self.model.backbone.eval()

    def run_stage(self, stage):
        self.model.backbone.requires_grad_(not stage.frozen_backbone)
        if stage.frozen_backbone:
            self.model.classifier.reset_parameters()
        trained = [p for p in self.model.parameters() if p.requires_grad]
        loader = self.loader(stage)
        optimizer = torch.optim.SGD(
            trained, lr=stage.lr, momentum=0.9, weight_decay=5e-4
        )
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(
            optimizer, T_max=max(1, stage.epochs * len(loader))
        )
        stopping, losses = EarlyStopping(stage.patience), []
        for epoch in range(stage.epochs):
            self.set_modes(stage)
            total, seen = 0.0, torch.zeros(self.cfg.classes, dtype=torch.long)
            for x, y in loader:
                loss = F.cross_entropy(self.model(x), y)
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                optimizer.step()
                schedule.step()
                total += loss.item()
                seen += torch.bincount(y, minlength=self.cfg.classes)
            losses.append(total / len(loader))
            recall = self.recalls()
            share = seen / seen.sum()
            print(
                f"{stage.name:15s} epoch {epoch} loss {losses[-1]:.3f} balanced {recall.mean():.3f} "
                f"tail {recall[-3:].mean():.3f} share of the rarest class {share[-1]:.3f}"
            )
            if stopping.update(recall.mean().item(), self.model):
                print("stopped early")
                break
        if stage.balanced and stage.epochs:
            assert (
                share - 1 / self.cfg.classes
            ).abs().max() < 0.03, "sampler is not balanced"
        if stopping.weights is not None:
            self.model.load_state_dict(stopping.weights)
        return losses, self.recalls()

    @torch.no_grad()
    def recalls(self):
        self.model.eval()
        x, y = self.valid_set.tensors
        hit = (self.model(x).argmax(1) == y).float()
        return torch.stack([hit[y == c].mean() for c in range(self.cfg.classes)])


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=None, help="epochs of each stage")
    args = ap.parse_args()
    cfg = Config()
    if args.epochs is not None:
        for stage in cfg.stages:
            stage.epochs = args.epochs
    torch.manual_seed(cfg.seed)
    rng = torch.Generator().manual_seed(cfg.seed)
    counts = class_counts(cfg)
    print("declarations per class:", counts)
    train = make_declarations(cfg, counts, rng)
    valid = make_declarations(cfg, [100] * cfg.classes, rng)  # chooses epochs
    test = make_declarations(cfg, [200] * cfg.classes, rng)  # looked at once a stage
    trainer = Trainer(cfg, train, valid)

    first, second = cfg.stages
    first_losses, _ = trainer.run_stage(first)
    trainer.valid_set, kept = test, trainer.valid_set
    after_first = trainer.recalls()
    trainer.valid_set = kept

    backbone = copy.deepcopy(trainer.model.backbone.state_dict())
    second_losses, _ = trainer.run_stage(second)
    for key, value in trainer.model.backbone.state_dict().items():
        assert torch.equal(value, backbone[key]), f"{key} moved in stage 2"
    trainer.valid_set = test
    after_second = trainer.recalls()

    print(
        f"test, after stage 1: balanced {after_first.mean():.3f} head {after_first[:3].mean():.3f} tail {after_first[-3:].mean():.3f}"
    )
    print(
        f"test, after stage 2: balanced {after_second.mean():.3f} head {after_second[:3].mean():.3f} tail {after_second[-3:].mean():.3f}"
    )
    if args.epochs is None:
        assert (
            first_losses[-1] < first_losses[0] and second_losses[-1] < second_losses[0]
        )
        assert after_second[-3:].mean() > after_first[-3:].mean() + 0.05
        assert after_second.mean() > after_first.mean()


if __name__ == "__main__":
    main()
