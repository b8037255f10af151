"""ELECTRA-style pretraining on newsreel captions, autocast to bfloat16 on the CPU.

A small generator fills masked words; a larger discriminator says of each word whether it was
replaced. Both share the word embedding. No gradient passes from the discriminator to the
generator (sampling cuts it), and a fill that happens to be right counts as "original".
"""
import argparse
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

PAD, MASK = 0, 1
SCENES = {
    "liner": ("captain", "docks", ["harbour", "quay"], "mighty"),
    "airship": ("pilot", "hovers", ["mast", "hangar"], "silver"),
    "locomotive": ("driver", "steams", ["station", "tunnel"], "black"),
    "racehorse": ("jockey", "gallops", ["turf", "stable"], "swift"),
    "orchestra": ("conductor", "plays", ["hall", "pavilion"], "grand"),
    "circus": ("clown", "parades", ["tent", "square"], "merry"),
}
CROWDS, TIMES = ["thousands", "children", "ministers"], ["today", "tonight", "again"]
FILL = ["the", "its", "waves", "while", "by", "cheer"]
VOCAB = (
    ["<pad>", "<mask>"]
    + FILL
    + CROWDS
    + TIMES
    + sorted({w for k, (a, b, c, d) in SCENES.items() for w in (k, a, b, d, *c)})
)
ID = {w: i for i, w in enumerate(VOCAB)}


def caption(rng):
    thing = rng.choice(sorted(SCENES))
    person, verb, places, colour = SCENES[thing]
    words = ["the", colour, thing, verb, "by", "the", rng.choice(places)]
    if rng.random() < 0.6:
        words += ["while", "its", person, "waves"]
    if rng.random() < 0.5:
        words += ["while", rng.choice(CROWDS), "cheer"]
    return words + [rng.choice(TIMES)]


def pad(rows):
    width = max(map(len, rows))
    return torch.tensor([[ID[w] for w in r] + [PAD] * (width - len(r)) for r in rows])


def encoder(d, heads, layers):
    layer = nn.TransformerEncoderLayer(
        d,
        heads,
        2 * d,
        dropout=0.0,
        batch_first=True,
        norm_first=True,
        activation="gelu",
    )
    return nn.TransformerEncoder(
        layer, layers, norm=nn.LayerNorm(d), enable_nested_tensor=False
    )


class Electra(nn.Module):
    def __init__(self, d=64, d_gen=32, longest=20):
        super().__init__()
        self.words, self.places = nn.Embedding(
            len(VOCAB), d, padding_idx=PAD
        ), nn.Embedding(longest, d)
        self.narrow = nn.Linear(d, d_gen)
        self.gen_body, self.gen_head = encoder(d_gen, 2, 1), nn.Linear(
            d_gen, len(VOCAB)
        )
        self.dis_body, self.dis_head = encoder(d, 4, 2), nn.Linear(d, 1)

    def embed(self, ids):
        return self.words(ids) + self.places(torch.arange(ids.shape[1]))

    def generate(self, ids, padding):
        return self.gen_head(
            self.gen_body(self.narrow(self.embed(ids)), src_key_padding_mask=padding)
        )

    def discriminate(self, ids, padding):
        return self.dis_head(
            self.dis_body(self.embed(ids), src_key_padding_mask=padding)
        ).squeeze(-1)


def choose_masked(ids, g, share=0.2):
    chosen = (torch.rand(ids.shape, generator=g) < share) & (ids != PAD)
    for row in (
        (~chosen.any(1)).nonzero().flatten().tolist()
    ):  # at least one word per caption
        n = int((ids[row] != PAD).sum())
        chosen[row, torch.randint(0, n, (1,), generator=g)] = True
    return chosen


def losses(model, ids, g):
    padding = ids == PAD
    chosen = choose_masked(ids, g)
    logits = model.generate(ids.masked_fill(chosen, MASK), padding)[chosen].float()
    mlm = F.cross_entropy(logits, ids[chosen])
    with torch.no_grad():
        allowed = logits.clone()
        allowed[:, [PAD, MASK]] = -torch.inf  # only words are filled in
        fills = torch.multinomial(allowed.softmax(-1), 1, generator=g).squeeze(-1)
        assert fills.min() > MASK
        corrupted = ids.clone()
        corrupted[chosen] = fills
        replaced = corrupted != ids
    scores = model.discriminate(corrupted, padding)[~padding].float()
    rtd = F.binary_cross_entropy_with_logits(scores, replaced[~padding].float())
    return mlm, rtd


@torch.no_grad()
def evaluate(model, ids):
    """Masked-word accuracy, and balanced accuracy of spotting words swapped at random.

    Random swaps, not the generator's: so the discriminator's task is the same at every call.
    """
    model.eval()
    g = torch.Generator().manual_seed(99)
    padding = ids == PAD
    chosen = choose_masked(ids, g)
    guess = model.generate(ids.masked_fill(chosen, MASK), padding).argmax(-1)
    hit = (guess == ids)[chosen].float().mean().item()
    swapped = torch.where(
        chosen, torch.randint(MASK + 1, len(VOCAB), ids.shape, generator=g), ids
    )
    replaced, flagged = (swapped != ids)[~padding], (
        model.discriminate(swapped, padding) > 0
    )[~padding]
    spot = (
        flagged[replaced].float().mean() + (~flagged[~replaced]).float().mean()
    ).item() / 2
    model.train()
    return hit, spot


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=150)
    steps = ap.parse_args().steps
    torch.manual_seed(13)
    rng, g = random.Random(13), torch.Generator().manual_seed(14)
    distinct = list(dict.fromkeys(tuple(caption(rng)) for _ in range(4000)))
    rng.shuffle(distinct)
    held, train = distinct[:80], distinct[80:]
    held_ids = pad(held)
    model = Electra()
    opt = torch.optim.AdamW(
        model.parameters(), lr=2e-3, betas=(0.9, 0.98), weight_decay=0.01
    )
    decay = torch.optim.lr_scheduler.LinearLR(opt, 1.0, 0.1, total_iters=steps)
    start, history = evaluate(model, held_ids), []
    for step in range(steps):
        ids = pad(rng.sample(train, 32))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            mlm, rtd = losses(model, ids, g)
            loss = mlm + 20.0 * rtd  # the two differ a lot in size
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        decay.step()
        history.append(mlm.item())
        if step % 30 == 0 or step == steps - 1:
            hit, spot = evaluate(model, held_ids)
            print(
                f"step {step} mlm {mlm.item():.3f} rtd {rtd.item():.4f} | held: words {hit:.2f} "
                f"swaps spotted {spot:.2f}"
            )
    end = evaluate(model, held_ids)
    assert all(p.dtype == torch.float32 for p in model.parameters())
    print(f"words {start[0]:.2f} -> {end[0]:.2f}, swaps {start[1]:.2f} -> {end[1]:.2f}")
    if steps >= 150:
        assert end[0] > start[0] + 0.3 and end[1] > 0.7
        assert sum(history[-10:]) < 0.6 * sum(history[:10])


if __name__ == "__main__":
    main()
