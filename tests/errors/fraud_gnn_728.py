# Fraud detection on transactions linked through cards, devices and e-mail domains.
# Relational graph network, full batch, transductive split by time.
import argparse
import logging
import sys

import numpy as np
import torch as th
import torch.nn as nn
import torch.nn.functional as F

logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(message)s")
logger = logging.getLogger(__name__)


def build_graph(n_tx, seed):
    """returns {relation: sparse [tx, entity]}, features, labels"""
    rng = np.random.default_rng(seed)
    entities = {"card": 500, "device": 200, "email": 60}
    risk = {
        k: (rng.random(n) < 0.12) * rng.uniform(1, 3, n) for k, n in entities.items()
    }
    rels, logit = {}, -3.6 + 0.6 * rng.standard_normal(n_tx)
    for k, n in entities.items():
        to = rng.integers(0, n, n_tx)
        logit = logit + risk[k][to]
        rels[k] = (n, to)
    amount = rng.gamma(2.0, 1.0, n_tx)
    logit = logit + 0.3 * (amount - 2)
    labels = (rng.random(n_tx) < 1 / (1 + np.exp(-logit))).astype(np.int64)
    feats = np.stack(
        [np.log1p(amount)] + [rng.standard_normal(n_tx) for _ in range(15)], 1
    )
    feats[:, 1] += 0.5 * labels
    adj = {}
    for k, (n, to) in rels.items():
        idx = th.from_numpy(np.stack([np.arange(n_tx), to]))
        adj[k] = th.sparse_coo_tensor(idx, th.ones(n_tx), (n_tx, n)).coalesce()
    return adj, th.from_numpy(feats).float(), th.from_numpy(labels)


class HeteroRGCNLayer(nn.Module):
    def __init__(self, in_size, out_size, relations):
        super().__init__()
        self.loop = nn.Linear(in_size, out_size)
        self.weight = nn.ModuleDict(
            {r: nn.Linear(in_size, out_size, bias=False) for r in relations}
        )

    def forward(self, adj, h):
        out = self.loop(h)
        for r, lin in self.weight.items():
            a = adj[r]
            deg = th.sparse.sum(a, 0).to_dense().clamp(min=1)[:, None]
            ent = th.sparse.mm(a.t(), lin(h)) / deg
            out = out + th.sparse.mm(a, ent)
        return out


class HeteroRGCN(nn.Module):
    def __init__(
        self, relations, in_size, hidden_size, out_size, n_layers, embedding_size
    ):
        super().__init__()
        sizes = [in_size] + [hidden_size] * (n_layers - 1) + [embedding_size]
        self.layers = nn.ModuleList(
            [HeteroRGCNLayer(a, b, relations) for a, b in zip(sizes, sizes[1:])]
        )
        self.out = nn.Linear(embedding_size, out_size)

    def forward(self, adj, features):
        h = features
        for layer in self.layers:
            h = F.leaky_relu(layer(adj, h))
        return self.out(h)


def average_precision(score, y):
    order = score.argsort(descending=True)
    hit = y[order].float()
    prec = hit.cumsum(0) / th.arange(1, len(hit) + 1)
    return (prec * hit).sum().item() / max(hit.sum().item(), 1)


def evaluate(model, adj, features, labels, mask):
    model.eval()
    with th.no_grad():
        p = model(adj, features).softmax(1)[:, 1]
    return average_precision(p[mask], labels[mask])


def compute_loss(loss_fn, pred, labels, train_mask, fixed):
    if fixed:
        pred, labels = pred[train_mask], labels[train_mask]
    return loss_fn(pred, labels)


def train_fg(model, optim, loss, features, labels, train_mask, test_mask, adj, args):
    """full graph training"""
    for epoch in range(args.steps):
        model.train()
        pred = model(adj, features)
        loss_val = compute_loss(loss, pred, labels, train_mask, args.fixed)
        optim.zero_grad()
        loss_val.backward()
        optim.step()
        if epoch % 10 == 0 or epoch == args.steps - 1:
            ap_train = evaluate(model, adj, features, labels, train_mask)
            logger.info(
                "Epoch %05d | Loss %.4f | AP train %.4f",
                epoch,
                loss_val.item(),
                ap_train,
            )
    return model


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", "--n-epochs", dest="steps", type=int, default=120)
    parser.add_argument("--n-hidden", type=int, default=32)
    parser.add_argument("--n-layers", type=int, default=3)
    parser.add_argument("--lr", type=float, default=1e-2)
    parser.add_argument("--weight-decay", type=float, default=5e-4)
    parser.add_argument("--embedding-size", type=int, default=64)
    parser.add_argument("--n-tx", type=int, default=4000)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    return parser.parse_args()


def main():
    args = parse_args()
    th.manual_seed(0)
    adj, features, labels = build_graph(args.n_tx, 17)
    # the last fifth in time is kept for the test
    test_mask = th.zeros(args.n_tx, dtype=th.bool)
    test_mask[int(0.8 * args.n_tx) :] = True
    train_mask = ~test_mask
    mean, std = features[train_mask].mean(0), features[train_mask].std(0)
    features = (features - mean) / std
    logger.info(
        "%d transactions, %.1f%% fraud, %d for test",
        args.n_tx,
        100 * labels.float().mean(),
        int(test_mask.sum()),
    )

    model = HeteroRGCN(
        list(adj),
        features.size(1),
        args.n_hidden,
        2,
        args.n_layers,
        args.embedding_size,
    )
    pos = labels[train_mask].float().mean().item()
    loss = nn.CrossEntropyLoss(weight=th.tensor([1.0, min(5.0, (1 - pos) / pos)]))
    optim = th.optim.Adam(
        model.parameters(), lr=args.lr, weight_decay=args.weight_decay
    )
    train_fg(model, optim, loss, features, labels, train_mask, test_mask, adj, args)
    logger.info("AP test %.4f", evaluate(model, adj, features, labels, test_mask))

    if args.prove:
        pred = model(adj, features).detach().requires_grad_(True)
        compute_loss(loss, pred, labels, train_mask, args.fixed).backward()
        print("fault shows:", "yes" if pred.grad[test_mask].abs().sum() > 0 else "no")


if __name__ == "__main__":
    main()
