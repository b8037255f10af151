"""
Message passing network for a solubility-like property of (random) molecules.
Dense adjacency, padded to MAX_ATOMS, batches made by hand.
"""
import argparse

import numpy as np
import torch
import torch.nn as nn

MAX_ATOMS = 16
ATOM_TYPES = 5  # C N O F S
HIDDEN = 48


def random_molecule(rng):
    n = int(rng.integers(6, MAX_ATOMS + 1))
    types = rng.choice(ATOM_TYPES, n, p=[0.6, 0.12, 0.18, 0.05, 0.05])
    adj = np.zeros((MAX_ATOMS, MAX_ATOMS), dtype=np.float32)
    for i in range(1, n):
        j = int(rng.integers(max(0, i - 3), i))
        adj[i, j] = adj[j, i] = 1
    for _ in range(int(rng.integers(0, 3))):  # rings
        i, j = rng.choice(n, 2, replace=False)
        adj[i, j] = adj[j, i] = 1
    feats = np.zeros((MAX_ATOMS, ATOM_TYPES), dtype=np.float32)
    feats[np.arange(n), types] = 1
    mask = np.zeros(MAX_ATOMS, dtype=np.float32)
    mask[:n] = 1
    polar = np.isin(types, [1, 2]).sum()
    # carbons that have a polar neighbour count half
    near = sum(
        1
        for k in range(n)
        if types[k] == 0 and any(adj[k, m] and types[m] in (1, 2) for m in range(n))
    )
    target = (
        0.9 * polar
        + 0.35 * near
        - 0.25 * n
        - 0.4 * (types == 3).sum()
        + rng.normal(0, 0.1)
    )
    return feats, adj, mask, target


def make_dataset(n, seed):
    rng = np.random.default_rng(seed)
    f, a, m, t = zip(*[random_molecule(rng) for _ in range(n)])
    return (
        torch.tensor(np.stack(f)),
        torch.tensor(np.stack(a)),
        torch.tensor(np.stack(m)),
        torch.tensor(np.array(t), dtype=torch.float32),
    )


class MessagePassing(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.msg = nn.Linear(dim, dim)
        self.upd = nn.GRUCell(dim, dim)

    def forward(self, h, adj):
        b, n, d = h.shape
        m = torch.bmm(adj, self.msg(h))
        return self.upd(m.reshape(b * n, d), h.reshape(b * n, d)).view(b, n, d)


class SolubilityNet(nn.Module):
    def __init__(self, rounds=3):
        super().__init__()
        self.embed = nn.Linear(ATOM_TYPES, HIDDEN)
        self.mp = MessagePassing(HIDDEN)
        self.rounds = rounds
        self.gate = nn.Linear(HIDDEN, HIDDEN)
        self.readout = nn.Sequential(
            nn.Linear(HIDDEN, HIDDEN), nn.SiLU(), nn.Linear(HIDDEN, 1)
        )

    def forward(self, x, adj, mask):
        h = self.embed(x)
        for _ in range(self.rounds):
            h = self.mp(h, adj)
        g = (torch.sigmoid(self.gate(h)) * h * mask.unsqueeze(-1)).sum(1)
        return self.readout(g)


def batches(data, size, generator):
    order = torch.randperm(len(data[0]), generator=generator)
    for i in range(0, len(order) - size + 1, size):
        idx = order[i : i + size]
        yield tuple(d[idx] for d in data)


def train(args):
    torch.manual_seed(0)
    train_data = make_dataset(1600, 100)
    test_data = make_dataset(400, 200)
    mean, std = train_data[3].mean(), train_data[3].std()

    model = SolubilityNet()
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=args.steps)
    loss_fn = nn.MSELoss()
    gen = torch.Generator().manual_seed(3)

    step = 0
    history = []
    while step < args.steps:
        for x, adj, mask, y in batches(train_data, 50, gen):
            pred = model(x, adj, mask)
            if args.fixed:
                pred = pred.squeeze(-1)
            loss = loss_fn(pred, (y - mean) / std)
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
            history.append(loss.item())
            out_last, y_last = pred.detach(), (y - mean) / std
            step += 1
            if step % 40 == 0:
                print(
                    f"[{step:4d}/{args.steps}] loss {np.mean(history[-40:]):.4f}  lr {sched.get_last_lr()[0]:.2e}"
                )
            if step >= args.steps:
                break

    model.eval()
    with torch.no_grad():
        pred = model(*test_data[:3]).squeeze(-1) * std + mean
    rmse = (pred - test_data[3]).pow(2).mean().sqrt().item()
    print(f"test RMSE {rmse:.4f} (std of the targets {test_data[3].std().item():.4f})")
    last = (loss.item(), (out_last.flatten() - y_last).pow(2).mean().item())
    return pred, test_data[3], last


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--steps", type=int, default=240)
    p.add_argument("--fixed", action="store_true")
    p.add_argument("--prove", action="store_true")
    args = p.parse_args()
    import warnings

    warnings.filterwarnings("ignore")  # keep the log readable
    pred, target, last = train(args)
    if args.prove:
        ratio = (pred.std() / target.std()).item()
        r2 = 1 - ((pred - target).pow(2).mean() / target.var()).item()
        print(f"spread of predictions / spread of targets {ratio:.3f}, R2 {r2:.3f}")
        print(
            f"last batch: loss {last[0]:.4f}, mean of squared differences per molecule {last[1]:.4f}"
        )
        print("fault shows:", "yes" if abs(last[0] - last[1]) > 1e-4 else "no")


if __name__ == "__main__":
    main()
