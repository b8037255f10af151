"""Skip-gram word vectors with negative sampling, without an optimizer object and
without modules: two tensors, backward(), and an update written out under no_grad.

    python word2vec_manual.py --steps 400
"""

import argparse

import torch
from torch.nn.functional import logsigmoid, normalize

TOPICS = 6
WORDS_PER_TOPIC = 25
COMMON = 30  # words of no topic
VOCABULARY = TOPICS * WORDS_PER_TOPIC + COMMON


def write_corpus(sentences, length, rng):
    """Each sentence keeps to a topic, with common words in between."""
    topic = torch.randint(0, TOPICS, (sentences, 1), generator=rng)
    pick = torch.rand(sentences, length, generator=rng) ** 2  # some words are frequent
    topical = topic * WORDS_PER_TOPIC + (pick * WORDS_PER_TOPIC).long()
    filler = TOPICS * WORDS_PER_TOPIC + (pick * COMMON).long()
    is_filler = torch.rand(sentences, length, generator=rng) < 0.35
    return torch.where(is_filler, filler, topical)


def skip_grams(text, window):
    centre, context = [], []
    for offset in range(1, window + 1):
        left, right = text[:, :-offset].flatten(), text[:, offset:].flatten()
        centre += [left, right]
        context += [right, left]
    return torch.cat(centre), torch.cat(context)


def neighbour_purity(vectors):
    """How often the nearest word of a topical word has the same topic."""
    topical = TOPICS * WORDS_PER_TOPIC
    unit = normalize(vectors[:topical], dim=1)
    similar = unit @ unit.T
    similar.fill_diagonal_(-2)
    topic = torch.arange(topical) // WORDS_PER_TOPIC
    return (topic[similar.argmax(1)] == topic).float().mean().item()


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=400)
parser.add_argument("--dim", type=int, default=24)
parser.add_argument("--window", type=int, default=3)
parser.add_argument("--negatives", type=int, default=8)
parser.add_argument("--batch", type=int, default=512)
parser.add_argument("--lr", type=float, default=6.0, help="losses are means")
parser.add_argument("--seed", type=int, default=13)
args = parser.parse_args()

torch.set_num_threads(1)
rng = torch.Generator().manual_seed(args.seed)

text = write_corpus(1500, 14, rng)
counts = torch.bincount(text.flatten(), minlength=VOCABULARY).float()
noise = (counts + 1) ** 0.75
centres, contexts = skip_grams(text, args.window)
print(f"{len(centres)} pairs of {VOCABULARY} words")

W_in = (torch.rand(VOCABULARY, args.dim, generator=rng) - 0.5) / args.dim
W_out = torch.zeros(VOCABULARY, args.dim)
W_in.requires_grad_()
W_out.requires_grad_()

total = 0.0
for step in range(args.steps):
    chosen = torch.randint(0, len(centres), (args.batch,), generator=rng)
    negative = torch.multinomial(
        noise, args.batch * args.negatives, replacement=True, generator=rng
    ).view(args.batch, args.negatives)

    v = W_in[centres[chosen]]
    positive_score = (v * W_out[contexts[chosen]]).sum(1)
    negative_score = torch.einsum("bd,bnd->bn", v, W_out[negative])
    loss = -(logsigmoid(positive_score) + logsigmoid(-negative_score).sum(1)).mean()
    loss.backward()

    lr = args.lr * (1 - step / args.steps)
    with torch.no_grad():
        for w in (W_in, W_out):
            w -= lr * w.grad
            w.grad.zero_()

    total += loss.item()
    if (step + 1) % 40 == 0:
        purity = neighbour_purity(W_in.detach())
        print(f"{step + 1} loss {total / 40:.6f} purity {purity:.4f}", flush=True)
        total = 0.0
