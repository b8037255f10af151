"""Pollution class of river stations, with known classes fed in as features.

Masked label prediction on a graph (UniMP, Shi et al., 2021). Every epoch a random part
of the surveyed stations is hidden and predicted while the classes of the remaining
surveyed stations enter the network as inputs. For inference all surveyed stations may
be used as inputs, for the stations without a survey are the ones to be predicted.
"""

import argparse
import copy
import pathlib
import tempfile

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

CLASSES = 4


def river_network(stations, rng):
    """A branching tree of stations with a few canals; pollution drifts downstream."""
    parent = np.full(stations, -1)
    for i in range(1, stations):
        parent[i] = rng.integers(max(0, i - 25), i)
    edges = [(i, parent[i]) for i in range(1, stations)]
    for _ in range(stations // 20):
        a = rng.integers(0, stations - 10)
        edges.append((a, a + rng.integers(2, 10)))
    level = np.zeros(stations)
    level[0] = rng.normal()
    for i in range(1, stations):
        level[i] = 0.96 * level[parent[i]] + 0.28 * rng.normal()
    cuts = np.quantile(level, [0.25, 0.5, 0.75])
    label = np.digitize(level, cuts)
    features = np.stack(
        [
            level + rng.normal(0, 0.9, stations),
            rng.normal(0, 1, stations) + 0.4 * level**2,
            np.sin(2 * level) + rng.normal(0, 1.0, stations),
            *rng.normal(0, 1, (5, stations)),
        ],
        axis=1,
    )
    return np.array(edges), features, label


def normalised_adjacency(edges, stations):
    loops = np.stack([np.arange(stations)] * 2, axis=1)
    links = np.unique(np.concatenate([edges, edges[:, ::-1], loops]), axis=0)
    scale = np.bincount(links[:, 0], minlength=stations) ** -0.5
    values = scale[links[:, 0]] * scale[links[:, 1]]
    return torch.sparse_coo_tensor(
        torch.from_numpy(links.T.copy()),
        torch.tensor(values, dtype=torch.float32),
        (stations, stations),
        check_invariants=True,
    ).coalesce()


class MaskedLabelNet(nn.Module):
    """Graph convolutions over features plus embeddings of visible classes."""

    def __init__(self, inputs, hidden=32, layers=3, dropout=0.5):
        super().__init__()
        self.features = nn.Linear(inputs, hidden)
        self.classes = nn.Embedding(CLASSES + 1, hidden, padding_idx=CLASSES)
        self.mixes = nn.ModuleList(nn.Linear(hidden, hidden) for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(hidden) for _ in range(layers))
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(hidden, CLASSES)

    def forward(self, adjacency, features, visible):
        x = self.features(features) + self.classes(visible)
        for mix, norm in zip(self.mixes, self.norms):
            x = x + self.dropout(F.relu(mix(torch.sparse.mm(adjacency, norm(x)))))
        return self.out(x)


class Survey:
    def __init__(self, args):
        rng = np.random.default_rng(args.seed + 31)
        edges, features, label = river_network(args.stations, rng)
        self.adjacency = normalised_adjacency(edges, args.stations)
        self.features = torch.tensor(features, dtype=torch.float32)
        self.label = torch.from_numpy(label)
        order = torch.from_numpy(rng.permutation(args.stations))
        n_train = int(0.4 * args.stations)
        n_valid = int(0.2 * args.stations)
        self.train, self.valid, self.rest = order.tensor_split(
            [n_train, n_train + n_valid]
        )
        self.generator = torch.Generator().manual_seed(args.seed)
        self.hide = args.hide

    def visible(self, rows):
        classes = torch.full_like(self.label, CLASSES)
        classes[rows] = self.label[rows]
        return classes

    def split_training(self):
        """Stations to predict and stations whose class is shown, never both."""
        coin = torch.rand(len(self.train), generator=self.generator)
        hidden = coin < self.hide
        return self.train[hidden], self.train[~hidden]


def train_epoch(model, survey, optimizer):
    model.train()
    predict, show = survey.split_training()
    optimizer.zero_grad()
    logits = model(survey.adjacency, survey.features, survey.visible(show))
    loss = F.cross_entropy(logits[predict], survey.label[predict])
    loss.backward()
    optimizer.step()
    return loss.item()


@torch.no_grad()
def evaluate(model, survey, rows, show):
    model.eval()
    logits = model(survey.adjacency, survey.features, survey.visible(show))[rows]
    label = survey.label[rows]
    hits = (logits.argmax(dim=1) == label).float().mean().item()
    return F.cross_entropy(logits, label).item(), hits


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--stations", type=int, default=2000)
    parser.add_argument("--epochs", type=int, default=120)
    parser.add_argument("--hide", type=float, default=0.5)
    parser.add_argument("--lr", type=float, default=5e-3)
    args = parser.parse_args()
    torch.manual_seed(args.seed)

    survey = Survey(args)
    model = MaskedLabelNet(survey.features.shape[1])
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=2e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs)
    nothing = survey.train[:0]
    best_loss, best_state, best_epoch = float("inf"), None, None
    recent = []
    for epoch in range(1, args.epochs + 1):
        recent.append(train_epoch(model, survey, optimizer))
        schedule.step()
        loss, hits = evaluate(model, survey, survey.valid, survey.train)
        if loss < best_loss:
            best_loss, best_epoch = loss, epoch
            best_state = copy.deepcopy(model.state_dict())
        if epoch % 20 == 0:
            print(
                f"epoch {epoch:3d} hidden stations {np.mean(recent[-20:]):.4f} "
                f"valid {loss:.4f} hits {hits:.3f}"
            )

    model.load_state_dict(best_state)
    print(f"weights of epoch {best_epoch}")
    for title, show in (("surveyed classes shown", survey.train), ("none", nothing)):
        loss, hits = evaluate(model, survey, survey.rest, show)
        print(f"  unsurveyed stations, {title}: loss {loss:.4f} hits {hits:.3f}")
    with tempfile.TemporaryDirectory() as folder:
        torch.save(best_state, pathlib.Path(folder, "stations.pt"))


if __name__ == "__main__":
    main()
