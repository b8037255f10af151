"""VIS4MER-4: a plateau scheduler waits for the accuracy to fall.

Source: md-mohaiminul/ViS4mer#4 (related: allenai/allennlp#2895). ReduceLROnPlateau gets
the validation accuracy and keeps its default mode, "min": each improvement counts as
a bad epoch, and the rate goes down although the model gets better. --fixed sets
mode="max".
"""

import argparse

import torch
from torch import nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.utils.data import DataLoader, TensorDataset


class ClipClassifier(nn.Module):
    """Decodes a movie clip's frame features into one of a few relations."""

    def __init__(self, channels=12, width=24, classes=5):
        super().__init__()
        self.embed = nn.Linear(channels, width)
        self.mix = nn.Conv1d(width, width, 3, padding=1, groups=width)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, frames):
        x = F.gelu(self.embed(frames))
        x = x + self.mix(x.transpose(1, 2)).transpose(1, 2)
        return self.head(self.norm(x).mean(dim=1))


def clips(count, frames=10, channels=12, classes=5):
    generator = torch.Generator().manual_seed(count)
    topics = 0.6 * torch.eye(classes, channels)
    labels = torch.randint(classes, (count,), generator=generator)
    noise = torch.randn(count, frames, channels, generator=generator)
    return TensorDataset(topics[labels][:, None] + noise, labels)


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    right = sum((model(x).argmax(1) == y).sum().item() for x, y in loader)
    model.train()
    return right / len(loader.dataset)


def rate(optimizer):
    return optimizer.param_groups[0]["lr"]


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=20)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    train_loader = DataLoader(clips(96), batch_size=32, shuffle=True)
    val_loader = DataLoader(clips(400), batch_size=100)
    model = ClipClassifier()
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.01)
    settings = {"mode": "max"} if options.fixed else {}
    scheduler = ReduceLROnPlateau(optimizer, factor=0.2, patience=1, **settings)
    step, best, lowered_at_best = 0, 0.0, False
    while step < options.steps:
        for frames, labels in train_loader:
            if step == options.steps:
                break
            loss = F.cross_entropy(model(frames), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
        accuracy = evaluate(model, val_loader)
        before = rate(optimizer)
        scheduler.step(accuracy)
        print(f"accuracy {accuracy:.3f} lr {rate(optimizer):.1e}", flush=True)
        if accuracy > best and rate(optimizer) < before:
            lowered_at_best = True
        best = max(best, accuracy)
    if options.prove:
        print("fault shows:", "yes" if lowered_at_best else "no")


if __name__ == "__main__":
    main()
