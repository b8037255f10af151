"""GS-1366: gradients are clipped when the step has been made already.

Source: awslabs/graphstorm#1366 (also VGraphRNN/VGRNN#4 and
jongwook/onsets-and-frames#24). The trainer clips after optimizer.step(); the step
has used the whole gradient, and the next iteration clears the clipped one: the
option has no effect. --fixed clips between backward and step.
"""

import argparse

import torch
from torch import nn


class SageLayer(nn.Module):
    def __init__(self, inside, outside):
        super().__init__()
        self.own = nn.Linear(inside, outside)
        self.neighbours = nn.Linear(inside, outside, bias=False)

    def forward(self, h, adjacency):
        return self.own(h) + self.neighbours(adjacency @ h)


class NodeModel(nn.Module):
    def __init__(self, features=12, width=32, classes=4):
        super().__init__()
        self.first = SageLayer(features, width)
        self.second = SageLayer(width, classes)
        self.dropout = nn.Dropout(0.2)

    def forward(self, features, adjacency):
        h = self.first(features, adjacency).relu()
        return self.second(self.dropout(h), adjacency)


class NodePredictionTrainer:
    def __init__(self, model, clip_before_step):
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
        self.clip_before_step = clip_before_step

    def clip(self, max_grad_norm):
        if max_grad_norm is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), max_grad_norm)

    def fit(self, graph, steps, batch_size, max_grad_norm=None):
        features, adjacency, labels = graph
        for step in range(steps):
            seeds = torch.randperm(len(labels))[:batch_size]
            logits = self.model(features, adjacency)[seeds]
            loss = nn.functional.cross_entropy(logits, labels[seeds])
            self.optimizer.zero_grad()
            loss.backward()
            if self.clip_before_step:
                self.clip(max_grad_norm)
            self.optimizer.step()
            if not self.clip_before_step:
                self.clip(max_grad_norm)
            print(f"step {step} loss {loss.item():.4f}", flush=True)


def citations(count):
    """Papers of four topics that cite their own topic more often."""
    labels = torch.arange(count) % 4
    same = labels[:, None] == labels
    edges = torch.rand(count, count) < torch.where(same, 0.06, 0.01)
    edges = (edges | edges.T).float()
    adjacency = edges / edges.sum(1, keepdim=True).clamp(min=1)
    features = 2 * torch.randn(count, 12) + 1.5 * nn.functional.one_hot(labels, 12)
    return features, adjacency, labels


def norm(model):
    norms = [p.grad.norm() for p in model.parameters() if p.grad is not None]
    return torch.stack(norms).norm().item()


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=24)
    cli.add_argument("--max-grad-norm", type=float, default=0.2)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    graph = citations(240)
    model = NodeModel()
    trainer = NodePredictionTrainer(model, clip_before_step=options.fixed)
    used = []
    if options.prove:
        trainer.optimizer.register_step_pre_hook(lambda *_: used.append(norm(model)))
    trainer.fit(graph, options.steps, 64, options.max_grad_norm)
    if options.prove:
        over = max(used) > 1.01 * options.max_grad_norm
        print("fault shows:", "yes" if over else "no")


if __name__ == "__main__":
    main()
