"""Support-ticket routing: which team should get the ticket?

A small transformer encoder over word ids with mean pooling. Tickets are generated from
templates so that the order of the words matters ("app crashed after payment" goes to
another team than "payment failed after crash").
"""
import argparse
import logging

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

log = logging.getLogger("tickets")

PAD = 0
FILLER = list(range(1, 60))
TOPICS = list(range(60, 68))  # payment, crash, login, refund, ...
LINK_AFTER, LINK_BEFORE = 68, 69
VOCAB = 70
MAX_LEN = 24


class Tickets(Dataset):
    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        self.rows, self.teams = [], []
        for _ in range(n):
            length = int(torch.randint(14, MAX_LEN + 1, (1,), generator=g))
            words = torch.randint(1, 60, (length,), generator=g)
            a, b = torch.randperm(len(TOPICS), generator=g)[:2].tolist()
            link = int(torch.randint(0, 2, (1,), generator=g))
            at = int(torch.randint(0, length - 3, (1,), generator=g))
            words[at : at + 3] = torch.tensor([TOPICS[a], LINK_AFTER + link, TOPICS[b]])
            # the topic that came first in time decides the team
            self.teams.append((b if link == 0 else a) // 2)
            self.rows.append(nn.functional.pad(words, (0, MAX_LEN - length), value=PAD))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i], self.teams[i]


class TicketRouter(nn.Module):
    def __init__(self, args, d_model=64, nhead=4, layers=2, teams=4):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, d_model, padding_idx=PAD)
        self.pos = nn.Parameter(torch.randn(MAX_LEN, d_model) * 0.1)
        conf = dict(d_model=d_model, nhead=nhead, dim_feedforward=128, dropout=0.1)
        if args.fixed:
            conf["batch_first"] = True
        layer = nn.TransformerEncoderLayer(**conf)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.classify = nn.Sequential(nn.LayerNorm(d_model), nn.Linear(d_model, teams))

    def forward(self, words):
        h = self.encoder(self.embed(words) + self.pos)
        real = (words != PAD).unsqueeze(-1).float()
        pooled = (h * real).sum(1) / real.sum(1)
        return self.classify(pooled)


class Trainer:
    def __init__(
        self, model, train_set, val_set, batch_size=32, lr=1.5e-3, log_every=25
    ):
        self.model = model
        self.loader = DataLoader(
            train_set, batch_size=batch_size, shuffle=True, drop_last=True
        )
        self.val_loader = DataLoader(val_set, batch_size=batch_size)
        self.optim = torch.optim.AdamW(model.parameters(), lr=lr)
        self.criterion = nn.CrossEntropyLoss(label_smoothing=0.05)
        self.log_every = log_every

    def train(self, steps):
        self.model.train()
        done, window = 0, []
        while done < steps:
            for words, team in self.loader:
                loss = self.criterion(self.model(words), team)
                self.optim.zero_grad(set_to_none=True)
                loss.backward()
                nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                self.optim.step()
                window.append(loss.item())
                done += 1
                if done % self.log_every == 0:
                    log.info("step %d loss %.3f", done, sum(window) / len(window))
                    window.clear()
                if done >= steps:
                    break

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        right = sum(
            (self.model(w).argmax(1) == t).sum().item() for w, t in self.val_loader
        )
        return right / len(self.val_loader.dataset)


def other_tickets_matter(model, data):
    """Does the answer for the first ticket change with the company it keeps?"""
    model.eval()
    rows = torch.stack([data[i][0] for i in range(8)])
    swapped = torch.cat([rows[:1], torch.stack([data[i][0] for i in range(20, 27)])])
    with torch.no_grad():
        return (model(rows)[0] - model(swapped)[0]).abs().max().item() > 1e-4


if __name__ == "__main__":
    cli = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    cli.add_argument("--steps", type=int, default=200)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    args = cli.parse_args()
    import sys

    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    torch.manual_seed(21)
    train_set, val_set = Tickets(3000, seed=1), Tickets(400, seed=2)
    trainer = Trainer(TicketRouter(args), train_set, val_set)
    trainer.train(args.steps)
    log.info("val accuracy %.3f", trainer.evaluate())
    if args.prove:
        print(
            "fault shows:",
            "yes" if other_tickets_matter(trainer.model, val_set) else "no",
        )
