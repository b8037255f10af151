"""A U-Net segments vehicles in pictures, with mixed precision.

Cross-entropy and Dice together, SGD with momentum, clipped
gradients. After Pytorch-UNet, issue 468.
"""

import argparse

import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

SIDE = 24


def double_conv(inputs, outputs):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
        nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    def __init__(self, channels=1, classes=1, width=8):
        super().__init__()
        self.inc = double_conv(channels, width)
        self.down1 = double_conv(width, 2 * width)
        self.down2 = double_conv(2 * width, 4 * width)
        self.up1 = double_conv(6 * width, 2 * width)
        self.up2 = double_conv(3 * width, width)
        self.outc = nn.Conv2d(width, classes, 1)

    def forward(self, x):
        first = self.inc(x)
        second = self.down1(F.max_pool2d(first, 2))
        third = self.down2(F.max_pool2d(second, 2))
        up = F.interpolate(third, scale_factor=2)
        up = self.up1(torch.cat([up, second], 1))
        up = F.interpolate(up, scale_factor=2)
        return self.outc(self.up2(torch.cat([up, first], 1)))


def cars(count, seed):
    """Bodies with a roof, before a bright or a dark road."""
    generator = torch.Generator().manual_seed(seed)
    rows, columns = torch.meshgrid(*2 * [torch.arange(SIDE)], indexing="ij")
    where = torch.randint(7, SIDE - 7, (2, count, 1, 1), generator=generator)
    size = torch.randint(3, 7, (2, count, 1, 1), generator=generator)
    mask = ((rows - where[0]).abs() < size[0]) & ((columns - where[1]).abs() < size[1])
    sign = torch.randint(0, 2, (count, 1, 1), generator=generator) * 2 - 1
    picture = 0.8 * sign * mask + torch.randn(count, SIDE, SIDE, generator=generator)
    return TensorDataset(picture[:, None], mask.float())


def dice_coeff(inputs, target, epsilon=1e-6):
    inter = 2 * (inputs * target).sum((-1, -2))
    total = inputs.sum((-1, -2)) + target.sum((-1, -2))
    return ((inter + epsilon) / (total + epsilon)).mean()


@torch.inference_mode()
def evaluate(net, loader, amp):
    net.eval()
    score = 0.0
    for image, mask in loader:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=amp):
            predicted = net(image)
        score += dice_coeff((predicted[:, 0].float() > 0).float(), mask).item()
    net.train()
    return score / len(loader)


def train_model(net, args):
    train = DataLoader(cars(320, args.seed), batch_size=16, shuffle=True)
    valid = DataLoader(cars(128, args.seed + 1), batch_size=64)
    optimizer = torch.optim.SGD(net.parameters(), lr=args.lr, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, "max", patience=5)
    grad_scaler = torch.amp.GradScaler("cpu", enabled=args.amp, init_scale=2.0**8)
    criterion = nn.BCEWithLogitsLoss()
    step, largest = 0, 0.0
    for epoch in range(args.epochs):
        net.train()
        for image, mask in train:
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=args.amp):
                predicted = net(image)
            predicted = predicted[:, 0].float()
            loss = criterion(predicted, mask)
            loss = loss + 1 - dice_coeff(predicted.sigmoid(), mask)
            optimizer.zero_grad(set_to_none=True)
            grad_scaler.scale(loss).backward()
            if args.fixed:
                grad_scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            grad_scaler.step(optimizer)
            grad_scaler.update()
            if args.prove:
                flat = torch.cat([p.grad.flatten() for p in net.parameters()])
                largest = max(largest, flat.norm().item())
            print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
        score = evaluate(net, valid, args.amp)
        scheduler.step(score)
        print(f"epoch {epoch} dice {score:.4f}")
    return score, largest


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--no-amp", dest="amp", action="store_false")
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    score, largest = train_model(UNet(), args)
    print(f"validation Dice {score:.4f}")
    if args.prove:
        print(f"the largest gradient that was stepped with has norm {largest:.4f}")
        print("fault shows:", "yes" if largest < 0.1 else "no", flush=True)


if __name__ == "__main__":
    main()
