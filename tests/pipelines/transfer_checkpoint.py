"""Fine-tunes a reader of gauges from a checkpoint of another task. Of the checkpoint
only the weights are read, without the old head; the optimizer is a new one, with a
rate for each part. The stem is frozen and stands in a group of rate 0, and after a
while it is thawed, with its moments of the optimizer forgotten on purpose.

    python transfer_checkpoint.py --steps 120
"""

import argparse
import math
import pathlib
import tempfile

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SIDE = 20


class ConvNet(nn.Module):
    def __init__(self, outputs, width=8):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1), nn.GroupNorm(2, width), nn.GELU()
        )
        self.body = nn.Sequential(
            nn.Conv2d(width, 2 * width, 3, stride=2, padding=1),
            nn.GroupNorm(4, 2 * width),
            nn.GELU(),
            nn.Conv2d(2 * width, 4 * width, 3, stride=2, padding=1),
            nn.GELU(),
            nn.AdaptiveAvgPool2d(3),
            nn.Flatten(),
        )
        self.head = nn.Linear(36 * width, outputs)

    def forward(self, image):
        return self.head(self.body(self.stem(image)))


def draw_lines(angle, thickness, generator):
    grid = torch.linspace(-1, 1, SIDE)
    x, y = grid, grid[:, None]
    a = angle[:, None, None]
    across = (x * torch.sin(a) - y * torch.cos(a)).abs()
    forward = (x * torch.cos(a) + y * torch.sin(a)) > -0.1
    image = torch.exp(-((across / thickness) ** 2)) * forward
    return image + 0.15 * torch.randn(image.shape, generator=generator)


def arrows(count, seed):
    """Which of eight directions an arrow shows."""
    g = torch.Generator().manual_seed(seed)
    way = torch.randint(8, (count,), generator=g)
    angle = way * math.pi / 4 + 0.2 * torch.randn(count, generator=g)
    return TensorDataset(draw_lines(angle, 0.2, g)[:, None], way)


def gauges(count, seed):
    """What a hand shows on a scale from 0 to 1, and the dial's rim."""
    g = torch.Generator().manual_seed(seed)
    value = torch.rand(count, generator=g)
    image = draw_lines(math.pi * (1.25 * value - 0.125), 0.12, g)
    grid = torch.linspace(-1, 1, SIDE)
    rim = ((grid**2 + grid[:, None] ** 2).sqrt() - 0.85).abs() < 0.08
    return TensorDataset((image + 0.8 * rim)[:, None], value)


def pretrain(path, steps):
    model = ConvNet(outputs=8)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    loader = DataLoader(arrows(512, 1), batch_size=32, shuffle=True)
    step = 0
    while step < steps:
        for image, way in loader:
            loss = nn.functional.cross_entropy(model(image), way)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step == steps:
                break
    print(f"pretrained: step {step} loss {loss.item():.6f}", flush=True)
    torch.save(
        {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "step": step,
        },
        path,
    )


def load_backbone(model, path):
    weights = torch.load(path, map_location="cpu")["model"]
    weights = {k: v for k, v in weights.items() if not k.startswith("head.")}
    missing, unexpected = model.load_state_dict(weights, strict=False)
    if unexpected or any(not name.startswith("head.") for name in missing):
        raise RuntimeError(f"not this network: {missing} {unexpected}")


@torch.inference_mode()
def mean_error(model, loader):
    model.eval()
    error = sum(
        (model(image).squeeze(1).sigmoid() - value).abs().sum().item()
        for image, value in loader
    )
    model.train()
    return error / len(loader.dataset)


def finetune(path, args, steps):
    model = ConvNet(outputs=1)
    load_backbone(model, path)
    model.stem.requires_grad_(False)
    optimizer = torch.optim.AdamW(
        [
            {"params": model.stem.parameters(), "lr": 0.0, "name": "stem"},
            {"params": model.body.parameters(), "lr": args.lr / 10, "name": "body"},
            {"params": model.head.parameters(), "lr": args.lr, "name": "head"},
        ],
        weight_decay=0.01,
    )
    loader = DataLoader(gauges(384, 3), batch_size=24, shuffle=True)
    test_loader = DataLoader(gauges(128, 4), batch_size=64)
    step = 0
    while step < steps:
        for image, value in loader:
            if step == steps // 2:
                model.stem.requires_grad_(True)
                for group in optimizer.param_groups:
                    group["lr"] = args.lr / 20
                optimizer.state.clear()
            guess = model(image).squeeze(1)
            loss = nn.functional.binary_cross_entropy_with_logits(guess, value)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % 10 == 0 or step == 1:
                print(f"step {step} loss {loss.item():.6f}", flush=True)
            if step == steps:
                break
        print(f"mean error {mean_error(model, test_loader):.4f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=120, help="of both parts together")
    parser.add_argument("--lr", type=float, default=5e-3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(44)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "arrows.pt"
        before = args.steps // 3
        pretrain(path, before)
        finetune(path, args, args.steps - before)


if __name__ == "__main__":
    main()
