"""Which guild did a craftsman belong to?  Attention over a graph of contracts.

The guilds that are known go into the network along with the attributes.  In training a part
of the known nodes keeps its guild in the input and the rest has to be predicted.
"""
import argparse
import os
import statistics
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F

GUILDS = 7


class Archive:
    """Contracts mostly join people of the same guild; trades are only vaguely recorded."""

    def __init__(self, people=900, seed=1348):
        g = torch.Generator().manual_seed(seed)
        self.guild = torch.randint(0, GUILDS, (people,), generator=g)
        same = self.guild[:, None] == self.guild[None]
        chance = torch.where(same, 0.024, 0.0022)
        link = torch.triu(torch.rand(people, people, generator=g) < chance, 1)
        src, dst = link.nonzero().T
        loops = torch.arange(people)
        self.src = torch.cat([src, dst, loops])
        self.dst = torch.cat([dst, src, loops])
        centre = torch.randn(GUILDS, 24, generator=g)
        noise = torch.randn(people, 24, generator=g)
        self.x = 0.35 * centre[self.guild] + noise
        order = torch.randperm(people, generator=g)
        cut1, cut2 = people * 4 // 10, people * 6 // 10
        self.train, self.valid, self.test = order[:cut1], order[cut1:cut2], order[cut2:]


def scatter_softmax(score, index, size):
    top = torch.full((size, score.shape[1]), float("-inf"))
    top = top.scatter_reduce(0, index[:, None].expand_as(score), score.detach(), "amax")
    weight = (score - top[index]).exp()
    total = torch.zeros(size, score.shape[1]).index_add(0, index, weight)
    return weight / total[index]


class ContractAttention(nn.Module):
    def __init__(self, i, heads, each):
        super().__init__()
        self.heads, self.each = heads, each
        self.lin = nn.Linear(i, heads * each, bias=False)
        self.skip = nn.Linear(i, heads * each)
        self.att_dst = nn.Parameter(torch.randn(heads, each) * 0.2)
        self.att_src = nn.Parameter(torch.randn(heads, each) * 0.2)

    def forward(self, h, src, dst, keep=None):
        z = self.lin(h).view(-1, self.heads, self.each)
        score = F.leaky_relu(
            (z * self.att_src).sum(-1)[src] + (z * self.att_dst).sum(-1)[dst], 0.2
        )
        if keep is not None:
            src, dst, score = src[keep], dst[keep], score[keep]
        alpha = scatter_softmax(score, dst, len(h))
        mixed = torch.zeros_like(z).index_add(0, dst, alpha[..., None] * z[src])
        return mixed.flatten(1) + self.skip(h)


class GuildNet(nn.Module):
    def __init__(self, features, drop=0.4, edge_drop=0.2):
        super().__init__()
        self.first = ContractAttention(features + GUILDS, 4, 12)
        self.norm = nn.BatchNorm1d(48)
        self.second = ContractAttention(48, 4, 12)
        self.head = nn.Linear(48, GUILDS)
        self.drop, self.edge_drop = nn.Dropout(drop), edge_drop

    def forward(self, x, hints, src, dst):
        keep = None
        if self.training:
            keep = (torch.rand(len(src)) >= self.edge_drop) | (src == dst)
        h = torch.cat([self.drop(x), hints], 1)
        h = self.drop(F.elu(self.norm(self.first(h, src, dst, keep))))
        h = self.drop(F.elu(self.second(h, src, dst, keep)))
        return self.head(h)


def log_epsilon_loss(logits, target, eps=1 - torch.log(torch.tensor(2.0)).item()):
    """Cross-entropy under a logarithm: confident disagreements pull less."""
    ce = F.cross_entropy(logits, target, reduction="none")
    return (torch.log(eps + ce) - torch.log(torch.tensor(eps))).mean()


class Scholar:
    """One model with one seed."""

    def __init__(self, archive, seed, folder, reuse=1):
        torch.manual_seed(seed)
        self.a, self.reuse = archive, reuse
        self.net = GuildNet(archive.x.shape[1])
        self.optimizer = torch.optim.RMSprop(
            self.net.parameters(), lr=4e-3, weight_decay=5e-4
        )
        self.path = os.path.join(folder, f"guild_{seed}.pt")
        self.rng = torch.Generator().manual_seed(seed)

    def hints(self, known):
        h = torch.zeros(len(self.a.x), GUILDS)
        h[known, self.a.guild[known]] = 1.0
        return h

    def forward(self, hints):
        return self.net(self.a.x, hints, self.a.src, self.a.dst)

    def recycled(self, hints, unknown):
        """Predictions of a first pass stand in where no guild is given."""
        with torch.no_grad():
            for _ in range(self.reuse):
                hints = hints.clone()
                hints[unknown] = self.forward(hints)[unknown].softmax(1)
        return hints

    def step(self, epoch):
        lr = 4e-3 * min(1.0, (epoch + 1) / 10)
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.net.train()
        shown = torch.rand(len(self.a.train), generator=self.rng) < 0.5
        given, asked = self.a.train[shown], self.a.train[~shown]
        unknown = torch.cat([asked, self.a.valid, self.a.test])
        hints = self.recycled(self.hints(given), unknown)
        loss = log_epsilon_loss(self.forward(hints)[asked], self.a.guild[asked])
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    @torch.no_grad()
    def predict(self):
        self.net.eval()
        unknown = torch.cat([self.a.valid, self.a.test])
        return self.forward(self.recycled(self.hints(self.a.train), unknown))

    def accuracy(self, logits, nodes):
        return (logits[nodes].argmax(1) == self.a.guild[nodes]).float().mean().item()

    def fit(self, epochs):
        best = -1.0
        for epoch in range(epochs):
            loss = self.step(epoch)
            logits = self.predict()
            acc = self.accuracy(logits, self.a.valid)
            if acc > best:
                best = acc
                torch.save(self.net.state_dict(), self.path)
            if (epoch + 1) % max(1, epochs // 3) == 0:
                print(
                    f"   epoch {epoch + 1:3d}  loss {loss:.3f}  valid {acc:.3f}",
                    flush=True,
                )
        self.net.load_state_dict(torch.load(self.path, weights_only=True))
        return best, self.predict()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=45)
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args()

    archive = Archive()
    folder = tempfile.mkdtemp(prefix="guilds_")
    scores, votes = [], 0.0
    for seed in range(args.runs):
        print(f"run {seed}")
        scholar = Scholar(archive, seed, folder)
        valid, logits = scholar.fit(args.epochs)
        test = scholar.accuracy(logits, archive.test)
        scores.append(test)
        votes = votes + logits.softmax(1)
        print(f"   best valid {valid:.3f}  test {test:.3f}")
    spread = statistics.stdev(scores) if len(scores) > 1 else 0.0
    print(f"test {statistics.mean(scores):.3f} +- {spread:.3f} over {len(scores)} runs")
    print(f"test of the runs together {scholar.accuracy(votes, archive.test):.3f}")


if __name__ == "__main__":
    main()
