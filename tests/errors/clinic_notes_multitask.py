"""Joint model for clinic notes: department (classification) and urgency (regression)."""
import argparse
import json
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

CONFIG = json.loads(
    """{
  "vocab": 400, "embed": 48, "channels": 64, "departments": 5,
  "batch_size": 32, "lr_body": 0.002, "lr_heads": 0.004,
  "weight_decay": 0.01, "urgency_weight": 0.5, "seed": 8, "accumulate": 2
}"""
)


class NotesDataset(Dataset):
    def __init__(self, n, seed, length=40):
        g = torch.Generator().manual_seed(seed)
        self.department = torch.randint(0, CONFIG["departments"], (n,), generator=g)
        self.tokens = torch.randint(50, CONFIG["vocab"], (n, length), generator=g)
        self.urgency = torch.zeros(n)
        for i in range(n):
            n_topic = int(torch.randint(3, 8, (1,), generator=g))
            n_alarm = int(torch.randint(0, 7, (1,), generator=g))
            where = torch.randperm(length, generator=g)
            low = 8 * int(self.department[i])
            self.tokens[i, where[:n_topic]] = torch.randint(
                low, low + 8, (n_topic,), generator=g
            )
            self.tokens[i, where[n_topic : n_topic + n_alarm]] = torch.randint(
                40, 50, (n_alarm,), generator=g
            )
            self.urgency[i] = n_alarm / 6 + 0.05 * torch.randn(1, generator=g).item()

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, i):
        return {
            "tokens": self.tokens[i],
            "department": self.department[i],
            "urgency": self.urgency[i],
        }


class NotesModel(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.embed = nn.Embedding(c["vocab"], c["embed"])
        self.conv = nn.Conv1d(c["embed"], c["channels"], 3, padding=1)
        self.norm = nn.LayerNorm(2 * c["channels"])
        self.department_head = nn.Linear(2 * c["channels"], c["departments"])
        self.urgency_head = nn.Sequential(
            nn.Linear(2 * c["channels"], 32), nn.ReLU(), nn.Linear(32, 1)
        )

    def body(self):
        return [
            *self.embed.parameters(),
            *self.conv.parameters(),
            *self.norm.parameters(),
        ]

    def forward(self, tokens):
        h = F.relu(self.conv(self.embed(tokens).transpose(1, 2)))
        h = self.norm(torch.cat([h.mean(-1), h.amax(-1)], 1))
        return self.department_head(h), self.urgency_head(h).squeeze(-1)


def make_optimizer(model, c, args):
    groups = [
        {"params": model.body(), "lr": c["lr_body"]},
        {"params": model.department_head.parameters(), "lr": c["lr_heads"]},
    ]
    if args.fixed:
        groups.append({"params": model.urgency_head.parameters(), "lr": c["lr_heads"]})
    return torch.optim.AdamW(groups, weight_decay=c["weight_decay"])


def losses(model, batch, c):
    dep, urg = model(batch["tokens"])
    l_dep = F.cross_entropy(dep, batch["department"])
    l_urg = F.mse_loss(urg, batch["urgency"])
    return l_dep + c["urgency_weight"] * l_urg, l_dep, l_urg


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    hits = err = n = 0
    for b in loader:
        dep, urg = model(b["tokens"])
        hits += (dep.argmax(1) == b["department"]).sum().item()
        err += (urg - b["urgency"]).abs().sum().item()
        n += len(dep)
    model.train()
    return hits / n, err / n


def endless(loader):
    while True:
        yield from loader


def train(args, c):
    torch.manual_seed(c["seed"])
    train_loader = DataLoader(
        NotesDataset(1600, 0), c["batch_size"], shuffle=True, drop_last=True
    )
    dev_loader = DataLoader(NotesDataset(300, 1), 100)
    model = NotesModel(c)
    start = {k: v.clone() for k, v in model.state_dict().items()}
    optimizer = make_optimizer(model, c, args)
    warm = torch.optim.lr_scheduler.LinearLR(optimizer, 0.2, 1.0, total_iters=10)
    data = endless(train_loader)
    model.train()
    for step in range(args.steps):
        model.zero_grad()
        log = torch.zeros(2)
        for _ in range(c["accumulate"]):
            total, l_dep, l_urg = losses(model, next(data), c)
            (total / c["accumulate"]).backward()
            log += torch.stack([l_dep.detach(), l_urg.detach()]) / c["accumulate"]
        optimizer.step()
        warm.step()
        if (step + 1) % 25 == 0:
            acc, mae = evaluate(model, dev_loader)
            print(
                f"{step + 1:4d} department {log[0]:.3f} urgency {log[1]:.4f} "
                f"| dev acc {acc:.3f} mae {mae:.3f}"
            )
    if args.prove:
        now = model.state_dict()
        still = all(
            torch.equal(start[k], now[k]) for k in now if k.startswith("urgency_head")
        )
        print("fault shows:", "yes" if still else "no")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog=Path(__file__).stem)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    train(parser.parse_args(), CONFIG)
