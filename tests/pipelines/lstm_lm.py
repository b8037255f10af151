"""A word language model: an LSTM over a running text, its state carried from chunk
to chunk, plain SGD by hand-made rates, gradients clipped by their norm.

    python lstm_lm.py --steps 100
"""

import argparse
import math
import time

import torch
from torch import nn

WORDS = 400


class WordLSTM(nn.Module):
    def __init__(self, size, layers, dropout):
        super().__init__()
        self.drop = nn.Dropout(dropout)
        self.encoder = nn.Embedding(WORDS, size)
        self.rnn = nn.LSTM(size, size, layers, dropout=dropout)
        self.decoder = nn.Linear(size, WORDS)
        nn.init.uniform_(self.encoder.weight, -0.1, 0.1)
        nn.init.uniform_(self.decoder.weight, -0.1, 0.1)
        nn.init.zeros_(self.decoder.bias)

    def forward(self, words, hidden):
        output, hidden = self.rnn(self.drop(self.encoder(words)), hidden)
        return self.decoder(self.drop(output)).view(-1, WORDS), hidden

    def init_hidden(self, batch):
        weight = next(self.parameters())
        shape = self.rnn.num_layers, batch, self.rnn.hidden_size
        return weight.new_zeros(shape), weight.new_zeros(shape)


def repackage(hidden):
    """Cuts the state off from what made it."""
    return tuple(part.detach() for part in hidden)


def text(length, seed):
    """A random walk: each word has a few that may follow it."""
    generator = torch.Generator().manual_seed(7)
    follow = torch.randint(WORDS, (WORDS, 4), generator=generator).tolist()
    generator.manual_seed(seed)
    word, words = 0, []
    for choice in torch.randint(4, (length,), generator=generator).tolist():
        word = follow[word][choice]
        words.append(word)
    return torch.tensor(words)


def columns(words, batch):
    return words[: len(words) // batch * batch].view(batch, -1).t().contiguous()


def chunk(source, at, length):
    length = min(length, len(source) - 1 - at)
    return source[at : at + length], source[at + 1 : at + 1 + length].reshape(-1)


def perplexity(model, source, length, criterion):
    model.eval()
    total, hidden = 0.0, model.init_hidden(source.shape[1])
    with torch.no_grad():
        for at in range(0, len(source) - 1, length):
            words, targets = chunk(source, at, length)
            output, hidden = model(words, hidden)
            total += len(words) * criterion(output, targets).item()
    model.train()
    return math.exp(total / (len(source) - 1))


def main(options):
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    length = options.length
    train = columns(text(60 * length * options.batch_size, options.seed), options.batch_size)  # fmt: skip
    held = columns(text(1000, options.seed + 1), 10)
    model = WordLSTM(options.size, 2, 0.2)
    criterion = nn.CrossEntropyLoss()
    rate, best = 5.0, None
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    step, times = 0, [time.perf_counter()]
    while step < options.steps:
        hidden = model.init_hidden(options.batch_size)
        for at in range(0, len(train) - 1, length):
            words, targets = chunk(train, at, length)
            model.zero_grad()
            hidden = repackage(hidden)
            output, hidden = model(words, hidden)
            loss = criterion(output, targets)
            loss.backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), 0.25)
            optimizer.step()
            print(f"step {step} loss {loss.item().hex()} norm {norm.item().hex()}")
            times.append(time.perf_counter())
            step += 1
            if step == options.steps:
                break
        reached = perplexity(model, held, length, criterion)
        print(f"perplexity {reached.hex()}", flush=True)
        if best is None or reached < best:
            best = reached
        else:
            rate /= 4.0
            for group in optimizer.param_groups:
                group["lr"] = rate
    if options.times:
        with open(options.times, "w") as file:
            file.writelines(f"{moment!r}\n" for moment in times)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1111)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--length", type=int, default=24)
    parser.add_argument("--size", type=int, default=160)
    parser.add_argument("--times", help="file for the moment of each step's end")
    main(parser.parse_args())
