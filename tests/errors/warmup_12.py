"""A convolutional network tells spoken commands apart from their log-mel pictures.

AdamW, a linear warm-up and a cosine after it. After pytorch_warmup, issue 12.
"""

import argparse
import math

import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

MELS, FRAMES, COMMANDS = 24, 32, 6


class CommandNet(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(width, 2 * width, 3, padding=1, bias=False),
            nn.BatchNorm2d(2 * width),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.classifier = nn.Sequential(
            nn.Flatten(),
            nn.Dropout(0.2),
            nn.Linear(2 * width * (MELS // 4) * (FRAMES // 4), COMMANDS),
        )

    def forward(self, mels):
        return self.classifier(self.features(mels))


def recordings(count, seed):
    """Two formants that glide; each command has its own start and slope."""
    generator = torch.Generator().manual_seed(seed)
    command = torch.randint(COMMANDS, (count,), generator=generator)
    time = torch.linspace(-1, 1, FRAMES)
    bins = torch.arange(MELS)[None, :, None]
    shift = 2 * torch.randn(count, 2, generator=generator)
    mels = 0.8 * torch.randn(count, MELS, FRAMES, generator=generator)
    for formant, (base, slope) in enumerate([(6.0, 1.2), (17.0, -0.9)]):
        glide = slope * (command - (COMMANDS - 1) / 2)
        centre = base + shift[:, formant, None] * 0.4 + glide[:, None] * time
        mels += 2 * torch.exp(-((bins - centre[:, None]) ** 2) / 3)
    return TensorDataset(mels[:, None], command)


def warmup_cosine(warmup, total):
    def factor(step):
        if step < warmup:
            return (step + 1) / warmup
        return 0.5 * (1 + math.cos(math.pi * (step - warmup) / (total - warmup)))

    return factor


def train_epoch(model, loader, optimizer, scheduler, args, step):
    model.train()
    for mels, command in loader:
        loss = F.cross_entropy(model(mels), command, label_smoothing=0.05)
        if args.fixed:
            optimizer.zero_grad()
        loss.backward()
        if not args.fixed:
            optimizer.zero_grad()
        optimizer.step()
        scheduler.step()
        print(f"step {step} loss {loss.item():.4f}", flush=True)
        step += 1
    return step


@torch.no_grad()
def accuracy(model, loader):
    model.eval()
    right = sum((model(mels).argmax(1) == y).sum().item() for mels, y in loader)
    return right / len(loader.dataset)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=3e-3)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    train = DataLoader(recordings(640, args.seed), args.batch_size, shuffle=True)
    valid = DataLoader(recordings(240, args.seed + 1), batch_size=120)
    model = CommandNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)
    total = args.epochs * len(train)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, warmup_cosine(10, total))
    first = nn.utils.parameters_to_vector(model.parameters()).detach().clone()
    step = 0
    for epoch in range(args.epochs):
        step = train_epoch(model, train, optimizer, scheduler, args, step)
        print(f"epoch {epoch} accuracy {accuracy(model, valid):.4f}", flush=True)
    if args.prove:
        last = nn.utils.parameters_to_vector(model.parameters()).detach()
        moved = (last - first).norm().item()
        print(f"the parameters moved by {moved:.6f}")
        print("fault shows:", "yes" if moved == 0 else "no", flush=True)


if __name__ == "__main__":
    main()
