"""A small decoder is fine-tuned by adapters, which are exported and put on the base.

After pytorch/torchtitan, issue 3438.
"""

import argparse
import os
import tempfile
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


@dataclass
class Config:
    vocab: int = 24
    seq_len: int = 16
    dim: int = 40
    layers: int = 2
    heads: int = 4
    n_train: int = 960
    n_val: int = 256
    batch_size: int = 32
    base_epochs: int = 2
    epochs: int = 3
    base_lr: float = 4e-3
    lr: float = 6e-3
    rank: int = 4
    alpha: float = 8.0
    seed: int = 23


class Sequences(Dataset):
    """Each domain follows its own successor table with some noise."""

    def __init__(self, n, cfg, domain, seed):
        table = torch.randperm(
            cfg.vocab, generator=torch.Generator().manual_seed(1000 + domain)
        )
        g = torch.Generator().manual_seed(seed)
        ids = torch.randint(0, cfg.vocab, (n, cfg.seq_len + 1), generator=g)
        for t in range(1, cfg.seq_len + 1):
            keep = torch.rand(n, generator=g) < 0.85
            ids[:, t] = torch.where(keep, table[ids[:, t - 1]], ids[:, t])
        self.ids = ids

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return self.ids[i, :-1], self.ids[i, 1:]


class Block(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.heads = cfg.heads
        self.norm1, self.norm2 = nn.RMSNorm(cfg.dim), nn.RMSNorm(cfg.dim)
        self.wqkv, self.wo = nn.Linear(cfg.dim, 3 * cfg.dim, bias=False), nn.Linear(
            cfg.dim, cfg.dim, bias=False
        )
        self.w1, self.w2 = nn.Linear(cfg.dim, 2 * cfg.dim, bias=False), nn.Linear(
            2 * cfg.dim, cfg.dim, bias=False
        )

    def forward(self, x):
        B, T, D = x.shape
        q, k, v = (
            self.wqkv(self.norm1(x))
            .view(B, T, 3, self.heads, -1)
            .permute(2, 0, 3, 1, 4)
        )
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.wo(a.transpose(1, 2).reshape(B, T, D))
        return x + self.w2(F.silu(self.w1(self.norm2(x))))


class Decoder(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.tok, self.pos = nn.Embedding(cfg.vocab, cfg.dim), nn.Embedding(
            cfg.seq_len, cfg.dim
        )
        nn.init.normal_(self.tok.weight, std=0.05)
        nn.init.normal_(self.pos.weight, std=0.05)
        self.blocks = nn.ModuleList(Block(cfg) for _ in range(cfg.layers))
        self.norm, self.output = nn.RMSNorm(cfg.dim), nn.Linear(
            cfg.dim, cfg.vocab, bias=False
        )

    def forward(self, ids):
        x = self.tok(ids) + self.pos.weight
        for b in self.blocks:
            x = b(x)
        return self.output(self.norm(x))


class LoRALinear(nn.Module):
    def __init__(self, base, rank, alpha):
        super().__init__()
        self.base, self.scaling = base, alpha / rank
        self.lora_a = nn.Parameter(
            torch.randn(rank, base.in_features) / base.in_features**0.5
        )
        self.lora_b = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, x):
        return self.base(x) + (x @ self.lora_a.T) @ self.lora_b.T * self.scaling


def convert_linears(model, cfg):
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear):
                child.weight.requires_grad_(False)
                setattr(module, name, LoRALinear(child, cfg.rank, cfg.alpha))
    return model


def convert_model(model, cfg):
    model.requires_grad_(False)
    return convert_linears(model, cfg)


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    tot = sum(
        F.cross_entropy(model(x).flatten(0, 1), y.flatten()).item() * len(x)
        for x, y in loader
    )
    model.train()
    return tot / len(loader.dataset)


def fit(model, train_set, val_set, lr, epochs, cfg, tag):
    loader = DataLoader(train_set, cfg.batch_size, shuffle=True, drop_last=True)
    val_loader = DataLoader(val_set, 128)
    opt = torch.optim.AdamW(
        [p for p in model.parameters() if p.requires_grad], lr=lr, weight_decay=0.01
    )
    sched = torch.optim.lr_scheduler.OneCycleLR(
        opt, lr, total_steps=epochs * len(loader), pct_start=0.15
    )
    model.train()
    for epoch in range(epochs):
        running = 0.0
        for x, y in loader:
            opt.zero_grad()
            loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
            running += loss.item()
        mean, val = running / len(loader), evaluate(model, val_loader)
        print(f"{tag} epoch {epoch} train {mean:.4f} val {val:.4f}", flush=True)
    return val


def train(cfg, convert):
    torch.manual_seed(cfg.seed)
    with tempfile.TemporaryDirectory() as d:
        base = Decoder(cfg)
        fit(
            base,
            Sequences(cfg.n_train, cfg, 0, 1),
            Sequences(cfg.n_val, cfg, 0, 2),
            cfg.base_lr,
            cfg.base_epochs,
            cfg,
            "base",
        )
        torch.save(base.state_dict(), os.path.join(d, "base.pt"))
        val_set = Sequences(cfg.n_val, cfg, 1, 4)
        model = convert(base, cfg)
        train_set = Sequences(cfg.n_train, cfg, 1, 3)
        trained = fit(model, train_set, val_set, cfg.lr, cfg.epochs, cfg, "lora")
        adapter = {k: v for k, v in model.state_dict().items() if ".lora_" in k}
        torch.save(adapter, os.path.join(d, "adapter.pt"))

        served = Decoder(cfg)
        served.load_state_dict(torch.load(os.path.join(d, "base.pt")))
        served = convert(served, cfg)
        served.load_state_dict(torch.load(os.path.join(d, "adapter.pt")), strict=False)
        val = evaluate(served, DataLoader(val_set, 128))
    weights = sum(v.numel() for v in adapter.values())
    print(f"exported adapter ({weights} weights) val {val:.4f}")
    return val, trained


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=Config.seed)
    parser.add_argument("--base-epochs", type=int, default=Config.base_epochs)
    parser.add_argument("--epochs", type=int, default=Config.epochs)
    parser.add_argument("--lr", type=float, default=Config.lr)
    args = parser.parse_args()
    torch.set_num_threads(1)
    cfg = Config(
        seed=args.seed, base_epochs=args.base_epochs, epochs=args.epochs, lr=args.lr
    )
    served, trained = train(cfg, convert_model if args.fixed else convert_linears)
    if args.prove:
        print(f"loss with the adapter {served:.4f}, in the training {trained:.4f}")
        apart = abs(served - trained)
        print("fault shows:", "yes" if apart > 1e-3 else "no", flush=True)


if __name__ == "__main__":
    main()
