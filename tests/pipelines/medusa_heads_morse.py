"""Guessing heads for a small language model of Morse traffic (speculative decoding).

First the model itself is trained. Then it is frozen and further heads learn to guess the
tokens after the next one. Their weights are kept in bfloat16 without a float32 copy, so
updates are rounded stochastically. Padding and the random call sign at the start of a
message have weight zero. Only the heads are saved, without their prefix; they are loaded
into a new model, and decoding with guesses has to give the same text as without.

$ python medusa_heads_morse.py --steps 150
"""

import argparse
import io
import random

import torch
from torch import nn
from torch.nn import functional as F

CODES = dict(A=".-", D="-..", E=".", I="..", N="-.", O="---", R=".-.", S="...", T="-")
WORDS = "TREASON DESIRE STATION RADIO TORRENT SARDINE ROTATE ONSET EDITION".split()
TOKENS = (
    "_^.-/ $"  # padding, start, dot, dash, end of a letter, of a word, of the message
)
CALL, GUESSES = 6, 3


def message(rng):
    call = "".join(rng.choice(".-") for _ in range(CALL))
    words = (rng.choice(WORDS) for _ in range(rng.randint(1, 3)))
    return "^" + call + " " + " ".join("/".join(map(CODES.get, w)) for w in words) + "$"


def batch(n, rng):
    rows = [torch.tensor([TOKENS.index(c) for c in message(rng)]) for _ in range(n)]
    return nn.utils.rnn.pad_sequence(rows, batch_first=True)


def weights_of(tokens):
    """For each token as a target."""
    w = (tokens != 0).float()
    w[:, : 1 + CALL] = 0
    return w


class MorseLM(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.embed = nn.Embedding(len(TOKENS), 16, padding_idx=0)
        self.rnn = nn.GRU(16, width, batch_first=True)
        self.out = nn.Linear(width, len(TOKENS))

    def features(self, tokens):
        return self.rnn(self.embed(tokens))[0]

    def forward(self, tokens):
        return self.out(self.features(tokens))


class Heads(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        shape = (GUESSES, width, width)
        self.mix = nn.Parameter((width**-0.5 * torch.randn(shape)).bfloat16())
        self.read = nn.Parameter(torch.zeros(GUESSES, len(TOKENS), width).bfloat16())

    def forward(self, h):
        """(batch, time, width) -> logits of the second, third ... token from here."""
        x = h[None] + F.silu(torch.einsum("bti,koi->kbto", h, self.mix.float()))
        return torch.einsum("kbti,koi->kbto", x, self.read.float())


class WithHeads(nn.Module):
    def __init__(self, lm):
        super().__init__()
        self.lm, self.heads = lm, Heads()

    def forward(self, tokens):
        h = self.lm.features(tokens)
        return self.lm.out(h), self.heads(h)


def round_stochastically(x):
    """float32 -> bfloat16, up or down with the chance that keeps the mean."""
    bits = x.view(torch.int32)
    noise = torch.randint_like(bits, 1 << 16)
    return ((bits + noise) & -65536).view(torch.float32).bfloat16()


class RoundingAdam(torch.optim.Optimizer):
    def __init__(self, params, lr, betas=(0.9, 0.98), eps=1e-8):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                g, s = p.grad.float(), self.state[p]
                if not s:
                    s.update(t=0, m=torch.zeros_like(g), v=torch.zeros_like(g))
                s["t"] += 1
                s["m"].lerp_(g, 1 - b1)
                s["v"].lerp_(g * g, 1 - b2)
                m, v = s["m"] / (1 - b1 ** s["t"]), s["v"] / (1 - b2 ** s["t"])
                new = p.float() - group["lr"] * m / (v.sqrt() + group["eps"])
                p.copy_(round_stochastically(new))


def weighted_loss(logits, target, weight):
    loss = F.cross_entropy(logits.transpose(1, 2), target, reduction="none")
    return (loss * weight).sum() / weight.sum()


def train_lm(lm, steps, rng):
    opt = torch.optim.Adam(lm.parameters(), lr=6e-3, foreach=True)
    decay = torch.optim.lr_scheduler.LinearLR(opt, 1.0, 0.1, steps)
    for step in range(1, steps + 1):
        tokens = batch(32, rng)
        loss = weighted_loss(
            lm(tokens[:, :-1]), tokens[:, 1:], weights_of(tokens)[:, 1:]
        )
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(lm.parameters(), 1.0)
        opt.step()
        decay.step()
        if step % 10 == 0:
            print(f"model {step} loss {loss.item():.4f}")


def train_heads(model, steps, rng):
    model.lm.requires_grad_(False)
    opt = RoundingAdam(model.heads.parameters(), lr=5e-3)
    for step in range(1, steps + 1):
        opt.param_groups[0]["lr"] = 5e-3 * (1 - 0.9 * (step - 1) / steps)
        tokens = batch(32, rng)
        weight = weights_of(tokens)
        _, guesses = model(tokens)
        # the farther, the less it counts
        losses = [
            weighted_loss(g[:, : -2 - k], tokens[:, 2 + k :], weight[:, 2 + k :])
            for k, g in enumerate(guesses)
        ]
        loss = sum(0.8**k * value for k, value in enumerate(losses))
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 10 == 0:
            each = " ".join(f"{value.item():.4f}" for value in losses)
            print(f"heads {step} loss {loss.item():.4f} each {each}")


@torch.inference_mode()
def decode(model, prompt, limit=120, guess=True):
    """Greedy. A pass checks the last guesses and makes new ones."""
    tokens, passes, end = list(prompt), 0, TOKENS.index("$")
    pending = []
    while len(tokens) < limit:
        logits, heads = model(torch.tensor([tokens + pending]))
        passes += 1
        best = logits[0].argmax(-1).tolist()
        accepted = 0
        while accepted < len(pending) and best[len(tokens) - 1] == pending[accepted]:
            tokens.append(pending[accepted])
            accepted += 1
            if tokens[-1] == end:
                return tokens, passes
        at = len(tokens) - 1
        tokens.append(best[at])
        if tokens[-1] == end:
            break
        pending = heads[:, 0, at].argmax(-1).tolist() if guess else []
    return tokens[:limit], passes


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=150)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(70)
    rng = random.Random(71)
    lm = MorseLM()
    train_lm(lm, args.steps * 2 // 3, rng)
    model = WithHeads(lm)
    train_heads(model, args.steps - args.steps * 2 // 3, rng)

    prefix, file = "heads.", io.BytesIO()
    state = model.state_dict()
    torch.save(
        {k[len(prefix) :]: v for k, v in state.items() if k.startswith(prefix)}, file
    )
    file.seek(0)
    served = WithHeads(lm).eval()
    served.heads.load_state_dict(torch.load(file, weights_only=True))

    rng, alike, written, passes = random.Random(72), 0, 0, 0
    for _ in range(20):
        prompt = [TOKENS.index(c) for c in message(rng)[: CALL + 6]]
        plain, _ = decode(served, prompt, guess=False)
        quick, count = decode(served, prompt)
        alike += plain == quick
        written += len(quick) - len(prompt)
        passes += count
    print(f"{alike} of 20 messages alike, {written / passes:.2f} tokens a pass")
    print("".join(TOKENS[t] for t in quick))


if __name__ == "__main__":
    main()
