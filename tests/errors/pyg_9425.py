"""Predicts side effects of drugs as links of a graph (two GraphSAGE layers).

After pyg-team/pytorch_geometric, issue 9425.
"""

import argparse

import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

DRUGS, EFFECTS, WIDTH = 150, 120, 48


def make_graph(seed):
    """Pairs of a drug and an effect; links have no direction."""
    generator = torch.Generator().manual_seed(seed)
    drug = torch.randn(DRUGS, 4, generator=generator)
    effect = torch.randn(EFFECTS, 4, generator=generator)
    noise = torch.randn(DRUGS, EFFECTS, generator=generator)
    first, second = (drug @ effect.t() + 2 * noise > 3.4).nonzero(as_tuple=True)
    return torch.stack([first, second + DRUGS])


def random_link_split(pairs, num_val, num_test, is_undirected, seed):
    """Edges for the messages, and those to learn, to validate and to test."""
    generator = torch.Generator().manual_seed(seed)
    edges = pairs if is_undirected else torch.cat([pairs, pairs.flip(0)], 1)
    order = torch.randperm(edges.size(1), generator=generator)
    val, test = int(num_val * len(order)), int(num_test * len(order))
    parts = order.split([val, test, len(order) - val - test])
    val, test, train = (edges[:, part] for part in parts)
    messages = torch.cat([train, train.flip(0)], 1) if is_undirected else train
    return messages, train, val, test


class SAGEConv(nn.Module):
    def __init__(self, inside, outside):
        super().__init__()
        self.l = nn.Linear(inside, outside)
        self.r = nn.Linear(inside, outside, bias=False)

    def forward(self, x, edge_index):
        src, dst = edge_index
        total = torch.zeros_like(x).index_add_(0, dst, x[src])
        degree = torch.zeros(len(x)).index_add_(0, dst, torch.ones(len(dst)))
        return self.l(total / degree.clamp(min=1)[:, None]) + self.r(x)


class LinkModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(DRUGS + EFFECTS, WIDTH)
        self.c1, self.c2 = SAGEConv(WIDTH, WIDTH), SAGEConv(WIDTH, WIDTH)
        self.drop = nn.Dropout(0.2)

    def encode(self, edge_index):
        hidden = F.relu(self.c1(self.emb.weight, edge_index))
        return self.c2(self.drop(hidden), edge_index)

    def decode(self, z, pairs):
        return (z[pairs[0]] * z[pairs[1]]).sum(-1)


def negatives(pairs, known, generator):
    """One side is drawn anew, the direction stays; known pairs are left out."""
    src = pairs[0]
    effect = torch.randint(DRUGS, DRUGS + EFFECTS, src.shape, generator=generator)
    drug = torch.randint(0, DRUGS, src.shape, generator=generator)
    drawn = torch.where(src < DRUGS, effect, drug)
    both = zip(src.tolist(), drawn.tolist())
    keep = torch.tensor([(min(pair), max(pair)) not in known for pair in both])
    return torch.stack([src[keep], drawn[keep]])


@torch.no_grad()
def evaluate(model, messages, pairs, known, seed):
    """The area under the curve."""
    model.eval()
    z = model.encode(messages)
    others = negatives(pairs, known, torch.Generator().manual_seed(seed))
    right, wrong = model.decode(z, pairs)[:, None], model.decode(z, others)[None]
    model.train()
    return ((right > wrong).float() + 0.5 * (right == wrong).float()).mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    pairs = make_graph(args.seed)
    known = set(map(tuple, pairs.t().tolist()))
    messages, train, val, test = random_link_split(
        pairs, 0.1, 0.1, is_undirected=args.fixed, seed=args.seed
    )
    data = TensorDataset(train.t().contiguous())
    loader = DataLoader(data, batch_size=256, shuffle=True)
    model = LinkModel()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, weight_decay=1e-5)
    generator, step = torch.Generator().manual_seed(args.seed + 5), 0
    while step < args.steps:
        for (edges,) in loader:
            edges = edges.t()
            others = negatives(edges, known, generator)
            z = model.encode(messages)
            out = [model.decode(z, edges), model.decode(z, others)]
            label = [torch.ones_like(out[0]), torch.zeros_like(out[1])]
            loss = F.binary_cross_entropy_with_logits(torch.cat(out), torch.cat(label))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
            if step % 15 == 0:
                area = evaluate(model, messages, val, known, args.seed + 1)
                print(f"validation {area:.4f}", flush=True)
            if step == args.steps:
                break
    print(f"test {evaluate(model, messages, test, known, args.seed + 2):.4f}")
    if args.prove:
        passed = set(map(tuple, messages.t().tolist()))
        met = [(b, a) in passed or (a, b) in passed for a, b in test.t().tolist()]
        share = sum(met) / len(met)
        print(f"share of the pairs of the test that messages pass along {share:.4f}")
        print("fault shows:", "yes" if share > 0 else "no", flush=True)


if __name__ == "__main__":
    main()
