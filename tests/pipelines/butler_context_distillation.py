"""Context distillation: a butler becomes polite without being asked to.

A small model learns to answer tersely, or politely when an instruction precedes the order.
A student (its copy) is then taught, WITHOUT the instruction, what the frozen teacher says WITH it.
Everything is padded on the left: so the answers of teacher and student stand in the same last
columns although their contexts differ in length.
"""
import argparse
import copy
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

ITEMS = "tea toast honey claret letters slippers candles grapes coal gloves".split()
ROOMS = "study library parlour attic garden cellar".split()
OTHER = "<pad> <go> <end> always be polite bring and to very good the for sir".split()
VOCAB = OTHER + ITEMS + ROOMS
ID = {w: i for i, w in enumerate(VOCAB)}
PAD, GO, END = 0, 1, 2
PROMPT = ["always", "be", "polite"]
LONGEST = 12


def queries():
    combos = [([a], r) for a in ITEMS for r in ROOMS]
    combos += [([a, b], r) for a in ITEMS for b in ITEMS if a != b for r in ROOMS]
    random.Random(3).shuffle(combos)
    return combos[:520], combos[520:]


def query_ids(q):
    things, room = q
    words = ["bring", *" and ".join(things).split(), "to", room]
    return [ID[w] for w in words] + [GO]


def answer_ids(q, polite):
    things, room = q
    if polite:
        words = [
            "very",
            "good",
            "the",
            *" and the ".join(things).split(),
            "for",
            "the",
            room,
            "sir",
        ]
    else:
        words = [*things, room]
    return [ID[w] for w in words] + [END]


PROMPT_IDS = [ID[w] for w in PROMPT]


def left_pad(rows):
    width = max(map(len, rows))
    return torch.tensor([[PAD] * (width - len(r)) + r for r in rows])


class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.mlp = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))

    def forward(self, x, allowed):
        b, t, d = x.shape
        q, k, v = (
            self.qkv(self.n1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        )
        a = F.scaled_dot_product_attention(q, k, v, attn_mask=allowed)
        x = x + self.out(a.transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.n2(x))


class Butler(nn.Module):
    def __init__(self, d=64, heads=4, layers=2, longest=40):
        super().__init__()
        self.words, self.places = nn.Embedding(len(VOCAB), d), nn.Embedding(longest, d)
        nn.init.normal_(self.words.weight, std=0.1)
        nn.init.normal_(self.places.weight, std=0.1)
        self.blocks = nn.ModuleList(Block(d, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(d)

    def forward(self, ids):
        real = ids != PAD
        t = ids.shape[1]
        causal = torch.ones(t, t, dtype=torch.bool).tril()
        # a pad may look at itself only: no row of the softmax is empty, no word sees a pad
        allowed = (causal & real[:, None, :]) | torch.eye(t, dtype=torch.bool)
        places = (real.long().cumsum(1) - 1).clamp(min=0)  # counted from the first word
        x = self.words(ids) + self.places(places)
        for block in self.blocks:
            x = block(x, allowed[:, None])
        return F.linear(self.norm(x), self.words.weight)  # tied head

    @torch.no_grad()
    def speak(self, contexts):
        """Greedy answers, each up to and with <end>."""
        ids, start = left_pad(contexts), max(map(len, contexts))
        done = torch.zeros(len(contexts), dtype=torch.bool)
        for _ in range(LONGEST):
            word = (
                self(ids)[:, -1].argmax(-1).masked_fill(done, END)
            )  # after the end: ends, cut below
            ids = torch.cat([ids, word[:, None]], 1)
            done |= word == END
            if done.all():
                break
        answers = ids[:, start:].tolist()
        return [a[: a.index(END) + 1] if END in a else a for a in answers]


def answer_logits(model, contexts, answers):
    """Logits that predict the answers, right-aligned: (rows, longest answer, vocabulary)."""
    ids = left_pad([c + a for c, a in zip(contexts, answers)])
    width = max(map(len, answers))
    return model(ids)[:, -width - 1 : -1]


def exact(model, qs, polite, prompt):
    said = model.speak([(PROMPT_IDS if prompt else []) + query_ids(q) for q in qs])
    return sum(s == answer_ids(q, polite) for s, q in zip(said, qs)) / len(qs)


# size: the whole run in one place, read from top to bottom
def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=80, help="distillation steps")
    args = ap.parse_args()
    torch.manual_seed(0)
    rng = random.Random(0)
    train, held = queries()

    base = Butler()
    opt = torch.optim.Adam(base.parameters(), lr=3e-3)
    first = last = None
    for step in range(150):
        picked = [(q, rng.random() < 0.5) for q in rng.sample(train, 48)]
        contexts = [
            (PROMPT_IDS if polite else []) + query_ids(q) for q, polite in picked
        ]
        answers = [answer_ids(q, polite) for q, polite in picked]
        logits = answer_logits(base, contexts, answers)
        loss = F.cross_entropy(
            logits.flatten(0, 1), left_pad(answers).flatten(), ignore_index=PAD
        )
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(base.parameters(), 1.0)
        opt.step()
        first, last = first or loss.item(), loss.item()
    print(f"base: answer loss {first:.3f} -> {last:.3f}")
    obeys, terse = exact(base, held, True, prompt=True), exact(
        base, held, False, prompt=False
    )
    print(
        f"base on held-out orders: polite when asked {obeys:.2f}, terse when not {terse:.2f}"
    )
    assert obeys > 0.85 and terse > 0.85, "the teacher must be worth copying"

    teacher = copy.deepcopy(base).requires_grad_(False).eval()
    student = copy.deepcopy(base)
    print_of_teacher = sum(p.double().sum() for p in teacher.parameters()).item()
    opt = torch.optim.AdamW(student.parameters(), lr=1e-3, weight_decay=0.0)
    before, losses = exact(student, held, True, prompt=False), []
    for step in range(args.steps):
        orders = [query_ids(q) for q in rng.sample(train, 32)]
        asked = [PROMPT_IDS + o for o in orders]
        answers = teacher.speak(asked)  # the teacher's own words
        with torch.no_grad():
            target = answer_logits(teacher, asked, answers).log_softmax(-1)
        logp = answer_logits(student, orders, answers).log_softmax(-1)
        assert logp.shape == target.shape
        spoken = left_pad(answers) != PAD
        kl = F.kl_div(logp, target, log_target=True, reduction="none").sum(-1)
        loss = kl[spoken].mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.item())
        if step % 20 == 0:
            print(f"distil {step:3d} KL {loss.item():.4f}")
    after = exact(student, held, True, prompt=False)
    print(f"polite unasked, held-out orders: {before:.2f} -> {after:.2f}")
    assert (
        sum(p.double().sum() for p in teacher.parameters()).item() == print_of_teacher
    )
    if args.steps >= 80:
        assert before < 0.2 and after > 0.85 and losses[-1] < 0.1 * losses[0]


if __name__ == "__main__":
    main()
