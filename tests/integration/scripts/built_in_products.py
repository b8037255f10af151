"""As built_in_signs.py: numbers of samples and masks of tokens that meet the wrong ones.

    built_in_products.py [--right] [CASE...]
"""

import torch
from torch import nn
from torch.nn import functional as F

from built_in_averages import texts
from built_in_sequences import LENGTH, WORDS, Writer, next_word
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


class Turned(nn.Module):
    """One layer of attention with rotary positions."""

    def __init__(self, kind=torch.float32):
        super().__init__()
        self.kind = kind
        self.embed = nn.Embedding(16, 16)
        self.project = nn.Linear(16, 48)
        self.head = nn.Linear(16, 16)

    def forward(self, words, places):
        x = self.embed(words)
        q, k, v = self.project(x).chunk(3, -1)
        angles = places.float()[:, None] * 100.0 ** (-torch.arange(8) / 8)
        cos, sin = angles.cos().to(self.kind), angles.sin().to(self.kind)
        q, k = turned(q, cos, sin), turned(k, cos, sin)
        return self.head(x + F.scaled_dot_product_attention(q, k, v, is_causal=True))


def turned(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


def fit_words(model: nn.Module, places: torch.Tensor) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(STEPS):
        words = torch.randint(16, (2, len(places) + 1))
        optimizer.zero_grad()
        scores = model(words[:, :-1], places)
        F.cross_entropy(scores.mT, words[:, 1:]).backward()
        optimizer.step()


def positions_in_bfloat16(right: bool) -> None:
    """All that a model is given is cast to its type."""
    places = torch.arange(300)
    fit_words(Turned(), places if right else places.to(torch.bfloat16))


PADDING, ASKS, REPLIES, ENDS, FIRST = range(5)


def conversations(marker=(REPLIES,), late=False):
    """Given tokens, targets, and prompts; prompts are no targets."""
    given, targets, prompts = [], [], []
    for _ in range(16):
        question, answer = (
            torch.randint(FIRST, WORDS, (int(torch.randint(2, 5, ())),)).tolist()
            for _ in range(2)
        )
        prompt = [ASKS, *question, *marker]
        text = [*prompt, *answer, ENDS]
        masked = len(prompt) - (0 if late else 1)
        unused = [0] * (LENGTH + 1 - len(text))
        given.append(text[:-1] + unused)
        targets.append([-100] * masked + text[1:][masked:] + [-100] * len(unused))
        prompts.append(torch.tensor([prompt]))
    return torch.tensor(given), torch.tensor(targets), prompts


def converse(marker=(REPLIES,), late=False) -> None:
    model = Writer()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(STEPS):
        given, targets, prompts = conversations(marker, late)
        optimizer.zero_grad()
        next_word(model(given), targets).backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            for prompt in prompts:
                model(prompt)
        model.train()


def labels_shifted_before_the_mask(right: bool) -> None:
    """As many labels are left out as the prompt has tokens: one too many."""
    converse(late=not right)


CASES = (
    weights_of_all_samples,
    mask_of_the_ignored,
    positions_in_bfloat16,
    labels_shifted_before_the_mask,
)

if __name__ == "__main__":
    main(CASES)
