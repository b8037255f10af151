"""Classifies nodes with graph attention on sampled neighbourhoods: seeds from a
DataLoader, a collate function that samples, AdamW, lower rates on a plateau.

    python gat.py --steps 100
"""

import argparse
import functools
import json
import pathlib
import time

import torch
from torch import nn
import torch.nn.functional as F
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.utils.data import DataLoader


class AttentionLayer(nn.Module):
    """Several heads; every node weighs its in-edges by a softmax over them."""

    def __init__(self, inputs, outputs, heads, concat=True):
        super().__init__()
        self.heads, self.outputs, self.concat = heads, outputs, concat
        self.project = nn.Linear(inputs, heads * outputs, bias=False)
        self.source = nn.Parameter(torch.empty(heads, outputs))
        self.target = nn.Parameter(torch.empty(heads, outputs))
        self.bias = nn.Parameter(torch.zeros(heads * outputs if concat else outputs))
        self.dropout = nn.Dropout(0.3)
        for parameter in (self.project.weight, self.source, self.target):
            nn.init.xavier_uniform_(parameter, gain=1.4)

    def forward(self, x, edges):
        source, target = edges
        h = self.project(self.dropout(x)).view(-1, self.heads, self.outputs)
        score = (h * self.source).sum(-1)[source] + (h * self.target).sum(-1)[target]
        score = F.leaky_relu(score, 0.2)
        row = target[:, None].expand_as(score)
        top = torch.full_like(h[..., 0], float("-inf"))
        top = top.scatter_reduce(0, row, score.detach(), "amax")
        weight = (score - top[target]).exp()
        total = torch.zeros_like(h[..., 0]).index_add(0, target, weight)
        weight = self.dropout(weight / total[target])
        out = torch.zeros_like(h).index_add(0, target, h[source] * weight[..., None])
        out = out.flatten(1) if self.concat else out.mean(1)
        return out + self.bias


class GAT(nn.Module):
    def __init__(self, inputs, hidden, heads, classes):
        super().__init__()
        self.layers = nn.ModuleList(
            [
                AttentionLayer(inputs, hidden, heads),
                AttentionLayer(hidden * heads, hidden, heads),
            ]
        )
        self.norms = nn.ModuleList([nn.LayerNorm(hidden * heads) for _ in self.layers])
        self.out = AttentionLayer(hidden * heads, classes, 1, concat=False)

    def forward(self, x, edges):
        for layer, norm in zip(self.layers, self.norms):
            x = F.elu(norm(layer(x, edges)))
        return self.out(x, edges)


class Web:
    """Pages in communities; `neighbours[i]` are the pages that point to page i."""

    def __init__(self, nodes, features, classes, degree, seed):
        g = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(classes, (nodes,), generator=g)
        centres = torch.randn(classes, features, generator=g)
        noise = torch.randn(nodes, features, generator=g)
        self.x = centres[self.labels] + 2.0 * noise
        # A neighbour is of the page's own community, or any.
        order = torch.argsort(self.labels, stable=True)
        first = torch.searchsorted(self.labels[order], self.labels)
        size = torch.bincount(self.labels, minlength=classes)[self.labels]
        draw = torch.rand(nodes, degree, generator=g)
        alike = order[first[:, None] + (draw * size[:, None]).long()]
        others = torch.randint(nodes, (nodes, degree), generator=g)
        far = torch.rand(nodes, degree, generator=g) < 0.2
        self.neighbours = torch.where(far, others, alike)


def neighbourhood(web, hops, seeds):
    """The pages within some hops of the seeds, numbered anew, seeds first."""
    nodes = torch.tensor(seeds)
    sources, targets = [nodes], [nodes]
    frontier = nodes
    for _ in range(hops):
        near = web.neighbours[frontier]
        sources.append(near.flatten())
        targets.append(frontier.repeat_interleave(near.shape[1]))
        frontier = near.unique()
    edges = torch.stack([torch.cat(sources), torch.cat(targets)])
    seen, index = torch.unique(edges, return_inverse=True)
    place = torch.searchsorted(seen, nodes)
    loops = torch.arange(len(seen)).expand(2, -1)
    return web.x[seen], torch.cat([index, loops], 1), place, web.labels[nodes]


def evaluate(model, loader):
    model.eval()
    loss = right = count = 0
    with torch.no_grad():
        for x, edges, place, labels in loader:
            output = model(x, edges)[place]
            loss += F.cross_entropy(output, labels, reduction="sum").item()
            right += (output.argmax(1) == labels).sum().item()
            count += len(labels)
    model.train()
    return loss / count, right / count


def main(options):
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    web = Web(4000, 64, 5, 5, options.seed)
    collate = functools.partial(neighbourhood, web, 2)
    pages = torch.randperm(4000).tolist()
    train = DataLoader(pages[:3200], batch_size=options.batch_size, shuffle=True,
                       collate_fn=collate)  # fmt: skip
    validation = DataLoader(pages[3200:3400], batch_size=100, collate_fn=collate)
    model = GAT(64, options.hidden, 4, 5)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=1e-2)
    scheduler = ReduceLROnPlateau(optimizer, factor=0.5, patience=1)
    step, times, history = 0, [time.perf_counter()], []
    while step < options.steps:
        for x, edges, place, labels in train:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x, edges)[place], labels)
            loss.backward()
            optimizer.step()
            print(f"step {step} loss {loss.item().hex()}", flush=True)
            times.append(time.perf_counter())
            step += 1
            if step % 40 == 0:
                seen, right = evaluate(model, validation)
                scheduler.step(seen)
                history.append({"step": step, "loss": seen, "accuracy": right})
            if step == options.steps:
                break
    print(json.dumps(history))
    if options.times:
        pathlib.Path(options.times).write_text("".join(f"{t!r}\n" for t in times))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=48)
    parser.add_argument("--hidden", type=int, default=24)
    parser.add_argument("--times", help="file for the moment of each step's end")
    main(parser.parse_args())
