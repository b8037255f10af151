"""Lesion segmentation on simulated scans: background, oedema and core."""
from __future__ import annotations

import argparse
import csv
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

NUM_CLASSES = 3
SIZE = 40


class LesionScans(Dataset):
    def __init__(self, num_cases: int, *, seed: int) -> None:
        self._gen = torch.Generator().manual_seed(seed)
        self._cases = [self._scan() for _ in range(num_cases)]

    def _rand(self, low: float, high: float) -> float:
        return low + (high - low) * torch.rand(1, generator=self._gen).item()

    def _scan(self) -> tuple[torch.Tensor, torch.Tensor]:
        ys, xs = torch.meshgrid(torch.arange(SIZE), torch.arange(SIZE), indexing="ij")
        label = torch.zeros(SIZE, SIZE, dtype=torch.long)
        cy, cx = self._rand(9, SIZE - 9), self._rand(9, SIZE - 9)
        a, b = self._rand(3.0, 5.0), self._rand(2.5, 4.0)
        r = ((ys - cy) / a) ** 2 + ((xs - cx) / b) ** 2
        label[r < 1] = 1
        label[r < 0.25] = 2
        tissue = torch.randn(1, 1, SIZE // 4, SIZE // 4, generator=self._gen)
        tissue = nn.functional.interpolate(
            tissue, size=(SIZE, SIZE), mode="bilinear", align_corners=False
        )[0, 0]
        image = 0.5 * tissue + 0.9 * (label == 1) + 1.7 * (label == 2)
        image = image + 0.4 * torch.randn(SIZE, SIZE, generator=self._gen)
        return image[None].float(), label

    def __len__(self) -> int:
        return len(self._cases)

    def __getitem__(self, i: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self._cases[i]


def conv_block(c_in: int, c_out: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(c_in, c_out, 3, padding=1, bias=False),
        nn.InstanceNorm2d(c_out, affine=True),
        nn.LeakyReLU(0.01),
        nn.Conv2d(c_out, c_out, 3, padding=1, bias=False),
        nn.InstanceNorm2d(c_out, affine=True),
        nn.LeakyReLU(0.01),
    )


class UNet2d(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.enc1 = conv_block(1, width)
        self.enc2 = conv_block(width, 2 * width)
        self.mid = conv_block(2 * width, 4 * width)
        self.up2 = nn.ConvTranspose2d(4 * width, 2 * width, 2, stride=2)
        self.dec2 = conv_block(4 * width, 2 * width)
        self.up1 = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.dec1 = conv_block(2 * width, width)
        self.head = nn.Conv2d(width, NUM_CLASSES, 1)
        self.pool = nn.MaxPool2d(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        e1 = self.enc1(x)
        e2 = self.enc2(self.pool(e1))
        m = self.mid(self.pool(e2))
        d2 = self.dec2(torch.cat([self.up2(m), e2], 1))
        return self.head(self.dec1(torch.cat([self.up1(d2), e1], 1)))


def one_hot(label: torch.Tensor) -> torch.Tensor:
    return nn.functional.one_hot(label, NUM_CLASSES).movedim(-1, 1).float()


def soft_dice_coefficient(
    output: torch.Tensor, target: torch.Tensor, *, smooth: float = 1e-5
) -> torch.Tensor:
    num = target.size(0)
    output, target = output.reshape(num, -1), target.reshape(num, -1)
    intersection = (output * target).sum(1)
    dice = (2 * intersection + smooth) / (output.sum(1) + target.sum(1) + smooth)
    return dice.mean()


def soft_dice_per_class(
    output: torch.Tensor, target: torch.Tensor, *, smooth: float = 1e-5
) -> torch.Tensor:
    dims = (0, 2, 3)
    output, target = output[:, 1:], target[:, 1:]
    intersection = (output * target).sum(dims)
    dice = (2 * intersection + smooth) / (output.sum(dims) + target.sum(dims) + smooth)
    return dice.mean()


class DiceCELossWithLogits(nn.Module):
    def __init__(self, *, lambda_ce: float = 0.5, lambda_dice: float = 1.0) -> None:
        super().__init__()
        self.lambda_ce, self.lambda_dice = lambda_ce, lambda_dice
        self.coefficient = soft_dice_coefficient

    def forward(
        self, logits: torch.Tensor, label: torch.Tensor
    ) -> tuple[torch.Tensor, dict[str, float]]:
        ce = nn.functional.cross_entropy(logits, label)
        soft_dice = self.coefficient(logits.softmax(1), one_hot(label))
        loss = self.lambda_ce * ce + self.lambda_dice * (1 - soft_dice)
        return loss, {"ce": ce.item(), "soft dice": soft_dice.item()}


@dataclass
class TrainerToolbox:
    model: nn.Module
    optimizer: torch.optim.Optimizer
    scheduler: torch.optim.lr_scheduler.LRScheduler
    criterion: DiceCELossWithLogits


@dataclass
class Tracker:
    epoch: int = 0
    best_score: float = -1.0
    rows: list[dict[str, float]] = field(default_factory=list)


class SegmentationTrainer:
    def __init__(self, folder: Path, train: DataLoader, validation: DataLoader):
        self._folder, self._train, self._validation = folder, train, validation
        self.tracker = Tracker()

    def train_epoch(self, toolbox: TrainerToolbox) -> dict[str, float]:
        toolbox.model.train()
        sums: dict[str, float] = {}
        for image, label in self._train:
            toolbox.optimizer.zero_grad()
            loss, metrics = toolbox.criterion(toolbox.model(image), label)
            loss.backward()
            nn.utils.clip_grad_norm_(toolbox.model.parameters(), 12)
            toolbox.optimizer.step()
            toolbox.scheduler.step()
            for k, v in {"loss": loss.item(), **metrics}.items():
                sums[k] = sums.get(k, 0.0) + v / len(self._train)
        return sums

    @torch.no_grad()
    def validate(self, model: nn.Module) -> dict[str, float]:
        model.eval()
        inter, total = torch.zeros(NUM_CLASSES), torch.zeros(NUM_CLASSES)
        for image, label in self._validation:
            hard = one_hot(model(image).argmax(1))
            truth = one_hot(label)
            inter += (hard * truth).sum((0, 2, 3))
            total += (hard + truth).sum((0, 2, 3))
        dice = 2 * inter / total.clamp_min(1)
        return {"oedema": dice[1].item(), "core": dice[2].item()}

    def save(self, toolbox: TrainerToolbox) -> None:
        t = self.tracker
        score = (t.rows[-1]["oedema"] + t.rows[-1]["core"]) / 2
        torch.save(toolbox.model.state_dict(), self._folder / "checkpoint_latest.pth")
        if score > t.best_score:
            t.best_score = score
            torch.save(toolbox.model.state_dict(), self._folder / "checkpoint_best.pth")
        with open(self._folder / "metrics.csv", "w", newline="") as f:
            writer = csv.DictWriter(f, t.rows[-1])
            writer.writeheader()
            writer.writerows(t.rows)

    def fit(self, toolbox: TrainerToolbox, num_epochs: int) -> None:
        for epoch in range(num_epochs):
            row = self.train_epoch(toolbox)
            row.update(self.validate(toolbox.model))
            self.tracker.epoch = epoch
            self.tracker.rows.append(row)
            self.save(toolbox)
            shown = ", ".join(f"{k} {v:.3f}" for k, v in row.items())
            print(f"Epoch {epoch}: {shown}")
        print(f"Best mean Dice of the lesions: {self.tracker.best_score:.3f}")


def prove(criterion: DiceCELossWithLogits, validation: DataLoader) -> None:
    """Coefficient that the loss gives to scans without any lesion found."""
    label = torch.cat([y for _, y in validation])
    empty = one_hot(torch.zeros_like(label))
    value = criterion.coefficient(empty, one_hot(label)).item()
    print(f"coefficient of empty predictions {value:.3f}")
    print("fault shows:", "yes" if value > 0.5 else "no")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=11)
    parser.add_argument("--cases", type=int, default=120)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--lr", type=float, default=6e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    train = DataLoader(
        LesionScans(args.cases, seed=1), args.batch_size, shuffle=True, drop_last=True
    )
    validation = DataLoader(LesionScans(40, seed=2), args.batch_size)
    model = UNet2d()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-4)
    total = args.epochs * len(train)
    scheduler = torch.optim.lr_scheduler.PolynomialLR(optimizer, total, power=0.9)
    criterion = DiceCELossWithLogits()
    if args.fixed:
        criterion.coefficient = soft_dice_per_class
    toolbox = TrainerToolbox(model, optimizer, scheduler, criterion)
    with TemporaryDirectory() as folder:
        trainer = SegmentationTrainer(Path(folder), train, validation)
        trainer.fit(toolbox, args.epochs)
    if args.prove:
        prove(criterion, validation)


if __name__ == "__main__":
    main()
