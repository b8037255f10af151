"""A small GPT on text of characters: AdamW with warm-up and cosine, micro-batches,
a checkpoint halfway from which the training goes on with new objects.

    python transformer_lm.py --steps 60
"""

import argparse
import math
import os
import tempfile
import time

import torch
from torch import nn
import torch.nn.functional as F
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, Dataset

LETTERS = 64


class CausalSelfAttention(nn.Module):
    def __init__(self, size, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(size, 3 * size)
        self.proj = nn.Linear(size, size)

    def forward(self, x):
        batch, length, size = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, -1).transpose(1, 2)
            for part in self.qkv(x).split(size, dim=2)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(y.transpose(1, 2).reshape(batch, length, size))


class DecoderBlock(nn.Module):
    def __init__(self, size, heads, dropout):
        super().__init__()
        self.ln_1 = nn.LayerNorm(size)
        self.attn = CausalSelfAttention(size, heads)
        self.ln_2 = nn.LayerNorm(size)
        self.mlp = nn.Sequential(
            nn.Linear(size, 4 * size),
            nn.GELU(approximate="tanh"),
            nn.Linear(4 * size, size),
            nn.Dropout(dropout),
        )

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class CharGPT(nn.Module):
    def __init__(self, length, size, heads, layers):
        super().__init__()
        self.wte = nn.Embedding(LETTERS, size)
        self.wpe = nn.Embedding(length, size)
        self.h = nn.Sequential(*(DecoderBlock(size, heads, 0.1) for _ in range(layers)))
        self.ln_f = nn.LayerNorm(size)
        self.lm_head = nn.Linear(size, LETTERS, bias=False)
        self.lm_head.weight = self.wte.weight
        self.register_buffer("places", torch.arange(length), persistent=False)
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:
                scale = math.sqrt(2 * layers) if name.endswith("proj.weight") else 1
                nn.init.normal_(parameter, std=0.02 / scale)

    def forward(self, letters, targets=None):
        x = self.wte(letters) + self.wpe(self.places[: letters.shape[1]])
        logits = self.lm_head(self.ln_f(self.h(x)))
        if targets is None:
            return logits
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


class Windows(Dataset):
    """Letters that follow from the two before them, now and then from nothing."""

    def __init__(self, count, length, seed):
        generator = torch.Generator().manual_seed(seed)
        kicks = torch.rand(count * length + 1, generator=generator) < 0.1
        fresh = torch.randint(LETTERS, (len(kicks),), generator=generator).tolist()
        a, b, text = 1, 2, []
        for kick, letter in zip(kicks.tolist(), fresh):
            a, b = b, (letter if kick else (3 * a + 5 * b + 1) % LETTERS)
            text.append(b)
        self.text, self.length, self.count = torch.tensor(text), length, count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        part = self.text[index * self.length : (index + 1) * self.length + 1]
        return part[:-1], part[1:]


def endless(loader):
    while True:
        yield from loader


class Session:
    """Everything that a checkpoint brings back."""

    def __init__(self, options):
        self.model = CharGPT(options.length, options.size, 4, 4)
        matrices = [p for p in self.model.parameters() if p.ndim >= 2]
        vectors = [p for p in self.model.parameters() if p.ndim < 2]
        groups = [
            {"params": matrices, "weight_decay": 0.1},
            {"params": vectors, "weight_decay": 0.0},
        ]
        self.optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95))
        warm = max(1, options.steps // 10)

        def rate(step):
            if step < warm:
                return (step + 1) / warm
            done = (step - warm) / max(1, options.steps - warm)
            return 0.1 + 0.45 * (1 + math.cos(math.pi * done))

        self.scheduler = LambdaLR(self.optimizer, rate)

    def save(self, path):
        parts = self.model, self.optimizer, self.scheduler
        torch.save([part.state_dict() for part in parts], path)

    def load(self, path):
        parts = self.model, self.optimizer, self.scheduler
        for part, state in zip(parts, torch.load(path)):
            part.load_state_dict(state)


def train_step(session, batches):
    total = 0.0
    session.optimizer.zero_grad(set_to_none=True)
    for _ in range(2):
        letters, targets = next(batches)
        loss = session.model(letters, targets) / 2
        loss.backward()
        total += loss.item()
    nn.utils.clip_grad_norm_(session.model.parameters(), 1.0)
    session.optimizer.step()
    session.scheduler.step()
    return total


@torch.no_grad()
def sample(model, letters, count):
    model.eval()
    for _ in range(count):
        logits = model(letters[:, -model.places.numel() :])[:, -1]
        letters = torch.cat([letters, logits.argmax(-1, keepdim=True)], 1)
    model.train()
    return letters[0].tolist()


def main(options):
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    data = Windows(400, options.length, options.seed)
    loader = DataLoader(data, batch_size=options.batch_size, shuffle=True)
    batches = endless(loader)
    session = Session(options)
    times = [time.perf_counter()]
    for step in range(options.steps):
        if step == options.steps // 2:
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "half.pt")
                session.save(path)
                session = Session(options)
                session.load(path)
        loss = train_step(session, batches)
        print(f"step {step} loss {loss.hex()}", flush=True)
        times.append(time.perf_counter())
    print(sample(session.model, data[0][0][None, :8], 8))
    if options.times:
        with open(options.times, "w") as file:
            file.writelines(f"{moment!r}\n" for moment in times)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1337)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--length", type=int, default=48)
    parser.add_argument("--size", type=int, default=96)
    parser.add_argument("--times", help="file for the moment of each step's end")
    main(parser.parse_args())
