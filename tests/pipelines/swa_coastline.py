"""Segments land from sea in noisy maps with a little U-Net. A sweep of the learning
rate before the training picks the rate (and puts weights and statistics back); the
last part of the training averages weights (SWA) and then renews BatchNorm's numbers.

    python swa_coastline.py --steps 90
"""

import argparse
import copy
import itertools

import torch
from torch import nn
from torch.nn import functional as F
from torch.optim.swa_utils import SWALR, AveragedModel, update_bn
from torch.utils.data import DataLoader, TensorDataset

SIDE = 24


def maps(count, seed):
    g = torch.Generator().manual_seed(seed)
    coarse = torch.randn(count, 1, 5, 5, generator=g)
    height = F.interpolate(coarse, SIDE, mode="bicubic", align_corners=True)
    land = (height > 0).float()
    photo = torch.tanh(2 * height) + 0.6 * torch.randn(height.shape, generator=g)
    return TensorDataset(photo, land)


def conv_bn(cin, cout):
    conv = nn.Conv2d(cin, cout, 3, padding=1, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(cout), nn.ReLU(inplace=True))


class TinyUNet(nn.Module):
    def __init__(self, base=8):
        super().__init__()
        self.down1 = conv_bn(1, base)
        self.down2 = conv_bn(base, 2 * base)
        self.bottom = conv_bn(2 * base, 2 * base)
        self.up2 = conv_bn(4 * base, base)
        self.up1 = conv_bn(2 * base, base)
        self.mask = nn.Conv2d(base, 1, 1)

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        c = self.bottom(F.max_pool2d(b, 2))
        c = self.up2(torch.cat([F.interpolate(c, scale_factor=2), b], dim=1))
        c = self.up1(torch.cat([F.interpolate(c, scale_factor=2), a], dim=1))
        return self.mask(c)


def criterion(logits, land):
    overlap = (logits.sigmoid() * land).sum((1, 2, 3))
    total = (logits.sigmoid() + land).sum((1, 2, 3))
    dice = 1 - ((2 * overlap + 1) / (total + 1)).mean()
    return F.binary_cross_entropy_with_logits(logits, land) + dice


def find_lr(model, loader, low=1e-3, high=3.0, steps=25):
    """Raises the rate until the loss explodes; gives a third of the rate at which
    the smoothed loss was lowest. The model is afterwards what it was."""
    before = copy.deepcopy(model.state_dict())
    optimizer = torch.optim.SGD(model.parameters(), lr=low, momentum=0.9)
    sweep = torch.optim.lr_scheduler.ExponentialLR(
        optimizer, gamma=(high / low) ** (1 / (steps - 1))
    )
    smooth, best, best_lr = None, float("inf"), low
    batches = itertools.chain.from_iterable(itertools.repeat(loader))
    for photo, land in itertools.islice(batches, steps):
        loss = criterion(model(photo), land)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        smooth = loss.item() if smooth is None else 0.7 * smooth + 0.3 * loss.item()
        if smooth < best:
            best, best_lr = smooth, sweep.get_last_lr()[0]
        if smooth > 2 * best:
            break
        sweep.step()
    model.load_state_dict(before)
    model.zero_grad(set_to_none=True)
    return best_lr / 3


@torch.no_grad()
def iou(model, loader):
    model.eval()
    both = either = 0
    for photo, land in loader:
        guess = model(photo) > 0
        both += (guess & land.bool()).sum().item()
        either += (guess | land.bool()).sum().item()
    return both / either


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=90)
    parser.add_argument("--swa-from", type=float, default=0.6, help="part of all steps")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(26)
    loader = DataLoader(maps(240, 1), batch_size=16, shuffle=True)
    test_loader = DataLoader(maps(96, 2), batch_size=32)

    model = TinyUNet()
    lr = find_lr(model, loader)
    print(f"learning rate {lr:.4f}")
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    average = AveragedModel(model)
    swa_scheduler = SWALR(optimizer, swa_lr=lr / 2, anneal_epochs=2)
    swa_start = int(args.swa_from * args.steps)

    step = 0
    while step < args.steps:
        model.train()
        for photo, land in loader:
            loss = criterion(model(photo), land)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % 9 == 0 or step == 1:
                print(f"step {step} loss {loss.item():.6f}", flush=True)
            if step == args.steps:
                break
        if step > swa_start:
            average.update_parameters(model)
            swa_scheduler.step()
    update_bn(loader, average)
    print(f"IoU {iou(model, test_loader):.4f}, of SWA {iou(average, test_loader):.4f}")


if __name__ == "__main__":
    main()
