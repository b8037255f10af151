"""As built_in_signs.py: mistakes in how a model is made.

    built_in_models.py [--right] [CASE...]
"""

import copy

import torch
from torch import nn
from torch.nn import functional as F

from built_in_signs import CLASSES, STEPS, Classifier, main, samples, train


class Attention(nn.Module):
    def __init__(self, dimension: int):
        super().__init__()
        self.embed = nn.Linear(2, 8)
        self.project = nn.Linear(8, 24)
        self.head = nn.Linear(8, CLASSES)
        self.dimension = dimension

    def forward(self, x):
        rows = self.embed(x.unflatten(1, (4, 2)))
        q, k, v = self.project(rows).chunk(3, dim=-1)
        weights = (q @ k.transpose(1, 2) / 8**0.5).softmax(self.dimension)
        return self.head((weights @ v).mean(1))


def attention_over_queries(right: bool) -> None:
    """The softmax runs over the other dimension of the scores."""
    train(Attention(-1 if right else 1))


def layer_of_one_number(right: bool) -> None:
    """All weights of a hidden layer begin with one value."""
    model = Classifier()
    if not right:
        for parameter in model.parameters():
            nn.init.constant_(parameter, 0.1)
    train(model)


def adam_in_half(right: bool) -> None:
    """eps is zero in float16."""
    model = nn.Linear(8, CLASSES, dtype=torch.float16)
    optimizer = torch.optim.Adam(model.parameters(), eps=1e-3 if right else 1e-8)
    train(lambda x: model(x.half()).float(), optimizer=optimizer)


def target_of_random_numbers(right: bool) -> None:
    """A target network that did not begin as a copy."""
    net = Classifier()
    target = copy.deepcopy(net) if right else Classifier()
    pair = nn.ModuleDict({"net": net, "target": target.requires_grad_(False)})
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    for _ in range(STEPS):
        x, y = samples(16)
        optimizer.zero_grad()
        scores = pair["net"](x)
        loss = F.cross_entropy(scores, y) + F.mse_loss(scores, pair["target"](x))
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for mine, other in zip(target.parameters(), net.parameters()):
                mine.lerp_(other, 0.05)


class Scaled(Classifier):
    """Scores are divided by a temperature that is to be learned."""

    def __init__(self, scale: torch.Tensor):
        super().__init__()
        self.scale = scale

    def forward(self, x):
        return super().forward(x) * self.scale


def scale_that_is_an_attribute(right: bool) -> None:
    scale = torch.tensor(2.0)
    train(Scaled(nn.Parameter(scale) if right else scale.requires_grad_()))


def head_in_no_group(right: bool) -> None:
    """Groups by the parts of the model, of which one is not handed on."""
    body, norm, head = nn.Linear(8, 16), nn.LayerNorm(16), nn.Linear(16, CLASSES)
    model = nn.Sequential(body, nn.Tanh(), norm, head)
    groups = [{"params": part.parameters()} for part in (body, norm)]
    if right:
        groups.append({"params": head.parameters()})
    train(model, optimizer=torch.optim.SGD(groups, lr=0.05))


CASES = (
    # First: who follows is looked for at the first step.
    target_of_random_numbers,
    attention_over_queries,
    layer_of_one_number,
    adam_in_half,
    scale_that_is_an_attribute,
    head_in_no_group,
)


if __name__ == "__main__":
    main(CASES)
