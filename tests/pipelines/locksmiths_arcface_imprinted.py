"""Key profiles: whose blank is this? ArcFace training, retrieval on keys never trained on, new keys imprinted.

The margin is only in the training loss (and grows over the first half), so the training logits are
worse than those of plain use, and the loss may rise while the margin does. Batches hold P keys with
K scans each. Validation and test keys are other keys than the trained ones. At the end, new keys get
classifier rows that are the mean embeddings of a few scans, and only those rows are tuned a little.
"""
import argparse
import json
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, Sampler

CONFIG = {
    "keys": {"train": 24, "valid": 10, "test": 10, "new": 6},
    "scans": {"train": 30, "valid": 12, "test": 12, "new": 17},
    "length": 64,
    "emb": 24,
    "width": 32,
    "P": 8,
    "K": 4,
    "batches_per_epoch": 30,
    "epochs": 7,
    "scale": 16.0,
    "margin": 0.3,
    "lr": 3e-3,
    "wd": 5e-4,
    "shots": 5,
    "tune_steps": 30,
    "seed": 47,
}


class Scans(Dataset):
    """A key has a few cuts at its own depths; a scan is shifted, scaled, tilted and noisy."""

    def __init__(self, cfg, split):
        splits = list(cfg["keys"])
        g = torch.Generator().manual_seed(cfg["seed"] * 10 + splits.index(split))
        n, m, length = cfg["keys"][split], cfg["scans"][split], cfg["length"]
        depths = torch.randint(1, 6, (n, 8), generator=g).float() / 5
        base = F.interpolate(
            depths.unsqueeze(1), size=length - 8, mode="linear"
        ).squeeze(1)
        self.x, self.y = [], []
        for k in range(n):
            for _ in range(m):
                at = int(torch.randint(0, 9, (1,), generator=g))
                row = torch.zeros(length)
                row[at : at + length - 8] = base[k] * (
                    0.8 + 0.4 * torch.rand(1, generator=g)
                )
                row += 0.3 * torch.randn(1, generator=g) * torch.linspace(-1, 1, length)
                self.x.append(row + 0.12 * torch.randn(length, generator=g))
                self.y.append(k)
        self.x, self.y = torch.stack(self.x).unsqueeze(1), torch.tensor(self.y)

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


class PKSampler(Sampler):
    """P keys a batch, K scans each, without repeats inside a batch."""

    def __init__(self, labels, p, k, batches):
        self.rows = [(labels == c).nonzero().squeeze(1) for c in labels.unique()]
        self.p, self.k, self.batches = p, k, batches

    def __len__(self):
        return self.batches

    def __iter__(self):
        for _ in range(self.batches):
            batch = []
            for c in torch.randperm(len(self.rows))[: self.p].tolist():
                batch += self.rows[c][
                    torch.randperm(len(self.rows[c]))[: self.k]
                ].tolist()
            yield batch


class Backbone(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        w = cfg["width"]
        self.net = nn.Sequential(
            nn.Conv1d(1, w, 7, 2, 3),
            nn.BatchNorm1d(w),
            nn.PReLU(w),
            nn.Conv1d(w, w, 5, 2, 2),
            nn.BatchNorm1d(w),
            nn.PReLU(w),
            nn.Conv1d(w, w, 3, 2, 1),
            nn.BatchNorm1d(w),
            nn.PReLU(w),
            nn.Flatten(),
            nn.Linear(w * cfg["length"] // 8, cfg["emb"], bias=False),
            nn.BatchNorm1d(cfg["emb"]),
        )

    def forward(self, x):
        return F.normalize(self.net(x), dim=1)


class ArcHead(nn.Module):
    def __init__(self, classes, cfg):
        super().__init__()
        self.weight = nn.Parameter(F.normalize(torch.randn(classes, cfg["emb"]), dim=1))
        self.scale, self.margin = cfg["scale"], 0.0

    def forward(self, emb, target=None):
        cos = F.linear(emb, F.normalize(self.weight, dim=1)).clamp(-1 + 1e-6, 1 - 1e-6)
        if target is None or self.margin == 0:
            return self.scale * cos
        own = cos.gather(1, target.unsqueeze(1))
        widened = torch.cos(torch.acos(own) + self.margin)
        # past pi - m the cosine would rise again: go on with a straight line there
        widened = torch.where(
            own > math.cos(math.pi - self.margin),
            widened,
            own - self.margin * math.sin(self.margin),
        )
        return self.scale * cos.scatter(1, target.unsqueeze(1), widened)


@torch.no_grad()
def embed(model, x):
    model.eval()
    return torch.cat([model(c) for c in x.split(128)])


def recall_at_1(model, data):
    """Every scan is a query against all other scans; itself is not a candidate."""
    e = embed(model, data.x)
    sim = e @ e.T
    sim.fill_diagonal_(-2.0)
    return (data.y[sim.argmax(1)] == data.y).float().mean().item()


def imprint(backbone, head, data, cfg):
    """Rows for new keys, from `shots` scans each; the old rows and the backbone stay as they are."""
    old = head.weight.detach().clone()
    n_old, n_new = len(old), cfg["keys"]["new"]
    order = torch.cat(
        [(data.y == c).nonzero().squeeze(1)[: cfg["shots"]] for c in range(n_new)]
    )
    rest = torch.ones(len(data), dtype=torch.bool)
    rest[order] = False
    emb, y = embed(backbone, data.x), data.y
    fresh = torch.stack(
        [F.normalize(emb[order][y[order] == c].mean(0), dim=0) for c in range(n_new)]
    )
    head.weight = nn.Parameter(torch.cat([F.normalize(old, dim=1), fresh]))
    kept = head.weight.detach()[:n_old].clone()
    backbone.requires_grad_(False)
    mask = torch.zeros(n_old + n_new, 1)
    mask[n_old:] = 1.0
    head.weight.register_hook(lambda g: g * mask)
    opt = torch.optim.SGD(
        [head.weight], lr=0.02
    )  # no momentum, no decay: old rows cannot drift
    head.margin = 0.0
    losses = []
    for _ in range(cfg["tune_steps"]):
        loss = F.cross_entropy(head(emb[order]), y[order] + n_old)
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.item())
    assert torch.equal(head.weight.detach()[:n_old], kept)
    with torch.no_grad():
        acc = (head(emb[rest]).argmax(1) == y[rest] + n_old).float().mean().item()
    return losses, acc


# size: the whole run in one place, read from top to bottom
def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=CONFIG["epochs"])
    args = ap.parse_args()
    cfg = dict(CONFIG, epochs=args.epochs)
    torch.manual_seed(cfg["seed"])
    data = {s: Scans(cfg, s) for s in cfg["keys"]}
    loader = DataLoader(
        data["train"],
        batch_sampler=PKSampler(
            data["train"].y, cfg["P"], cfg["K"], cfg["batches_per_epoch"]
        ),
    )
    backbone, head = Backbone(cfg), ArcHead(cfg["keys"]["train"], cfg)
    opt = torch.optim.AdamW(
        [
            {
                "params": [p for p in backbone.parameters() if p.dim() > 1],
                "weight_decay": cfg["wd"],
            },
            {
                "params": [p for p in backbone.parameters() if p.dim() <= 1],
                "weight_decay": 0.0,
            },
            {
                "params": head.parameters(),
                "weight_decay": 0.0,
            },  # its length has no meaning
        ],
        lr=cfg["lr"],
    )
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, args.epochs * len(loader))
    start = recall_at_1(backbone, data["valid"])
    best, best_state, plain_log, step = -1.0, None, [], 0
    for epoch in range(args.epochs):
        backbone.train()
        with_margin = without = 0.0
        for x, y in loader:
            head.margin = cfg["margin"] * min(
                1.0, step / (0.5 * args.epochs * len(loader))
            )
            emb = backbone(x)
            loss = F.cross_entropy(head(emb, y), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
            step += 1
            with_margin += loss.item() / len(loader)
            with torch.no_grad():
                without += F.cross_entropy(head(emb.detach()), y).item() / len(loader)
        recall = recall_at_1(backbone, data["valid"])
        plain_log.append(without)
        if recall >= best:
            best, best_state = recall, {
                k: v.clone() for k, v in backbone.state_dict().items()
            }
            best_head = head.weight.detach().clone()
        print(
            json.dumps(
                {
                    "epoch": epoch,
                    "margin": round(head.margin, 3),
                    "loss": round(with_margin, 4),
                    "loss without margin": round(without, 4),
                    "recall on unseen keys": round(recall, 4),
                }
            )
        )
    backbone.load_state_dict(best_state)
    with torch.no_grad():
        head.weight.copy_(best_head)
    test = recall_at_1(backbone, data["test"])
    losses, new_acc = imprint(backbone, head, data["new"], cfg)
    print(
        f"recall@1 valid {start:.3f} -> {best:.3f}, test keys {test:.3f}; "
        f"new keys among all: {new_acc:.3f} (tuning {losses[0]:.3f} -> {losses[-1]:.3f})"
    )
    assert losses[-1] < losses[0]
    if args.epochs >= CONFIG["epochs"]:
        assert (
            plain_log[-1] < 0.3 * plain_log[0]
            and best > start
            and test > 0.8
            and new_acc > 0.8
        )


if __name__ == "__main__":
    main()
