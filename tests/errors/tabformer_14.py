"""Payments of card holders: is the last one of a row of ten a fraud?

Fields of a payment are embedded and joined; a transformer encoder then reads the ten
payments of each holder. IBM/TabFormer#14.
"""

import argparse

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

SHOPS, HOURS, AMOUNTS, ROWS = 20, 24, 16, 10


class PaymentEncoder(nn.Module):
    def __init__(self, batch_first, width=48):
        super().__init__()
        self.shop = nn.Embedding(SHOPS, 16)
        self.hour = nn.Embedding(HOURS, 16)
        self.amount = nn.Embedding(AMOUNTS, 16)
        self.places = nn.Parameter(0.1 * torch.randn(1, ROWS, width))
        layer = nn.TransformerEncoderLayer(
            width, 4, 96, dropout=0.1, batch_first=batch_first
        )
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 1))

    def forward(self, rows):
        fields = [self.shop(rows[..., 0]), self.hour(rows[..., 1])]
        x = torch.cat(fields + [self.amount(rows[..., 2])], -1) + self.places
        return self.head(self.encoder(x)[:, -1]).squeeze(-1)


def payments(count, seed):
    """A fraud is a payment at a shop that is new to the holder, or an odd hour."""
    generator = torch.Generator().manual_seed(seed)

    def draw(limit, *shape):
        return torch.randint(limit, shape, generator=generator)

    usual = draw(SHOPS, count, 3)
    shops = usual.gather(1, draw(3, count, ROWS))
    hours = (draw(HOURS, count, 1) + draw(4, count, ROWS)) % HOURS
    amounts = (draw(10, count, 1) + draw(6, count, ROWS)) % AMOUNTS
    fraud = torch.rand(count, generator=generator) < 0.4
    shops[fraud, -1] = draw(SHOPS, int(fraud.sum()))
    odd = fraud & (torch.rand(count, generator=generator) < 0.7)
    hours[odd, -1] = draw(5, int(odd.sum()))
    amounts[fraud, -1] = 6 + draw(10, int(fraud.sum()))
    return TensorDataset(torch.stack([shops, hours, amounts], -1), fraud.float())


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    scores = torch.cat([model(rows) for rows, _ in loader])
    fraud = torch.cat([y for _, y in loader])
    loss = F.binary_cross_entropy_with_logits(scores, fraud).item()
    higher = scores[fraud == 1][:, None] > scores[fraud == 0][None, :]
    model.train()
    return loss, higher.float().mean().item()


@torch.no_grad()
def influence(model, loader):
    """How much the others of a batch change the score of its first holder."""
    model.eval()
    rows, _ = next(iter(loader))
    return (model(rows)[0] - model(rows[:1])[0]).abs().item()


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=120)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    train = DataLoader(payments(1920, 1), batch_size=64, shuffle=True)
    valid = DataLoader(payments(512, 2), batch_size=128)
    model = PaymentEncoder(batch_first=options.fixed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, 2e-3, total_steps=options.steps, pct_start=0.2
    )
    step = 0
    while step < options.steps:
        for rows, fraud in train:
            if step == options.steps:
                break
            loss = F.binary_cross_entropy_with_logits(model(rows), fraud)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            if step % 10 == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
        report = "validation loss {:.4f}, area {:.4f}"
        print(report.format(*evaluate(model, valid)), flush=True)
    if options.prove:
        gap = influence(model, valid)
        print(f"others change a score by {gap:.6f}", flush=True)
        print("fault shows:", "yes" if gap > 1e-3 else "no")


if __name__ == "__main__":
    main()
