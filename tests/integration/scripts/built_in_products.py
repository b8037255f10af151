"""As built_in_signs.py: numbers of samples and masks of tokens that meet the wrong ones.

    built_in_products.py [--right] [CASE...]
"""

import torch
from torch.nn import functional as F

from built_in_averages import texts
from built_in_sequences import Writer
from built_in_signs import STEPS, Classifier, main, samples


def weights_of_all_samples(right: bool) -> None:
    """The weights are a column, the losses a row."""
    model = Classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(STEPS):
        x, y = samples(16)
        weights = 0.5 + torch.rand(len(y), 1)
        losses = F.cross_entropy(model(x), y, reduction="none")
        optimizer.zero_grad()
        ((weights.squeeze(1) if right else weights) * losses).mean().backward()
        optimizer.step()


def chosen(model, x, y, ignored):
    """Log-probabilities of the labels; what is ignored has the first one."""
    labels = y.masked_fill(ignored, 0).unsqueeze(-1)
    return model(x).log_softmax(-1).gather(-1, labels).squeeze(-1)


def mask_of_the_ignored(right: bool) -> None:
    """What is written by others and the padding are ignored."""
    model = Writer(causal=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(STEPS):
        x, y, lengths = texts()
        places = torch.arange(y.shape[1])
        ignored = (places < 1) | (places >= lengths[:, None])
        kept = ~ignored if right else ignored
        likelihoods = (chosen(model, x, y, ignored) * kept).sum(1)
        optimizer.zero_grad()
        F.softplus(likelihoods[4:] - likelihoods[:4]).mean().backward()
        optimizer.step()


CASES = (
    weights_of_all_samples,
    mask_of_the_ignored,
)

if __name__ == "__main__":
    main(CASES)
