"""Research field of authors from a co-author graph (semi-supervised, transductive)."""
import argparse
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

FIELDS = ["algebra", "optics", "genomics", "linguistics", "hydrology"]


def coauthors(n=900, words=60, seed=64):
    """Degree corrected block graph, few shared papers, sparse word counts."""
    rng = np.random.default_rng(seed)
    field = rng.integers(0, len(FIELDS), n)
    activity = rng.pareto(2.2, n) + 0.35
    activity /= activity.mean()
    rate = np.where(field[:, None] == field[None, :], 9.0, 1.3) / n
    link = rng.random((n, n)) < np.outer(activity, activity) * rate
    source, target = np.nonzero(np.triu(link, 1))
    topic = rng.dirichlet(np.full(words, 0.25), len(FIELDS))
    general = rng.dirichlet(np.full(words, 1.0))
    counts = np.stack(
        [rng.multinomial(14, 0.3 * topic[f] + 0.7 * general) for f in field]
    )
    return {
        "x": torch.tensor(np.log1p(counts), dtype=torch.float32),
        "y": torch.tensor(field),
        "edges": torch.tensor(np.stack([source, target])),
    }


def split_nodes(y, per_field=16, n_valid=200, seed=3):
    g = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(y), generator=g)
    train = torch.cat([order[y[order] == k][:per_field] for k in range(len(FIELDS))])
    rest = order[~torch.isin(order, train)]
    return train, rest[:n_valid], rest[n_valid:]


def propagation(edges, n, fixed):
    """D^-1/2 (A + I) D^-1/2 as a sparse matrix, from one direction of every edge."""
    both = torch.cat([edges, edges.flip(0)], dim=1)
    degree = torch.bincount(both[0], minlength=n).float()
    loops = torch.arange(n).expand(2, n)
    index = torch.cat([both, loops], dim=1)
    if fixed:
        degree = torch.bincount(index[0], minlength=n).float()
    scale = degree.clamp(min=1).rsqrt()
    value = scale[index[0]] * scale[index[1]]
    return torch.sparse_coo_tensor(
        index, value, (n, n), check_invariants=True
    ).coalesce()


def drop_edges(edges, rate, generator):
    keep = torch.rand(edges.shape[1], generator=generator) >= rate
    return edges[:, keep]


class GraphConv(nn.Module):
    def __init__(self, fan_in, fan_out):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(fan_in, fan_out))
        self.bias = nn.Parameter(torch.zeros(fan_out))
        nn.init.xavier_uniform_(self.weight)

    def forward(self, matrix, x):
        return torch.sparse.mm(matrix, x @ self.weight) + self.bias


class FieldGCN(nn.Module):
    def __init__(self, words, hidden=32, depth=3, dropout=0.5):
        super().__init__()
        sizes = [words] + [hidden] * depth
        self.convs = nn.ModuleList(GraphConv(a, b) for a, b in zip(sizes, sizes[1:]))
        self.dropout = nn.Dropout(dropout)
        self.readout = nn.Linear(hidden * depth, len(FIELDS))

    def forward(self, matrix, x):
        kept = []
        for conv in self.convs:
            x = F.relu(conv(matrix, self.dropout(x)))
            kept.append(x)
        return self.readout(self.dropout(torch.cat(kept, dim=1)))


class FieldTask:
    def __init__(self, args):
        self.args = args
        self.graph = coauthors()
        self.n = len(self.graph["y"])
        self.train, self.valid, self.test = split_nodes(self.graph["y"])
        self.full = propagation(self.graph["edges"], self.n, args.fixed)
        self.model = FieldGCN(self.graph["x"].shape[1])
        decayed = [c.weight for c in self.model.convs]
        other = [c.bias for c in self.model.convs] + list(
            self.model.readout.parameters()
        )
        self.optimizer = torch.optim.Adam(
            [{"params": decayed, "weight_decay": 2e-3}, {"params": other}], lr=args.lr
        )
        self.generator = torch.Generator().manual_seed(args.seed)

    def step(self):
        edges = drop_edges(self.graph["edges"], self.args.drop, self.generator)
        matrix = propagation(edges, self.n, self.args.fixed)
        self.model.train()
        self.optimizer.zero_grad()
        out = self.model(matrix, self.graph["x"])
        loss = F.cross_entropy(out[self.train], self.graph["y"][self.train])
        loss.backward()
        self.optimizer.step()
        return loss.item()

    @torch.no_grad()
    def measure(self):
        self.model.eval()
        out = self.model(self.full, self.graph["x"])
        hits = (out.argmax(1) == self.graph["y"]).float()
        loss = F.cross_entropy(out[self.valid], self.graph["y"][self.valid]).item()
        return loss, hits[self.valid].mean().item(), hits[self.test].mean().item()


def prove(task):
    """Largest eigenvalue of the propagation matrix (a normalised one has exactly 1)."""
    vector = torch.ones(task.n, 1) / task.n**0.5
    for _ in range(300):
        vector = torch.sparse.mm(task.full, vector)
        size = vector.norm()
        vector = vector / size
    print(f"largest eigenvalue {size.item():.4f}")
    print("fault shows:", "yes" if size.item() > 1.001 else "no")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=120)
    parser.add_argument("--lr", type=float, default=8e-3)
    parser.add_argument("--drop", type=float, default=0.2)
    parser.add_argument("--seed", type=int, default=65)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(args.seed)

    task = FieldTask(args)
    print(f"{task.n} authors, {task.graph['edges'].shape[1]} links")
    best = {"valid_loss": float("inf")}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "field_gcn.pt"
        for epoch in range(1, args.epochs + 1):
            loss = task.step()
            valid_loss, valid, test = task.measure()
            if valid_loss < best["valid_loss"]:
                best = dict(epoch=epoch, valid_loss=valid_loss, valid=valid, test=test)
                torch.save(task.model.state_dict(), path)
            if epoch % 10 == 0:
                print(
                    f"{epoch:4d} loss {loss:.4f} valid {valid_loss:.4f} accuracy {valid:.3f}"
                )
    print("selected:", {k: round(v, 4) for k, v in best.items()})
    if args.prove:
        prove(task)


if __name__ == "__main__":
    main()
