"""Language model of recipes with an adaptive softmax: rare words stand in clusters,
which a batch without such words leaves without gradient. The text is read in order
by parallel readers, and the hidden state is carried on and detached.

    python adaptive_softmax_recipes.py --steps 80
"""

import argparse
import math

import torch
from torch import nn

WORDS = 400


def recipes(length, seed):
    """Zipf-like words in bursts about one dish, as one long row."""
    g = torch.Generator().manual_seed(seed)
    common = 1 / torch.arange(1, WORDS + 1).float() ** 1.1
    dishes = [common * torch.rand(WORDS, generator=g) ** 4 for _ in range(8)]
    words = []
    while len(words) < length:
        dish = dishes[int(torch.randint(8, (), generator=g))]
        words += torch.multinomial(dish, 60, replacement=True, generator=g).tolist()
    return torch.tensor(words[:length])


def batchify(words, readers):
    """Each column is a stretch of the text."""
    length = len(words) // readers
    return words[: length * readers].view(readers, length).T.contiguous()


class RecipeLM(nn.Module):
    def __init__(self, width=48, cutoffs=(20, 80, 200)):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, width)
        self.dropout = nn.Dropout(0.1)
        self.rnn = nn.LSTM(width, width, num_layers=2, dropout=0.1)
        self.decoder = nn.AdaptiveLogSoftmaxWithLoss(
            width, WORDS, cutoffs=list(cutoffs), div_value=2.0
        )

    def forward(self, words, target, state):
        x = self.dropout(self.embedding(words))
        x, state = self.rnn(x, state)
        x = self.dropout(x)
        return self.decoder(x.flatten(0, 1), target.flatten()).loss, state


def repackage(state):
    return None if state is None else tuple(s.detach() for s in state)


def chunks(columns, bptt):
    for start in range(0, len(columns) - 1, bptt):
        stop = min(start + bptt, len(columns) - 1)
        yield columns[start:stop], columns[start + 1 : stop + 1]


@torch.no_grad()
def perplexity(model, columns, bptt):
    model.eval()
    total, count, state = 0.0, 0, None
    for words, target in chunks(columns, bptt):
        loss, state = model(words, target, state)
        total += loss.item() * target.numel()
        count += target.numel()
    model.train()
    return math.exp(total / count)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--bptt", type=int, default=12)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(61)
    text = recipes(7000, seed=1)
    train, held_out = batchify(text[:6000], 8), batchify(text[6000:], 4)
    model = RecipeLM()
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)

    step = 0
    while step < args.steps:
        state = None
        for words, target in chunks(train, args.bptt):
            state = repackage(state)
            loss, state = model(words, target, state)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            step += 1
            if step % 10 == 0 or step == 1:
                print(f"step {step} loss {loss.item():.6f}", flush=True)
            if step == args.steps:
                break
        print(f"perplexity {perplexity(model, held_out, args.bptt):.2f}", flush=True)


if __name__ == "__main__":
    main()
