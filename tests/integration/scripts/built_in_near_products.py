"""Healthy trainings that come close to the mistakes of built_in_products.py and to others
that are about single steps, each in its own way.

    built_in_near_products.py
"""

import tempfile

import torch
from torch import nn
from torch.nn import functional as F

from built_in_averages import texts
from built_in_near import main
from built_in_products import FIRST, REPLIES, Turned, chosen, converse, fit_words
from built_in_sequences import Writer
from built_in_signs import CLASSES, STEPS, Classifier, samples


def weights_of_pairs() -> None:
    """A column of labels and a row of scores, and a weight for each pair."""
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(STEPS):
        x, y = samples(16)
        scores = model(x).squeeze(1)
        above = (y[:, None] > y).float()
        signs = y[:, None].sign()
        optimizer.zero_grad()
        ranked = F.softplus(scores - scores[:, None]) * above
        own = torch.rand(len(y)) * scores
        (ranked.mean() - (signs * scores * above).mean() + own.mean()).backward()
        optimizer.step()


def answers_of_one_word() -> None:
    """Each text has one answer, and in some batches all have the same."""
    model = Writer(causal=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for step in range(STEPS):
        x, y, lengths = texts()
        last = torch.arange(y.shape[1]) == lengths[:, None] - 1
        y = y.masked_fill(last, 3) if step % 2 else y
        nothing = torch.zeros_like(last)
        optimizer.zero_grad()
        (-(chosen(model, x, y, nothing) * last).sum(1).mean()).backward()
        optimizer.step()


def predicted_gradients() -> None:
    """They are zero until the predictor has learned from something else."""
    body, head = nn.Linear(8, 16), nn.Linear(16, CLASSES)
    predictor = nn.Linear(16, 16)
    nn.init.zeros_(predictor.weight)
    nn.init.zeros_(predictor.bias)
    optimizers = [
        torch.optim.Adam(part.parameters(), lr=0.01) for part in (body, head, predictor)
    ]
    for step in range(2 * STEPS):
        x, y = samples(16)
        optimizers[0].zero_grad()
        hidden = body(x)
        hidden.backward(predictor(hidden.detach()).detach())
        optimizers[0].step()
        leaf = hidden.detach().requires_grad_()
        optimizers[1].zero_grad()
        F.cross_entropy(head(leaf.relu()), y).backward()
        optimizers[1].step()
        if step > STEPS // 2:
            optimizers[2].zero_grad()
            F.mse_loss(predictor(leaf.detach()), leaf.grad).backward()
            optimizers[2].step()


def solved_anew_each_time() -> None:
    """An inner problem that L-BFGS solves within one step."""
    weights = torch.zeros(8, requires_grad=True)
    for _ in range(STEPS):
        x, y = samples(16)
        optimizer = torch.optim.LBFGS([weights], max_iter=10)

        def closure():
            optimizer.zero_grad()
            loss = F.mse_loss(x @ weights, y.float()) + 0.01 * weights.square().sum()
            loss.backward()
            return loss

        optimizer.step(closure)


def read_into_a_template() -> None:
    """A file is filled into the model's own tensors, which it then takes over."""
    model = Classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    with tempfile.TemporaryFile() as file:
        for step in range(STEPS):
            x, y = samples(16)
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            if step == 2:
                torch.save(model.state_dict(), file)
        file.seek(0)
        template = model.state_dict()
        for name, value in torch.load(file).items():
            template[name].copy_(value)
        model.load_state_dict(template)
    for _ in range(STEPS):
        x, y = samples(16)
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


def cosines_in_bfloat16() -> None:
    """They are cast once they have been computed, and the places are exact."""
    fit_words(Turned(torch.bfloat16), torch.arange(300.0))


def tags_behind_the_marker() -> None:
    """The prompt ends with the name of a language, which is no target."""
    converse(marker=(REPLIES, FIRST))


CASES = (
    weights_of_pairs,
    answers_of_one_word,
    predicted_gradients,
    solved_anew_each_time,
    read_into_a_template,
    cosines_in_bfloat16,
    tags_behind_the_marker,
)

if __name__ == "__main__":
    main(CASES)
