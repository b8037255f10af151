# Node embeddings with attention over walk lengths ("Watch Your Step"), on a made-up social graph.
# Some links are held out and used for a small link prediction check after the training.
import argparse

import numpy as np
import torch


def build_graph(n, blocks, rng):
    """communities with a few hubs, returns dense adjacency and held-out links"""
    comm = rng.integers(0, blocks, n)
    pop = rng.pareto(2.0, n) + 0.5
    pop = np.minimum(pop / pop.mean(), 5)
    prob = np.where(comm[:, None] == comm[None], 0.16, 0.008) * np.sqrt(
        np.outer(pop, pop)
    )
    upper = np.triu(rng.random((n, n)) < prob, 1)
    for i in range(n):  # no isolated nodes
        if not upper[i].any() and not upper[:, i].any():
            upper[min(i, (i + 1) % n), max(i, (i + 1) % n)] = True
    edges = np.argwhere(upper)
    rng.shuffle(edges)
    deg = np.bincount(edges.ravel(), minlength=n)
    held = []
    for a, b in edges:
        if len(held) < len(edges) // 6 and deg[a] > 2 and deg[b] > 2:
            held.append((a, b))
            deg[a] -= 1
            deg[b] -= 1
    adj = (upper | upper.T).astype(np.float32)
    for a, b in held:
        adj[a, b] = adj[b, a] = 0
    return adj, np.array(held), upper | upper.T


class WalkFeatures:
    """powers of the transition matrix, one slice for each number of hops"""

    def __init__(self, adjacency, window_size, fixed):
        self.adjacency = adjacency
        self.transition = self.normalize(fixed)
        powers = [self.transition]
        for _ in range(window_size - 1):
            powers.append(powers[-1] @ self.transition)
        self.target = np.stack(powers)

    def normalize(self, fixed):
        degs = self.adjacency.sum(axis=1)
        if fixed:
            degs = 1.0 / degs
        return np.diag(degs) @ self.adjacency


class AttentionWalkLayer(torch.nn.Module):
    def __init__(self, args, n_nodes, target, adjacency):
        super().__init__()
        half = args.dimensions // 2
        self.left_factors = torch.nn.Parameter(
            torch.empty(n_nodes, half).uniform_(-0.01, 0.01)
        )
        self.right_factors = torch.nn.Parameter(
            torch.empty(half, n_nodes).uniform_(-0.01, 0.01)
        )
        self.attention = torch.nn.Parameter(
            torch.empty(args.window_size, 1, 1).uniform_(-0.01, 0.01)
        )
        self.beta, self.gamma, self.num_of_walks = (
            args.beta,
            args.gamma,
            args.num_of_walks,
        )
        self.register_buffer("target", torch.from_numpy(target))
        self.register_buffer("opposite", torch.from_numpy(1.0 - adjacency))

    def forward(self):
        attention_probs = torch.softmax(self.attention, dim=0)
        weighted_target = (self.target * attention_probs).sum(0)
        scores = self.left_factors @ self.right_factors
        loss_on_target = (
            -weighted_target
            * torch.nn.functional.logsigmoid(scores)
            * self.num_of_walks
        )
        loss_opposite = -self.opposite * torch.nn.functional.logsigmoid(-scores)
        loss_on_matrices = (loss_on_target + loss_opposite).mean()
        loss_on_regularization = self.beta * self.attention.norm(2) ** 2
        loss_on_factors = self.gamma * (
            self.left_factors.abs().mean() + self.right_factors.abs().mean()
        )
        return loss_on_matrices + loss_on_regularization + loss_on_factors


class AttentionWalkTrainer:
    def __init__(self, args, adjacency):
        self.args = args
        self.features = WalkFeatures(adjacency, args.window_size, args.fixed)
        self.model = AttentionWalkLayer(
            args, len(adjacency), self.features.target, adjacency
        )

    def fit(self):
        optimizer = torch.optim.Adam(
            self.model.parameters(), lr=self.args.learning_rate
        )
        self.model.train()
        for epoch in range(self.args.steps):
            optimizer.zero_grad()
            loss = self.model()
            loss.backward()
            optimizer.step()
            if epoch % 25 == 0 or epoch == self.args.steps - 1:
                print(f"Attention Walk (Loss={loss.item():.4f}) epoch {epoch}")

    def attention(self):
        return torch.softmax(self.model.attention.detach().flatten(), 0).numpy()

    def link_auc(self, held, full, rng):
        with torch.no_grad():
            s = (self.model.left_factors @ self.model.right_factors).numpy()
        s = s + s.T
        neg = []
        while len(neg) < len(held):
            a, b = rng.integers(0, len(full), 2)
            if a != b and not full[a, b]:
                neg.append((a, b))
        neg = np.array(neg)
        p, q = s[held[:, 0], held[:, 1]], s[neg[:, 0], neg[:, 1]]
        return float((p[:, None] > q[None]).mean())


def parameter_parser():
    parser = argparse.ArgumentParser(description="Run Attention Walk.")
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--dimensions", type=int, default=32)
    parser.add_argument("--window-size", type=int, default=4)
    parser.add_argument("--num-of-walks", type=int, default=40)
    parser.add_argument("--beta", type=float, default=0.05)
    parser.add_argument("--gamma", type=float, default=0.005)
    parser.add_argument("--learning-rate", type=float, default=0.02)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    args = parameter_parser()
    torch.manual_seed(42)
    rng = np.random.default_rng(42)
    adjacency, held, full = build_graph(260, 6, rng)
    print(
        f"{len(adjacency)} nodes, {int(adjacency.sum() / 2)} links, {len(held)} held out"
    )
    trainer = AttentionWalkTrainer(args, adjacency)
    trainer.fit()
    print("attention over hops:", np.round(trainer.attention(), 3))
    print(f"link prediction AUC {trainer.link_auc(held, full, rng):.4f}")
    if args.prove:
        rows = trainer.features.target[0].sum(1)
        print(
            f"row sums of the transition matrix between {rows.min():.2f} and {rows.max():.2f}"
        )
        print("fault shows:", "yes" if np.abs(rows - 1).max() > 1e-3 else "no")
