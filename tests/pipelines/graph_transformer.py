"""Subjects of papers, full batch: the whole citation graph is one input, every node
attends to all others and each of a few dozen labelled nodes gives a term of the loss.
Edges and hops enter the attention as a bias; positions are eigenvectors of the
Laplacian, whose signs mean nothing and are therefore drawn anew in every step.

    python graph_transformer.py --steps 30
"""

from argparse import ArgumentParser
from copy import deepcopy

import torch
from torch import nn

SUBJECTS = 4
PAPERS = 160


def citations(seed=3):
    torch.manual_seed(seed)
    subject = torch.arange(PAPERS) % SUBJECTS
    same = subject[:, None] == subject[None, :]
    chance = torch.where(same, 0.12, 0.012)
    upper = torch.bernoulli(chance).triu(1)
    adjacency = upper + upper.T
    words = (torch.rand(PAPERS, 40) < 0.06).float()
    topical = torch.rand(PAPERS, 10) < 0.3
    for s in range(SUBJECTS):
        mine = subject == s
        words[mine, 10 * s : 10 * s + 10] += topical[mine].float()
    words = words.clamp(max=1.0)
    split = torch.randperm(PAPERS).split([48, 48, PAPERS - 96])
    masks = [
        torch.zeros(PAPERS, dtype=torch.bool).index_fill(0, i, True) for i in split
    ]
    return words, adjacency, subject, masks


def spectral_positions(adjacency, k):
    degree = adjacency.sum(1).clamp(min=1)
    scale = degree.rsqrt()
    laplacian = torch.eye(len(degree)) - scale[:, None] * adjacency * scale
    _, vectors = torch.linalg.eigh(laplacian)
    return vectors[:, 1 : k + 1] * len(degree) ** 0.5


def hops(adjacency, most=3):
    """0 itself, 1 a neighbour, 2 ... and `most` for everything further."""
    reach = torch.eye(len(adjacency), dtype=torch.bool)
    distance = torch.full(adjacency.shape, most)
    distance[reach] = 0
    for d in range(1, most):
        reach = (reach.float() @ (adjacency + torch.eye(len(adjacency)))) > 0
        distance[reach & (distance == most)] = d
    return distance


class GlobalAttention(nn.Module):
    def __init__(self, width, heads, distances, p):
        super().__init__()
        # unbatched: (nodes, width) in, (nodes, width) out
        self.attention = nn.MultiheadAttention(width, heads, dropout=p)
        self.hop_bias = nn.Embedding(distances, heads)
        with torch.no_grad():  # starts with a liking for what is near
            self.hop_bias.weight.copy_(-torch.arange(distances)[:, None])
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(2)])
        self.feed = nn.Sequential(
            nn.Linear(width, 2 * width),
            nn.SiLU(),
            nn.Dropout(p),
            nn.Linear(2 * width, width),
        )

    def forward(self, h, distance):
        bias = self.hop_bias(distance).permute(2, 0, 1)
        n = self.norms[0](h)
        h = h + self.attention(n, n, n, attn_mask=bias, need_weights=False)[0]
        return h + self.feed(self.norms[1](h))


class PaperNet(nn.Module):
    def __init__(self, words, positions, width=32, heads=4, depth=2, p=0.1):
        super().__init__()
        self.embed = nn.Linear(words, width)
        self.place = nn.Linear(positions, width, bias=False)
        self.layers = nn.ModuleList(
            GlobalAttention(width, heads, 4, p) for _ in range(depth)
        )
        self.drop = nn.Dropout(p)
        self.readout = nn.Linear(width, SUBJECTS)

    def forward(self, x, positions, distance):
        if self.training:
            flip = torch.randint(0, 2, (1, positions.size(1))) * 2 - 1
            positions = positions * flip
        h = self.drop(self.embed(x)) + self.place(positions)
        for layer in self.layers:
            h = layer(h, distance)
        return self.readout(h)


def main(steps, patience):
    torch.set_num_threads(1)
    words, adjacency, subject, (train, val, test) = citations()
    positions, distance = spectral_positions(adjacency, 6), hops(adjacency)
    model = PaperNet(words.size(1), positions.size(1))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, weight_decay=5e-4)
    ce = nn.CrossEntropyLoss()
    best, best_state, waited = 0.0, deepcopy(model.state_dict()), 0
    for step in range(steps):
        model.train()
        optimizer.zero_grad()
        out = model(words, positions, distance)
        loss = ce(out[train], subject[train])
        loss.backward()
        optimizer.step()

        model.eval()
        with torch.no_grad():
            guess = model(words, positions, distance).argmax(-1)
        accuracy = (guess == subject)[val].float().mean().item()
        print(f"{step:2d} train loss {loss.item():.4f} val accuracy {accuracy:.3f}")
        if accuracy > best:
            best, best_state, waited = accuracy, deepcopy(model.state_dict()), 0
        else:
            waited += 1
            if waited == patience:
                break
    model.load_state_dict(best_state)
    with torch.no_grad():
        guess = model(words, positions, distance).argmax(-1)
    print(f"test accuracy {(guess == subject)[test].float().mean().item():.3f}")


if __name__ == "__main__":
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--patience", type=int, default=20)
    main(**vars(parser.parse_args()))
