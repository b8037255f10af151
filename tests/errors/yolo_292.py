"""YOLO-292: a scheduler that is made after the loading resets the learning rate.

Source: https://github.com/ultralytics/yolov5/issues/292. On resume the optimizer is
loaded, with the rate that the schedule had reached, and then the LambdaLR is made,
which sets the rate to that of epoch 0. Its last_epoch is put right by hand, and so the
first resumed epoch alone trains at the full rate. --fixed makes the scheduler before
the checkpoint is loaded.
"""

import argparse
import math
import tempfile
from pathlib import Path

import torch
from torch import nn
from torch.optim import SGD, lr_scheduler
from torch.utils.data import DataLoader, TensorDataset

hyp = {"lr0": 0.08, "lrf": 0.1, "momentum": 0.9, "weight_decay": 5e-4, "box": 2.0}
EPOCHS, BATCHES = 4, 5


def detector(ch=12):
    """On a grid of 4 x 4: objectness, and where in the cell the centre lies."""
    layers = []
    for c1, c2 in ((1, ch), (ch, 2 * ch)):
        layers += [nn.Conv2d(c1, c2, 3, 2, 1, bias=False), nn.BatchNorm2d(c2)]
        layers += [nn.SiLU()]
    return nn.Sequential(*layers, nn.Conv2d(2 * ch, 3, 1))


def blobs(n, seed=0):
    g = torch.Generator().manual_seed(seed)
    centre = 1.5 + 13 * torch.rand(n, 2, generator=g)
    axis = torch.arange(16) + 0.5
    dx = (axis[None, None, :] - centre[:, 0, None, None]) ** 2
    dy = (axis[None, :, None] - centre[:, 1, None, None]) ** 2
    image = torch.exp(-(dx + dy) / 4)[:, None]
    return image + 0.1 * torch.randn(image.shape, generator=g), centre


def compute_loss(p, centre):
    cell = (centre / 4).long()
    rows = torch.arange(len(p))
    tobj = torch.zeros(len(p), 4, 4)
    tobj[rows, cell[:, 1], cell[:, 0]] = 1.0
    lobj = nn.functional.binary_cross_entropy_with_logits(p[:, 0], tobj)
    pxy = p[rows, 1:, cell[:, 1], cell[:, 0]].sigmoid()
    lbox = (pxy - (centre / 4 - cell)).square().mean()
    return lobj + hyp["box"] * lbox


def lf(x):
    """cosine"""
    return ((1 + math.cos(x * math.pi / EPOCHS)) / 2) * (1 - hyp["lrf"]) + hyp["lrf"]


def train(opt, weights, stop_after, rates):
    """Up to the end of an epoch, as when somebody switches the machine off then."""
    torch.manual_seed(0)
    model = detector()
    pg0 = [v for v in model.parameters() if v.ndim > 1]
    pg1 = [v for v in model.parameters() if v.ndim == 1]
    optimizer = SGD(pg1, lr=hyp["lr0"], momentum=hyp["momentum"], nesterov=True)
    optimizer.add_param_group({"params": pg0, "weight_decay": hyp["weight_decay"]})

    if opt.fixed:
        scheduler = lr_scheduler.LambdaLR(optimizer, lr_lambda=lf)
    start_epoch = 0
    if weights.exists():
        ckpt = torch.load(weights)
        model.load_state_dict(ckpt["model"])
        optimizer.load_state_dict(ckpt["optimizer"])
        start_epoch = ckpt["epoch"] + 1
        print(f"resuming from {weights.name} at epoch {start_epoch}")
    if not opt.fixed:
        scheduler = lr_scheduler.LambdaLR(optimizer, lr_lambda=lf)
    scheduler.last_epoch = start_epoch - 1  # do not move

    dataset = TensorDataset(*blobs(16 * BATCHES))
    for epoch in range(start_epoch, stop_after):
        order = torch.Generator().manual_seed(epoch)
        dataloader = DataLoader(dataset, 16, shuffle=True, generator=order)
        scheduler.last_epoch = epoch
        for imgs, targets in dataloader:
            if len(rates) == opt.steps:
                return
            rates.append((epoch, optimizer.param_groups[0]["lr"]))
            loss = compute_loss(model(imgs), targets)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            print(f"{epoch}/{EPOCHS - 1} {len(rates) - 1:3d} loss {loss.item():.4f}")
        scheduler.step()
        ckpt = {
            "epoch": epoch,
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
        }
        torch.save(ckpt, weights)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--steps", type=int, default=EPOCHS * BATCHES)
    opt = parser.parse_args()
    torch.set_num_threads(1)
    rates = []
    with tempfile.TemporaryDirectory() as project:
        last = Path(project) / "last.pt"
        train(opt, last, EPOCHS // 2, rates)
        train(opt, last, EPOCHS, rates)
    if opt.prove:
        wrong = [r for e, r in rates if not math.isclose(r, hyp["lr0"] * lf(e))]
        print("fault shows:", "yes" if wrong else "no")
