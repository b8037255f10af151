"""A graph autoencoder predicts links of a network of communities.

After wyx11112/GCMAE, issue 3.
"""

import argparse
import copy
import itertools
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


@dataclass
class Config:
    num_nodes: int = 260
    blocks: int = 6
    p_in: float = 0.22
    p_out: float = 0.012
    feat_dim: int = 24
    hidden: int = 48
    out_dim: int = 24
    val_ratio: float = 0.1
    test_ratio: float = 0.1
    batch_size: int = 256
    max_steps: int = 120
    lr: float = 1e-2
    weight_decay: float = 1e-4
    seed: int = 29


def make_graph(cfg):
    g = torch.Generator().manual_seed(1)
    block = torch.randint(0, cfg.blocks, (cfg.num_nodes,), generator=g)
    p = torch.where(block[:, None] == block[None], cfg.p_in, cfg.p_out)
    adj = torch.triu(torch.rand(cfg.num_nodes, cfg.num_nodes, generator=g) < p, 1)
    x = F.one_hot(block, cfg.feat_dim).float() * 0.7 + 0.6 * torch.randn(
        cfg.num_nodes, cfg.feat_dim, generator=g
    )
    return x, adj.nonzero().T


def split_permuted(edges, eids, n_val, n_test):
    test = edges[:, eids[:n_test]]
    val = edges[:, eids[n_test : n_test + n_val]]
    train = edges[:, eids]
    return train, val, test


def split_remaining(edges, eids, n_val, n_test):
    test = edges[:, eids[:n_test]]
    val = edges[:, eids[n_test : n_test + n_val]]
    train = edges[:, eids[n_test + n_val :]]
    return train, val, test


def negative_edges(n, num_nodes, known, g):
    """Uniform pairs that are neither an edge nor a self-loop."""
    out = torch.empty(2, 0, dtype=torch.long)
    while out.shape[1] < n:
        uv = torch.randint(0, num_nodes, (2, 2 * n), generator=g)
        out = torch.cat([out, uv[:, (uv[0] != uv[1]) & ~known[uv[0], uv[1]]]], 1)
    return out[:, :n]


def normalized_adj(edges, num_nodes):
    a = torch.eye(num_nodes)
    a[edges[0], edges[1]] = 1.0
    a[edges[1], edges[0]] = 1.0
    d = a.sum(1).rsqrt()
    return d[:, None] * a * d[None]


class Encoder(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.node = nn.Parameter(0.3 * torch.randn(cfg.num_nodes, cfg.hidden))
        self.inp = nn.Linear(cfg.feat_dim, cfg.hidden)
        self.conv1, self.conv2 = nn.Linear(cfg.hidden, cfg.hidden), nn.Linear(
            cfg.hidden, cfg.out_dim
        )
        self.drop = nn.Dropout(0.2)
        self.bias = nn.Parameter(torch.zeros(()))

    def forward(self, x, adj):
        h = self.drop(self.inp(x) + self.node)
        h = self.drop(F.relu(adj @ self.conv1(h)))
        return adj @ self.conv2(h)

    def score(self, z, pairs):
        return (z[pairs[0]] * z[pairs[1]]).sum(-1) + self.bias


def auc(pos, neg):
    return (
        ((pos[:, None] > neg[None]).float() + 0.5 * (pos[:, None] == neg[None]).float())
        .mean()
        .item()
    )


@torch.no_grad()
def evaluate(model, x, adj, pos, neg):
    model.eval()
    z = model(x, adj)
    model.train()
    return auc(model.score(z, pos), model.score(z, neg))


def train(cfg, split):
    torch.manual_seed(cfg.seed)
    g = torch.Generator().manual_seed(cfg.seed)
    x, edges = make_graph(cfg)
    n_edges = edges.shape[1]
    n_val, n_test = int(n_edges * cfg.val_ratio), int(n_edges * cfg.test_ratio)
    train_pos, val_pos, test_pos = split(
        edges, torch.randperm(n_edges, generator=g), n_val, n_test
    )
    every = torch.zeros(cfg.num_nodes, cfg.num_nodes, dtype=torch.bool)
    every[edges[0], edges[1]] = every[edges[1], edges[0]] = True
    held_neg = negative_edges(n_val + n_test, cfg.num_nodes, every, g)
    val_neg, test_neg = held_neg[:, :n_val], held_neg[:, n_val:]
    seen = torch.zeros_like(every)
    seen[train_pos[0], train_pos[1]] = seen[train_pos[1], train_pos[0]] = True

    loader = DataLoader(
        TensorDataset(torch.arange(train_pos.shape[1])), cfg.batch_size, shuffle=True
    )
    model = Encoder(cfg)
    opt = torch.optim.Adam(model.parameters(), lr=cfg.lr, weight_decay=cfg.weight_decay)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(
        opt, cfg.max_steps, eta_min=cfg.lr * 0.05
    )
    full_adj = normalized_adj(train_pos, cfg.num_nodes)
    step, best_val, best_state = 0, -1.0, None
    for epoch in itertools.count():
        running, n = 0.0, 0
        for (idx,) in loader:
            if step == cfg.max_steps:
                break
            context = torch.ones(train_pos.shape[1], dtype=torch.bool)
            context[idx] = False
            pos = train_pos[:, idx]
            neg = negative_edges(len(idx), cfg.num_nodes, seen, g)
            opt.zero_grad()
            z = model(x, normalized_adj(train_pos[:, context], cfg.num_nodes))
            logits = torch.cat([model.score(z, pos), model.score(z, neg)])
            target = torch.cat([torch.ones(len(idx)), torch.zeros(len(idx))])
            loss = F.binary_cross_entropy_with_logits(logits, target)
            loss.backward()
            opt.step()
            sched.step()
            step, running, n = step + 1, running + loss.item(), n + 1
        if n == 0:
            break
        val = evaluate(model, x, full_adj, val_pos, val_neg)
        if val > best_val:
            best_val, best_state = val, copy.deepcopy(model.state_dict())
        if epoch % 4 == 0:
            print(
                f"epoch {epoch} step {step} loss {running / n:.4f} val_auc {val:.4f}",
                flush=True,
            )
    model.load_state_dict(best_state)
    test = evaluate(model, x, full_adj, test_pos, test_neg)
    print(f"best val_auc {best_val:.4f} test_auc {test:.4f}")
    held = torch.cat([val_pos, test_pos], 1)
    return seen[held[0], held[1]].sum().item(), held.shape[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=Config.seed)
    parser.add_argument("--steps", type=int, default=Config.max_steps)
    parser.add_argument("--lr", type=float, default=Config.lr)
    args = parser.parse_args()
    torch.set_num_threads(1)
    cfg = Config(seed=args.seed, max_steps=args.steps, lr=args.lr)
    leaked, held = train(cfg, split_remaining if args.fixed else split_permuted)
    if args.prove:
        print(f"{leaked} of {held} edges that are held out are trained on")
        print("fault shows:", "yes" if leaked else "no", flush=True)


if __name__ == "__main__":
    main()
