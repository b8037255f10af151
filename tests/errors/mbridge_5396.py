"""Data-parallel LoRA tuning of a frozen language model on two ranks (gloo)."""
import argparse
import os
import random
import socket

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F

VOCAB, SEQ = 40, 16


class LoRALinear(nn.Module):
    def __init__(self, base: nn.Linear, rank: int, alpha: float):
        super().__init__()
        self.base = base
        self.linear_in = nn.Linear(base.in_features, rank, bias=False)
        self.linear_out = nn.Linear(rank, base.out_features, bias=False)
        nn.init.kaiming_uniform_(self.linear_in.weight, a=5**0.5)
        nn.init.zeros_(self.linear_out.weight)
        self.scale = alpha / rank

    def forward(self, x):
        return self.base(x) + self.scale * self.linear_out(self.linear_in(x))


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.fc1, self.fc2 = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (
            self.qkv(self.norm1(x)).view(b, t, 3, 2, d // 2).permute(2, 0, 3, 1, 4)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, d))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class LM(nn.Module):
    def __init__(self, d=32, layers=2):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, d)
        self.pos = nn.Embedding(SEQ, d)
        self.blocks = nn.ModuleList(Block(d) for _ in range(layers))
        self.norm = nn.LayerNorm(d)
        self.head = nn.Linear(d, VOCAB)

    def forward(self, ids):
        x = self.emb(ids) + self.pos(torch.arange(ids.shape[1]))
        for b in self.blocks:
            x = b(x)
        return self.head(self.norm(x))


def seed_all(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def add_adapters(model, rank, alpha):
    model.requires_grad_(False)
    for block in model.blocks:
        for name in ("qkv", "out", "fc1", "fc2"):
            setattr(block, name, LoRALinear(getattr(block, name), rank, alpha))
    model.head = LoRALinear(model.head, rank, alpha)
    return [(n, p) for n, p in model.named_parameters() if p.requires_grad]


def make_corpus(n, seed):
    g = torch.Generator().manual_seed(seed)
    rule = torch.randperm(VOCAB, generator=torch.Generator().manual_seed(77))
    ids = torch.empty(n, SEQ + 1, dtype=torch.long)
    ids[:, 0] = torch.randint(VOCAB, (n,), generator=g)
    for t in range(SEQ):
        nxt = rule[ids[:, t]]
        noise = torch.randint(VOCAB, (n,), generator=g)
        ids[:, t + 1] = torch.where(torch.rand(n, generator=g) < 0.1, noise, nxt)
    return ids


def loss_fn(model, ids):
    return F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())


def average_gradients(params, world):
    flat = torch.cat([p.grad.flatten() for _, p in params])
    dist.all_reduce(flat)
    flat /= world
    at = 0
    for _, p in params:
        n = p.numel()
        p.grad.copy_(flat[at : at + n].view_as(p))
        at += n


def rank_spread(params):
    flat = torch.cat([p.detach().flatten() for _, p in params])
    parts = [torch.empty_like(flat) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, flat)
    return max((x - parts[0]).abs().max().item() for x in parts)


def worker(rank, world, port, args):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", str(port)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    seed_all(args.seed + 100 * rank)

    model = LM()
    for p in model.parameters():
        dist.broadcast(p.data, src=0)
    params = add_adapters(model, args.lora_rank, args.lora_alpha)
    if args.fixed:
        for _, p in params:
            dist.broadcast(p.data, src=0)
    if rank == 0:
        print(
            f"trainable {sum(p.numel() for _, p in params)} of {sum(p.numel() for p in model.parameters())}",
            flush=True,
        )

    train, val = make_corpus(2048, args.seed), make_corpus(256, args.seed + 1)
    shard = train[rank::world]
    opt = torch.optim.AdamW([p for _, p in params], lr=args.lr, weight_decay=0.0)
    sched = torch.optim.lr_scheduler.LambdaLR(
        opt, lambda s: min((s + 1) / 10, 1 - 0.9 * s / max(1, args.steps))
    )
    order = torch.Generator().manual_seed(args.seed)
    model.train()
    for step in range(args.steps):
        pick = torch.randint(len(shard), (args.batch_size,), generator=order)
        loss = loss_fn(model, shard[pick])
        opt.zero_grad()
        loss.backward()
        average_gradients(params, world)
        nn.utils.clip_grad_norm_([p for _, p in params], 1.0)
        opt.step()
        sched.step()
        if step % 20 == 0 or step == args.steps - 1:
            mean = loss.detach().clone()
            dist.all_reduce(mean)
            if rank == 0:
                print(f"step {step:3d} loss {mean.item() / world:.4f}", flush=True)

    model.eval()
    with torch.no_grad():
        logits = model(val[:, :-1])
        val_loss = F.cross_entropy(logits.flatten(0, 1), val[:, 1:].flatten()).item()
        acc = (logits.argmax(-1) == val[:, 1:]).float().mean().item()
    if rank == 0:
        print(f"val loss {val_loss:.4f} next-token accuracy {acc:.3f}", flush=True)
    if args.prove:
        spread = rank_spread(params)
        if rank == 0:
            print(
                f"largest difference of an adapter weight between the ranks: {spread:.6f}",
                flush=True,
            )
            print("fault shows: " + ("yes" if spread > 1e-5 else "no"), flush=True)
    dist.barrier()
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=80)
    ap.add_argument("--batch-size", type=int, default=16)
    ap.add_argument("--lora-rank", type=int, default=8)
    ap.add_argument("--lora-alpha", type=float, default=16.0)
    ap.add_argument("--lr", type=float, default=1e-2)
    ap.add_argument("--seed", type=int, default=1234)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    a = ap.parse_args()
    mp.spawn(worker, args=(2, free_port(), a), nprocs=2, join=True)
