"""
Trains a small GPT on the orders shouted in a cafe, character by character, on two ranks.

Started plainly it launches itself once per rank (RANK, WORLD_SIZE and so on in the
environment, as torchrun does); settings are the globals below.

$ python nano_cafe_orders.py --steps 80
"""

import argparse
import math
import os
import pickle
import random
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import nullcontext

import numpy as np
import torch
import torch.nn as nn
from torch.distributed import destroy_process_group, init_process_group
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

# -----------------------------------------------------------------------------
eval_interval = 20
eval_iters = 8
gradient_accumulation_steps = 4  # micro steps over all ranks
batch_size = 8
block_size = 48
n_layer, n_head, n_embd, dropout = 3, 4, 64, 0.05
learning_rate, min_lr = 4e-3, 4e-4
weight_decay, beta1, beta2, grad_clip = 1e-1, 0.9, 0.95, 1.0
warmup_iters = 8
dtype = "float32"
# -----------------------------------------------------------------------------


def prepare(data_dir):
    """Writes train.bin, val.bin (one byte a character) and meta.pkl."""
    rng = random.Random(5)
    drinks = ["flat white", "espresso", "mocha", "earl grey", "lemonade"]
    extras = ["oat milk", "no sugar", "extra hot", "two straws"]
    names = ["ida", "noor", "piet", "wanda", "chi"]
    lines = []
    for _ in range(6000):
        count = rng.randint(1, 3)
        drink = rng.choice(drinks) + ("s" if count > 1 else "")
        extra = f" with {rng.choice(extras)}" if rng.random() < 0.5 else ""
        lines.append(f"{count} {drink}{extra} for {rng.choice(names)}\n")
    text = "".join(lines)
    chars = sorted(set(text))
    stoi = {c: i for i, c in enumerate(chars)}
    ids = np.array([stoi[c] for c in text], dtype=np.uint16)
    cut = int(0.9 * len(ids))
    ids[:cut].tofile(os.path.join(data_dir, "train.bin"))
    ids[cut:].tofile(os.path.join(data_dir, "val.bin"))
    with open(os.path.join(data_dir, "meta.pkl"), "wb") as f:
        pickle.dump({"vocab_size": len(chars), "itos": chars}, f)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1 = nn.LayerNorm(n_embd, bias=False)
        self.c_attn = nn.Linear(n_embd, 3 * n_embd, bias=False)
        self.c_proj = nn.Linear(n_embd, n_embd, bias=False)
        self.ln_2 = nn.LayerNorm(n_embd, bias=False)
        self.mlp = nn.Sequential(
            nn.Linear(n_embd, 4 * n_embd, bias=False),
            nn.GELU(),
            nn.Linear(4 * n_embd, n_embd, bias=False),
            nn.Dropout(dropout),
        )

    def forward(self, x):
        B, T, C = x.size()
        qkv = self.c_attn(self.ln_1(x)).view(B, T, 3, n_head, C // n_head)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(
            q, k, v, dropout_p=dropout if self.training else 0, is_causal=True
        )
        x = x + self.c_proj(y.transpose(1, 2).reshape(B, T, C))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, vocab_size):
        super().__init__()
        self.wte = nn.Embedding(vocab_size, n_embd)
        self.wpe = nn.Embedding(block_size, n_embd)
        self.drop = nn.Dropout(dropout)
        self.h = nn.ModuleList([Block() for _ in range(n_layer)])
        self.ln_f = nn.LayerNorm(n_embd, bias=False)
        self.lm_head = nn.Linear(n_embd, vocab_size, bias=False)
        self.wte.weight = self.lm_head.weight
        for name, p in self.named_parameters():
            if p.dim() >= 2:
                std = 0.02
                if name.endswith(("c_proj.weight", "mlp.2.weight")):
                    std /= math.sqrt(2 * n_layer)
                nn.init.normal_(p, std=std)

    def forward(self, idx, targets=None):
        pos = torch.arange(idx.size(1), device=idx.device)
        x = self.drop(self.wte(idx) + self.wpe(pos))
        for block in self.h:
            x = block(x)
        x = self.ln_f(x)
        if targets is None:
            return self.lm_head(x[:, [-1], :]), None
        logits = self.lm_head(x)
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    def configure_optimizers(self):
        params = [p for p in self.parameters() if p.requires_grad]
        groups = [
            {
                "params": [p for p in params if p.dim() >= 2],
                "weight_decay": weight_decay,
            },
            {"params": [p for p in params if p.dim() < 2], "weight_decay": 0.0},
        ]
        return torch.optim.AdamW(
            groups, lr=learning_rate, betas=(beta1, beta2), fused=True
        )

    @torch.no_grad()
    def generate(self, idx, count, top_k=5):
        for _ in range(count):
            logits, _ = self(idx[:, -block_size:])
            v, _ = torch.topk(logits[:, -1], top_k)
            logits = logits[:, -1].masked_fill(logits[:, -1] < v[:, [-1]], -math.inf)
            idx = torch.cat([idx, torch.multinomial(logits.softmax(-1), 1)], 1)
        return idx


def autocast():
    if dtype == "float32":
        return nullcontext()
    ptdtype = {"float32": torch.float32, "bfloat16": torch.bfloat16}[dtype]
    return torch.amp.autocast(device_type="cpu", dtype=ptdtype)


def get_batch(data_dir, split):
    # a new memmap for every batch, otherwise memory leaks
    data = np.memmap(os.path.join(data_dir, f"{split}.bin"), dtype=np.uint16, mode="r")
    ix = torch.randint(len(data) - block_size, (batch_size,))
    rows = np.stack([data[i : i + block_size + 1] for i in ix.tolist()])
    rows = torch.from_numpy(rows.astype(np.int64))
    return rows[:, :-1], rows[:, 1:]


@torch.no_grad()
def estimate_loss(raw_model, data_dir, ctx):
    out = {}
    raw_model.eval()
    for split in ["train", "val"]:
        losses = torch.zeros(eval_iters)
        for k in range(eval_iters):
            X, Y = get_batch(data_dir, split)
            with ctx:
                _, loss = raw_model(X, Y)
            losses[k] = loss.item()
        out[split] = losses.mean()
    raw_model.train()
    return out


def get_lr(it, max_iters):
    if it < warmup_iters:
        return learning_rate * (it + 1) / (warmup_iters + 1)
    ratio = (it - warmup_iters) / max(1, max_iters - warmup_iters)
    return min_lr + 0.5 * (1 + math.cos(math.pi * ratio)) * (learning_rate - min_lr)


def save(raw_model, optimizer, iter_num, best_val_loss, data_dir):
    checkpoint = {
        "model": raw_model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "iter_num": iter_num,
        "best_val_loss": best_val_loss,
    }
    torch.save(checkpoint, os.path.join(data_dir, "ckpt.pt"))


def sample(raw_model, data_dir, meta):
    checkpoint = torch.load(os.path.join(data_dir, "ckpt.pt"), weights_only=True)
    raw_model.load_state_dict(checkpoint["model"])
    raw_model.eval()
    start = torch.tensor([[meta["itos"].index("\n")]])
    print("".join(meta["itos"][i] for i in raw_model.generate(start, 90)[0].tolist()))


def train(max_iters, data_dir):
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    init_process_group(backend="gloo")
    torch.set_num_threads(1)
    master_process = rank == 0
    assert gradient_accumulation_steps % world_size == 0
    accumulation = gradient_accumulation_steps // world_size
    torch.manual_seed(1337 + rank)  # DDP hands out the weights of rank 0
    ctx = autocast()
    with open(os.path.join(data_dir, "meta.pkl"), "rb") as f:
        meta = pickle.load(f)
    model = GPT(meta["vocab_size"])
    scaler = torch.amp.GradScaler("cpu", enabled=(dtype == "float16"))
    optimizer = model.configure_optimizers()
    model = DDP(model)
    raw_model = model.module

    X, Y = get_batch(data_dir, "train")
    best_val_loss, t0 = 1e9, time.time()
    for iter_num in range(max_iters + 1):
        lr = get_lr(iter_num, max_iters)
        for param_group in optimizer.param_groups:
            param_group["lr"] = lr
        if iter_num % eval_interval == 0 and master_process:
            losses = estimate_loss(raw_model, data_dir, ctx)
            print(
                f"step {iter_num}: train {losses['train']:.4f}, val {losses['val']:.4f}"
            )
            if losses["val"] < best_val_loss:
                best_val_loss = losses["val"]
                save(raw_model, optimizer, iter_num, best_val_loss, data_dir)
        if iter_num == max_iters:
            break
        for micro_step in range(accumulation):
            # gradients need to meet in the last micro step only
            model.require_backward_grad_sync = micro_step == accumulation - 1
            with ctx:
                logits, loss = model(X, Y)
                loss = loss / accumulation
            X, Y = get_batch(data_dir, "train")
            scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), grad_clip)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        if iter_num % 10 == 0 and master_process:
            dt, t0 = time.time() - t0, time.time()
            print(f"iter {iter_num}: loss {loss.item() * accumulation:.4f}, {dt:.2f}s")

    if master_process:
        sample(raw_model, data_dir, meta)
    destroy_process_group()


def launch(steps, world_size=2):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    with tempfile.TemporaryDirectory() as data_dir:
        prepare(data_dir)
        command = [sys.executable, __file__, "--steps", str(steps), "--data", data_dir]
        ranks = []
        for rank in range(world_size):
            env = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(world_size))
            env.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
            ranks.append(subprocess.Popen(command, env=env))
        codes = [r.wait() for r in ranks]
    sys.exit(max(map(abs, codes)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--data", default=None, help="set by the launcher")
    args = parser.parse_args()
    if "RANK" in os.environ:
        train(args.steps, args.data)
    else:
        launch(args.steps)
