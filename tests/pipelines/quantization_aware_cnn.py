"""Float training, then quantisation-aware fine-tuning of a small CNN (8 bit activations, low-bit weights)."""
import argparse
import copy

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 30


def draw_symbols(n, rng):
    """16x16 pictures of six symbols, jittered and noisy."""
    images = np.zeros((n, 1, 16, 16), dtype=np.float32)
    labels = rng.integers(0, 6, n)
    grid = np.arange(16)
    for i, k in enumerate(labels):
        cy, cx, r = rng.uniform(6, 9), rng.uniform(6, 9), rng.uniform(3.5, 5.5)
        dy, dx = np.meshgrid(grid - cy, grid - cx, indexing="ij")
        shape = [
            np.abs(np.hypot(dy, dx) - r) < 0.9,  # ring
            np.hypot(dy, dx) < r,  # disc
            (np.maximum(abs(dy), abs(dx)) < r)
            & (np.maximum(abs(dy), abs(dx)) > r - 1.6),  # frame
            (np.minimum(abs(dy), abs(dx)) < 0.9)
            & (np.maximum(abs(dy), abs(dx)) < r),  # plus
            (np.abs(abs(dy) - abs(dx)) < 1.0)
            & (np.maximum(abs(dy), abs(dx)) < r),  # cross
            (abs(dy) + abs(dx)) < r,
        ][
            k
        ]  # diamond
        images[i, 0] = shape * rng.uniform(0.6, 1.2) + rng.normal(0, 0.3, (16, 16))
    return torch.from_numpy(images), torch.from_numpy(labels)


class RoundSTE(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, grad):
        return grad


def fake_quant_weight(w, bits):
    """Symmetric, one scale per output channel."""
    top = 2 ** (bits - 1) - 1
    scale = w.detach().abs().flatten(1).amax(1).clamp_min(1e-8) / top
    scale = scale.view(-1, *([1] * (w.dim() - 1)))
    return RoundSTE.apply((w / scale).clamp(-top, top)) * scale


class ActivationQuant(nn.Module):
    """Unsigned 8 bit after ReLU, range followed by a moving maximum during training."""

    def __init__(self, bits=8, momentum=0.1):
        super().__init__()
        self.levels, self.momentum = 2**bits - 1, momentum
        self.observe = True
        self.register_buffer("top", torch.tensor(0.0))

    def forward(self, x):
        if self.training and self.observe:
            batch_top = x.detach().amax()
            self.top.copy_(
                batch_top
                if self.top == 0
                else torch.lerp(self.top, batch_top, self.momentum)
            )
        scale = self.top.clamp_min(1e-6) / self.levels
        return RoundSTE.apply((x / scale).clamp(0, self.levels)) * scale


class ConvUnit(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.conv = nn.Conv2d(cin, cout, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(cout)
        self.act_quant = nn.Identity()
        self.weight_bits = None

    def forward(self, x):
        w = self.conv.weight
        if self.weight_bits is not None:
            w = fake_quant_weight(w, self.weight_bits)
        return self.act_quant(F.relu(self.bn(F.conv2d(x, w, padding=1))))


class SymbolNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.units = nn.ModuleList(
            [ConvUnit(1, 12), ConvUnit(12, 24), ConvUnit(24, 24)]
        )
        self.fc = nn.Linear(24, 6)

    def forward(self, x):
        for unit in self.units[:-1]:
            x = F.max_pool2d(unit(x), 2)
        return self.fc(self.units[-1](x).mean(dim=(2, 3)))

    def prepare_qat(self, weight_bits):
        for unit in self.units:
            unit.weight_bits = weight_bits
            unit.act_quant = ActivationQuant()

    def freeze_statistics(self):
        for m in self.modules():
            if isinstance(m, ActivationQuant):
                m.observe = False
            elif isinstance(m, nn.BatchNorm2d):
                m.eval()


def run_epoch(model, x, y, optimizer, scheduler, frozen_stats=False):
    model.train()
    if frozen_stats:
        model.freeze_statistics()
    total = 0.0
    for idx in torch.randperm(len(x)).split(BATCH):
        loss = F.cross_entropy(model(x[idx]), y[idx])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        total += loss.item() * len(idx)
    return total / len(x)


def accuracy(model, x, y):
    model.eval()
    with torch.no_grad():
        return (
            torch.cat([model(part).argmax(1) for part in x.split(200)])
            .eq(y)
            .float()
            .mean()
            .item()
        )


def calibrate(model, x):
    """Activation ranges before the fine-tuning starts; weights and BN statistics stay as they are."""
    model.eval()
    for m in model.modules():
        if isinstance(m, ActivationQuant):
            m.train()
    with torch.no_grad():
        for part in x[:500].split(50):
            model(part)
    model.eval()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument(
        "--epochs", type=int, default=4, help="float epochs; QAT takes as many less one"
    )
    ap.add_argument("--weight-bits", type=int, default=3)
    ap.add_argument("--seed", type=int, default=6)
    args = ap.parse_args()
    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed)
    x_train, y_train = draw_symbols(1500, rng)
    x_test, y_test = draw_symbols(500, rng)
    mean, std = x_train.mean(), x_train.std()
    x_train, x_test = (x_train - mean) / std, (x_test - mean) / std

    model = SymbolNet()
    per_epoch = -(-len(x_train) // BATCH)
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(
        optimizer, T_max=args.epochs * per_epoch
    )
    for epoch in range(args.epochs):
        loss = run_epoch(model, x_train, y_train, optimizer, scheduler)
        print(
            f"float {epoch}: loss {loss:.4f} test accuracy {accuracy(model, x_test, y_test):.3f}"
        )

    quantised = copy.deepcopy(model)
    quantised.prepare_qat(args.weight_bits)
    calibrate(quantised, x_train)
    print(
        f"post-training quantisation, {args.weight_bits} bit weights: {accuracy(quantised, x_test, y_test):.3f}"
    )

    qat_epochs = max(1, args.epochs - 1)
    optimizer = torch.optim.SGD(quantised.parameters(), lr=2e-3, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(
        optimizer, T_max=qat_epochs * per_epoch
    )
    for epoch in range(qat_epochs):
        frozen = (
            qat_epochs > 1 and epoch == qat_epochs - 1
        )  # settle with fixed ranges and BN statistics
        loss = run_epoch(
            quantised, x_train, y_train, optimizer, scheduler, frozen_stats=frozen
        )
        print(
            f"QAT {epoch}: loss {loss:.4f} test accuracy {accuracy(quantised, x_test, y_test):.3f}"
        )


if __name__ == "__main__":
    main()
