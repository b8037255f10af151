"""Outlines knots and bark in pictures of boards: MONAI's UNet with DiceCELoss, dictionary
transforms with random flips and crops, background left out of the Dice, polynomial decay
of the rate, validation by sliding windows over whole boards with DiceMetric; the best
model is kept and loaded at the end.

    python monai_knots.py --steps 60
"""

import argparse
import tempfile

import torch
from monai.data import DataLoader, Dataset, decollate_batch
from monai.inferers import sliding_window_inference
from monai.losses import DiceCELoss
from monai.metrics import DiceMetric
from monai.networks.nets import UNet
from monai.transforms import (
    AsDiscrete,
    Compose,
    EnsureTyped,
    NormalizeIntensityd,
    RandFlipd,
    RandGaussianNoised,
    RandSpatialCropd,
)
from monai.utils import set_determinism
from torch import optim

SIZE, PATCH, KINDS = 64, 48, 3


def board(g):
    """Grain, one or two knots (1) and a strip of bark at an edge (2)."""
    y, x = torch.meshgrid(torch.arange(SIZE), torch.arange(SIZE), indexing="ij")
    picture = 0.2 * torch.sin(0.4 * x + 3 * torch.rand((), generator=g))
    label = torch.zeros(SIZE, SIZE)
    for _ in range(int(torch.randint(1, 3, (), generator=g))):
        cy, cx = (12 + 40 * torch.rand(2, generator=g)).tolist()
        ry, rx = (4 + 7 * torch.rand(2, generator=g)).tolist()
        knot = ((y - cy) / ry).square() + ((x - cx) / rx).square() < 1
        picture, label = picture - 0.6 * knot, label.masked_fill(knot, 1)
    width = 5 + 6 * torch.rand((), generator=g)
    bark = x < width + torch.sin(0.3 * y)
    picture, label = picture + 0.7 * bark, label.masked_fill(bark, 2)
    picture = picture + 0.25 * torch.randn(SIZE, SIZE, generator=g)
    return {"image": picture.unsqueeze(0), "label": label.unsqueeze(0)}


def boards(count, seed):
    g = torch.Generator().manual_seed(seed)
    return [board(g) for _ in range(count)]


def loaders():
    both = ["image", "label"]
    first = [EnsureTyped(both), NormalizeIntensityd("image")]
    change = [
        RandSpatialCropd(both, roi_size=(PATCH, PATCH), random_size=False),
        RandFlipd(both, prob=0.5, spatial_axis=0),
        RandFlipd(both, prob=0.5, spatial_axis=1),
        RandGaussianNoised("image", prob=0.2, std=0.1),
    ]
    train = Dataset(boards(120, 1), Compose(first + change))
    valid = Dataset(boards(20, 2), Compose(first))
    return DataLoader(train, batch_size=8, shuffle=True), DataLoader(valid, 4)


def network():
    return UNet(
        spatial_dims=2,
        in_channels=1,
        out_channels=KINDS,
        channels=(12, 24, 48),
        strides=(2, 2),
        num_res_units=1,
        dropout=0.05,
    )


@torch.no_grad()
def validate(model, loader):
    model.eval()
    metric = DiceMetric(include_background=False, reduction="mean")
    choose = AsDiscrete(argmax=True, to_onehot=KINDS)
    truth = AsDiscrete(to_onehot=KINDS)
    for batch in loader:
        scores = sliding_window_inference(
            batch["image"], (PATCH, PATCH), 4, model, overlap=0.25
        )
        metric(
            [choose(one) for one in decollate_batch(scores)],
            [truth(one) for one in decollate_batch(batch["label"])],
        )
    return metric.aggregate().item()


def train(model, loader, valid, steps, path):
    criterion = DiceCELoss(
        include_background=False, to_onehot_y=True, softmax=True, lambda_ce=0.5
    )
    optimizer = optim.SGD(
        model.parameters(), lr=0.1, momentum=0.95, nesterov=True, weight_decay=3e-5
    )
    schedule = optim.lr_scheduler.PolynomialLR(optimizer, steps, power=0.9)
    step, best = 0, -1.0
    while step < steps:
        model.train()
        total, count = 0.0, 0
        for batch in loader:
            optimizer.zero_grad()
            loss = criterion(model(batch["image"]), batch["label"])
            loss.backward()
            optimizer.step()
            schedule.step()
            total, count, step = total + loss.item(), count + 1, step + 1
            if step == steps:
                break
        dice = validate(model, valid)
        print(f"step {step} loss {total / count:.4f} dice {dice:.4f}", flush=True)
        if dice > best:
            best = dice
            torch.save(model.state_dict(), path)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--seed", type=int, default=12)
    args = parser.parse_args()
    torch.set_num_threads(1)
    set_determinism(args.seed)
    loader, valid = loaders()
    model = network()
    with tempfile.TemporaryDirectory() as folder:
        train(model, loader, valid, args.steps, f"{folder}/best.pt")
        model.load_state_dict(torch.load(f"{folder}/best.pt", weights_only=True))
    print(f"best dice {validate(model, valid):.4f}")


if __name__ == "__main__":
    main()
