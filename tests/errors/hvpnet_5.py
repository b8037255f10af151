"""Named entities in captions, with the picture's features put before the words.

A small encoder reads picture and words together, a linear layer and a CRF on
top gives the labels. Encoder and tagger have rates of their own, as is usual.
After HVPNeT, issue 5.
"""

import argparse

import torch
from torch import nn

TAGS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
WORDS, LENGTH = 60, 12


class Crf(nn.Module):
    def __init__(self, tags):
        super().__init__()
        self.start = nn.Parameter(torch.empty(tags).uniform_(-0.1, 0.1))
        self.transitions = nn.Parameter(torch.empty(tags, tags).uniform_(-0.1, 0.1))

    def forward(self, emissions, tags):
        rows = torch.arange(len(tags))
        score = self.start[tags[:, 0]] + emissions[rows, 0, tags[:, 0]]
        alpha = self.start + emissions[:, 0]
        for t in range(1, tags.shape[1]):
            score = score + self.transitions[tags[:, t - 1], tags[:, t]]
            score = score + emissions[rows, t, tags[:, t]]
            alpha = (alpha[:, :, None] + self.transitions).logsumexp(1)
            alpha = alpha + emissions[:, t]
        return (alpha.logsumexp(1) - score).mean() / tags.shape[1]

    def decode(self, emissions):
        best, back = self.start + emissions[:, 0], []
        for t in range(1, emissions.shape[1]):
            best, index = (best[:, :, None] + self.transitions).max(1)
            best = best + emissions[:, t]
            back.append(index)
        path = [best.argmax(1)]
        for index in reversed(back):
            path.append(index.gather(1, path[-1][:, None])[:, 0])
        return torch.stack(path[::-1], 1)


class Tagger(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.bert_embed = nn.Embedding(WORDS, width)
        self.bert_encoder = nn.TransformerEncoderLayer(
            width, 4, 96, dropout=0.1, batch_first=True
        )
        self.encoder_conv = nn.Linear(16, width)
        self.fc = nn.Linear(width, len(TAGS))
        self.crf = Crf(len(TAGS))

    def emissions(self, words, picture):
        prefix = self.encoder_conv(picture)[:, None]
        hidden = torch.cat([prefix, self.bert_embed(words)], 1)
        return self.fc(self.bert_encoder(hidden)[:, 1:])

    def forward(self, words, picture, tags):
        return self.crf(self.emissions(words, picture), tags)


def captions(count, generator):
    """Names begin with a word of their kind and go on with words of either kind."""
    words = torch.randint(20, WORDS, (count, LENGTH), generator=generator)
    tags = torch.zeros(count, LENGTH, dtype=torch.long)
    kind = torch.randint(0, 2, (count,), generator=generator)
    begin = torch.randint(0, LENGTH - 4, (count,), generator=generator)
    for i in range(count):
        b, k = begin[i], kind[i]
        words[i, b] = torch.randint(0, 8, (1,), generator=generator) + 8 * k
        words[i, b + 1 : b + 4] = torch.randint(16, 40, (3,), generator=generator)
        tags[i, b], tags[i, b + 1 : b + 4] = 1 + 2 * k, 2 + 2 * k
    picture = torch.randn(count, 16, generator=generator) + kind[:, None]
    return words, picture, tags


def build_optimizer(model, args):
    parameters = []
    params = {"lr": args.lr, "weight_decay": 1e-2, "params": []}
    for name, param in model.named_parameters():
        if "bert" in name:
            params["params"].append(param)
    parameters.append(params)

    params = {"lr": args.lr, "weight_decay": 1e-2, "params": []}
    for name, param in model.named_parameters():
        if name.startswith("encoder_conv"):
            params["params"].append(param)
    parameters.append(params)

    params = {"lr": 5e-2, "weight_decay": 1e-2, "params": []}
    for name, param in model.named_parameters():
        if "crf" in name or name.startswith("fc"):
            params["params"].append(param)
    if args.fixed:
        parameters.append(params)
    return torch.optim.AdamW(parameters)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--lr", type=float, default=2e-3)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(args.seed)
    model = Tagger()
    optimizer = build_optimizer(model, args)
    if args.prove:
        start = {n: p.detach().clone() for n, p in model.named_parameters()}
    model.train()
    for step in range(args.steps):
        loss = model(*captions(32, generator))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f}", flush=True)
    model.eval()
    words, picture, tags = captions(400, generator)
    with torch.no_grad():
        found = model.crf.decode(model.emissions(words, picture))
    inside = tags > 0
    right = ((found == tags) & inside).sum().item()
    f1 = 2 * right / (inside.sum() + (found > 0).sum()).item()
    print(f"held-out F1 {f1:.4f}")
    if args.prove:
        still = [n for n, p in model.named_parameters() if torch.equal(p, start[n])]
        print("as initialised:", ", ".join(still) or "none")
        print("fault shows:", "yes" if still else "no", flush=True)


if __name__ == "__main__":
    main()
