"""
Tiny character GPT on recipe-like text. Long jobs get preempted on our cluster, so the
script saves after the first half and the second half continues from the file.
"""
import argparse
import math
import os
import random
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F

CTX, BATCH, WIDTH, HEADS, LAYERS = 40, 16, 64, 4, 2
PEAK_LR, WARMUP = 4e-3, 20


def write_recipes(n=900):
    rng = random.Random(9)
    verbs = ["mix", "boil", "fry", "chop", "bake", "stir", "cool", "serve"]
    things = [
        "onions",
        "rice",
        "butter",
        "beans",
        "two eggs",
        "the dough",
        "milk",
        "carrots",
    ]
    how = [
        "slowly",
        "for 5 minutes",
        "with salt",
        "in a large pan",
        "until soft",
        "again",
    ]
    lines = []
    for _ in range(n):
        v = rng.randrange(8)
        lines.append(
            f"{verbs[v]} {things[(v + rng.randrange(3)) % 8]} {rng.choice(how)}."
        )
    return "\n".join(lines)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.proj = nn.Linear(WIDTH, WIDTH)
        self.ff = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (
            self.qkv(self.ln1(x))
            .view(b, t, 3, HEADS, c // HEADS)
            .permute(2, 0, 3, 1, 4)
        )
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, c))
        return x + self.ff(self.ln2(x))


class CharGPT(nn.Module):
    def __init__(self, vocab):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocab, WIDTH), nn.Embedding(CTX, WIDTH)
        self.blocks = nn.Sequential(*[Block() for _ in range(LAYERS)])
        self.ln, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, vocab)

    def forward(self, idx):
        x = self.tok(idx) + self.pos(torch.arange(idx.shape[1]))
        return self.head(self.ln(self.blocks(x)))


class Job:
    def __init__(self, args, text):
        self.args = args
        chars = sorted(set(text))
        ids = torch.tensor([chars.index(c) for c in text])
        cut = int(0.9 * len(ids))
        self.train_ids, self.val_ids = ids[:cut], ids[cut:]
        torch.manual_seed(1337)
        self.model = CharGPT(len(chars))
        self.opt = torch.optim.AdamW(
            self.model.parameters(), lr=PEAK_LR, weight_decay=0.05
        )
        self.sched = torch.optim.lr_scheduler.LambdaLR(self.opt, self.shape)
        self.gen = torch.Generator().manual_seed(1337)
        self.step = 0

    def shape(self, s):
        if s < WARMUP:
            return (s + 1) / WARMUP
        done = (s - WARMUP) / max(1, self.args.steps - WARMUP)
        return 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * min(1.0, done)))

    def batch(self, ids):
        starts = torch.randint(0, len(ids) - CTX - 1, (BATCH,), generator=self.gen)
        rows = torch.stack([ids[s : s + CTX + 1] for s in starts])
        return rows[:, :-1], rows[:, 1:]

    def save(self, path):
        torch.save(
            {
                "model": self.model.state_dict(),
                "opt": self.opt.state_dict(),
                "sched": self.sched.state_dict(),
                "gen": self.gen.get_state(),
                "step": self.step,
            },
            path,
        )

    def load(self, path):
        ckpt = torch.load(path)
        self.model.load_state_dict(ckpt["model"])
        self.opt.load_state_dict(ckpt["opt"])
        if self.args.fixed:
            self.sched.load_state_dict(ckpt["sched"])
        self.gen.set_state(ckpt["gen"])
        self.step = ckpt["step"]
        print(f"resumed at step {self.step}")

    def train_until(self, last, lrs):
        self.model.train()
        while self.step < last:
            x, y = self.batch(self.train_ids)
            loss = F.cross_entropy(self.model(x).flatten(0, 1), y.flatten())
            self.opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            lrs.append(self.opt.param_groups[0]["lr"])
            self.opt.step()
            self.sched.step()
            self.step += 1
            if self.step % 20 == 0:
                print(f"step {self.step} loss {loss.item():.3f}")

    @torch.no_grad()
    def val_loss(self):
        self.model.eval()
        out = []
        for _ in range(10):
            x, y = self.batch(self.val_ids)
            out.append(F.cross_entropy(self.model(x).flatten(0, 1), y.flatten()))
        return torch.stack(out).mean().item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=160)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()
    text = write_recipes()
    lrs = []
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "last.pt")
        job = Job(args, text)
        job.train_until(args.steps // 2, lrs)
        job.save(path)
        del job
        job = Job(args, text)
        job.load(path)
        job.train_until(args.steps, lrs)
    print(f"val loss {job.val_loss():.4f}")
    if args.prove:
        planned = [PEAK_LR * job.shape(s) for s in range(args.steps)]
        off = [
            s for s in range(args.steps) if abs(lrs[s] - planned[s]) > 1e-3 * PEAK_LR
        ]
        print("fault shows:", "yes" if off else "no")


if __name__ == "__main__":
    main()
