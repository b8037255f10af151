"""Graph network predicting a made-up solubility of small random molecules."""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

ATOMS = 5


def random_molecule(g):
    n = int(torch.randint(6, 13, (1,), generator=g))
    kind = torch.randint(0, ATOMS, (n,), generator=g)
    adj = torch.zeros(n, n)
    for i in range(1, n):  # a tree ...
        j = int(torch.randint(0, i, (1,), generator=g))
        adj[i, j] = adj[j, i] = 1
    a, b = torch.randint(0, n, (2,), generator=g).tolist()
    if a != b:  # ... with one ring at most
        adj[a, b] = adj[b, a] = 1
    polar = torch.tensor([0.0, 1.0, -0.6, 0.4, -1.0])[kind]
    near = adj @ polar
    far = adj @ (near.tanh() * polar)
    y = (polar * near).mean() + 0.7 * far.mean() - 0.05 * n
    return kind, adj, y


def make_set(n, seed):
    g = torch.Generator().manual_seed(seed)
    return [random_molecule(g) for _ in range(n)]


def collate(mols):
    """pad to the biggest molecule in the batch"""
    top = max(len(k) for k, _, _ in mols)
    kind = torch.zeros(len(mols), top, dtype=torch.long)
    adj = torch.zeros(len(mols), top, top)
    mask = torch.zeros(len(mols), top)
    for b, (k, a, _) in enumerate(mols):
        kind[b, : len(k)] = k
        adj[b, : len(k), : len(k)] = a
        mask[b, : len(k)] = 1
    return kind, adj, mask, torch.stack([y for _, _, y in mols])


class MessageLayer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.own = nn.Linear(dim, dim)
        self.msg = nn.Linear(dim, dim)
        self.norm = nn.LayerNorm(dim)

    def forward(self, h, adj):
        return h + F.relu(self.norm(self.own(h) + adj @ self.msg(h)))


class GraphNet(nn.Module):
    def __init__(self, dim=48, depth=4):
        super().__init__()
        self.embed = nn.Embedding(ATOMS, dim)
        layers = [MessageLayer(dim)] * depth
        if args.fixed:
            layers = [MessageLayer(dim) for _ in range(depth)]
        self.layers = nn.ModuleList(layers)
        self.read = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, 1))

    def forward(self, kind, adj, mask):
        h = self.embed(kind)
        for layer in self.layers:
            h = layer(h, adj)
        pooled = (h * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        return self.read(pooled).squeeze(-1)


def mean_error(model, mols):
    model.eval()
    with torch.no_grad():
        kind, adj, mask, y = collate(mols)
        err = (model(kind, adj, mask) - y).abs().mean().item()
    model.train()
    return err


def fit(model, train, valid):
    opt = torch.optim.Adam(model.parameters(), lr=args.lr)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, factor=0.5, patience=2)
    step = 0
    while step < args.steps:
        order = torch.randperm(len(train)).tolist()
        for k in range(0, len(order), args.batch):
            kind, adj, mask, y = collate([train[i] for i in order[k : k + args.batch]])
            loss = F.smooth_l1_loss(model(kind, adj, mask), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            step += 1
            if step >= args.steps:
                break
        err = mean_error(model, valid)
        plateau.step(err)
        print(
            f"step {step} train loss {loss.item():.4f} valid MAE {err:.4f} lr {opt.param_groups[0]['lr']:.1e}"
        )


def main():
    torch.manual_seed(64)
    train, valid = make_set(800, 1), make_set(200, 2)
    model = GraphNet()
    fit(model, train, valid)
    print(f"final valid MAE {mean_error(model, valid):.4f}")

    if args.prove:
        # do the first and the last layer hold different weights after training?
        w0, w1 = model.layers[0].msg.weight, model.layers[-1].msg.weight
        print("fault shows:", "yes" if torch.equal(w0, w1) else "no")


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=125)
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--lr", type=float, default=3e-3)
    p.add_argument("--fixed", action="store_true")
    p.add_argument("--prove", action="store_true")
    args = p.parse_args()
    main()
