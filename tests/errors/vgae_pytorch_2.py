import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim import Adam

ap = argparse.ArgumentParser(
    description="variational graph auto-encoder, link prediction"
)
ap.add_argument("--steps", type=int, default=200)
ap.add_argument("--fixed", action="store_true")
ap.add_argument("--prove", action="store_true")
ap.add_argument("--hidden1_dim", type=int, default=32)
ap.add_argument("--hidden2_dim", type=int, default=16)
ap.add_argument("--learning_rate", type=float, default=0.01)
args = ap.parse_args()

rng = np.random.RandomState(0)
torch.manual_seed(0)


# ---------------------------------------------------------------- data
def citation_graph(n=240, groups=6, words=80):
    """Papers cite papers of their own field; every field has its own words."""
    field = rng.randint(0, groups, n)
    p = np.where(field[:, None] == field[None], 0.12, 0.004)
    adj = np.triu(rng.rand(n, n) < p, 1).astype(np.float32)
    topic = rng.rand(groups, words) < 0.25
    feats = (rng.rand(n, words) < np.where(topic[field], 0.25, 0.04)).astype(np.float32)
    return adj + adj.T, feats / np.maximum(feats.sum(1, keepdims=True), 1)


def mask_test_edges(adj, share=0.15):
    edges = np.argwhere(np.triu(adj, 1) > 0)
    rng.shuffle(edges)
    k = int(len(edges) * share)
    test = edges[:k]
    negative = []
    while len(negative) < k:
        i, j = rng.randint(0, len(adj), 2)
        if i != j and adj[i, j] == 0:
            negative.append((i, j))
    train = adj.copy()
    train[test[:, 0], test[:, 1]] = 0
    train[test[:, 1], test[:, 0]] = 0
    return train, test, np.array(negative)


def preprocess_graph(adj):
    a = adj + np.eye(len(adj), dtype=np.float32)
    d = 1 / np.sqrt(a.sum(1))
    return torch.from_numpy((d[:, None] * a * d[None]).astype(np.float32)).to_sparse()


# ---------------------------------------------------------------- model
def glorot_init(i, o):
    r = np.sqrt(6.0 / (i + o))
    return nn.Parameter(torch.rand(i, o) * 2 * r - r)


class GraphConvSparse(nn.Module):
    def __init__(self, input_dim, output_dim, adj, activation=F.relu):
        super().__init__()
        self.weight = glorot_init(input_dim, output_dim)
        self.adj = adj
        self.activation = activation

    def forward(self, x):
        return self.activation(torch.sparse.mm(self.adj, x @ self.weight))


class VGAE(nn.Module):
    def __init__(self, adj, input_dim):
        super().__init__()
        linear = lambda x: x
        self.base_gcn = GraphConvSparse(input_dim, args.hidden1_dim, adj)
        self.gcn_mean = GraphConvSparse(
            args.hidden1_dim, args.hidden2_dim, adj, activation=linear
        )
        self.gcn_logstddev = GraphConvSparse(
            args.hidden1_dim, args.hidden2_dim, adj, activation=linear
        )

    def encode(self, X):
        hidden = self.base_gcn(X)
        self.mean = self.gcn_mean(hidden)
        self.logstd = self.gcn_logstddev(hidden)
        noise = torch.randn(X.size(0), args.hidden2_dim)
        return noise * torch.exp(self.logstd) + self.mean

    def forward(self, X):
        Z = self.encode(X)
        return Z @ Z.t()


def negative_kl(mean, logstd):
    """Minus the KL divergence to the unit normal, averaged over the nodes."""
    variance = torch.exp(logstd)
    if args.fixed:
        variance = torch.exp(logstd) ** 2
    return 0.5 * (1 + 2 * logstd - mean**2 - variance).sum(1).mean()


def get_auc(scores, pos, neg):
    s = scores.detach().numpy()
    a, b = s[pos[:, 0], pos[:, 1]], s[neg[:, 0], neg[:, 1]]
    return (a[:, None] > b[None]).mean() + 0.5 * (a[:, None] == b[None]).mean()


adj, features = citation_graph()
adj_train, test_edges, test_edges_false = mask_test_edges(adj)
features = torch.from_numpy(features.astype(np.float32))
adj_label = torch.from_numpy(adj_train + np.eye(len(adj_train), dtype=np.float32))
total = adj_train.size
pos_weight = float(total - adj_train.sum()) / adj_train.sum()
norm = total / float((total - adj_train.sum()) * 2)
weight_tensor = torch.where(adj_label == 1, torch.tensor(pos_weight), torch.tensor(1.0))

model = VGAE(preprocess_graph(adj_train), features.size(1))
optimizer = Adam(model.parameters(), lr=args.learning_rate)

# ---------------------------------------------------------------- train
for epoch in range(args.steps):
    A_pred = model(features)
    bce = norm * F.binary_cross_entropy_with_logits(
        A_pred, adj_label, weight=weight_tensor
    )
    kl = negative_kl(model.mean, model.logstd)
    loss = bce - kl / A_pred.size(0)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if (epoch + 1) % 40 == 0:
        print(
            "Epoch: %04d train_loss= %.5f kl= %.3f std= %.3f test_auc= %.4f"
            % (
                epoch + 1,
                loss.item(),
                -kl.item(),
                model.logstd.exp().mean().item(),
                get_auc(A_pred, test_edges, test_edges_false),
            )
        )

if args.prove:
    with torch.no_grad():
        model.encode(features)
        posterior = torch.distributions.Normal(model.mean, model.logstd.exp())
        prior = torch.distributions.Normal(torch.zeros(()), torch.ones(()))
        exact = torch.distributions.kl_divergence(posterior, prior).sum(1).mean().item()
        ours = -negative_kl(model.mean, model.logstd).item()
    print("KL term of the loss %.4f, closed form %.4f" % (ours, exact))
    print(
        "fault shows:",
        "yes" if abs(ours - exact) > 1e-3 * max(1.0, abs(exact)) else "no",
    )
