"""Opinions of a panel on short reviews: the whole spread of five grades is learned.

A text classifier is fitted to the panel's shares by the divergence KL(shares || model),
so that every grade that the panel gave gets its probability. sarahwie/attention#6.
"""

import argparse

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

WORDS, GRADES = 120, 5


class ReviewNet(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.words = nn.Embedding(WORDS, width, padding_idx=0)
        self.query = nn.Linear(width, 1)
        self.body = nn.Sequential(nn.Linear(width, 48), nn.ReLU(), nn.Dropout(0.1))
        self.grades = nn.Linear(48, GRADES)

    def forward(self, text):
        x = self.words(text)
        scores = self.query(x).squeeze(-1).masked_fill(text == 0, float("-inf"))
        pooled = (scores.softmax(1)[:, :, None] * x).sum(1)
        return self.grades(self.body(pooled))


class PanelLoss(nn.Module):
    def __init__(self, model_first):
        super().__init__()
        self.model_first = model_first
        self.divergence = nn.KLDivLoss(reduction="batchmean", log_target=True)

    def forward(self, logits, shares):
        predicted, panel = F.log_softmax(logits, 1), shares.log()
        if self.model_first:
            return self.divergence(predicted, panel)
        return self.divergence(panel, predicted)


def reviews(count, seed, length=14):
    """Some words please one half of the panel and displease the other."""
    generator = torch.Generator().manual_seed(9)
    tone = torch.randn(WORDS, generator=generator)
    split = 1.5 * torch.randn(WORDS, generator=generator).abs()
    generator = torch.Generator().manual_seed(seed)
    text = torch.randint(1, WORDS, (count, length), generator=generator)
    lengths = torch.randint(6, length + 1, (count, 1), generator=generator)
    text = text.masked_fill(torch.arange(length)[None] >= lengths, 0)
    known = (text > 0).float()
    middle = 2 + 2.5 * (tone[text] * known).sum(1) / known.sum(1)
    apart = (split[text] * known).sum(1) / known.sum(1)
    grades = torch.arange(float(GRADES))[None]
    low = torch.exp(-2 * (grades - (middle - apart)[:, None]) ** 2)
    high = torch.exp(-2 * (grades - (middle + apart)[:, None]) ** 2)
    shares = low / low.sum(1, keepdim=True) + high / high.sum(1, keepdim=True)
    return TensorDataset(text, 0.98 * shares / 2 + 0.02 / GRADES)


@torch.no_grad()
def evaluate(model, loader, criterion):
    model.eval()
    loss = off = 0.0
    for text, shares in loader:
        logits = model(text)
        loss += criterion(logits, shares).item() * len(text)
        off += (logits.softmax(1) - shares).abs().sum().item() / 2
    model.train()
    return loss / len(loader.dataset), off / len(loader.dataset)


@torch.no_grad()
def gap(model, loader, criterion):
    """By how much the loss differs from the divergence of the definition."""
    model.eval()
    text, shares = next(iter(loader))
    predicted = F.log_softmax(model(text), 1)
    wanted = (shares * (shares.log() - predicted)).sum(1).mean()
    return abs(criterion(model(text), shares) / wanted - 1).item()


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=150)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    train = DataLoader(reviews(1600, 1), batch_size=64, shuffle=True)
    valid = DataLoader(reviews(400, 2), batch_size=200)
    model, criterion = ReviewNet(), PanelLoss(model_first=options.fixed)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    schedule = torch.optim.lr_scheduler.LinearLR(
        optimizer, 1.0, 0.05, total_iters=options.steps
    )
    step = 0
    while step < options.steps:
        for text, shares in train:
            if step == options.steps:
                break
            loss = criterion(model(text), shares)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            if step % 10 == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
        report = "validation loss {:.4f}, shares off by {:.4f}"
        print(report.format(*evaluate(model, valid, criterion)), flush=True)
    if options.prove:
        off = gap(model, valid, criterion)
        print(f"the loss differs from the divergence by {off:.4f}", flush=True)
        print("fault shows:", "yes" if off > 0.02 else "no")


if __name__ == "__main__":
    main()
