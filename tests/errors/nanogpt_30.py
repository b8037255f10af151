"""Two ranks train a small character GPT with accumulated gradients.

After karpathy/build-nanogpt, issue 30.
"""

import argparse
import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

TEXT = "the cat sat on a mat and the dog ran to the old red barn where an owl sang"
WORDS = TEXT.split()
CHARS = sorted(set(TEXT))


def make_text(words, seed):
    gen = torch.Generator().manual_seed(seed)
    drawn = torch.randint(len(WORDS), (words,), generator=gen).tolist()
    text = " ".join(WORDS[i] for i in drawn)
    return torch.tensor([CHARS.index(c) for c in text])


class DataLoaderLite:
    def __init__(self, B, T, rank, world):
        self.B, self.T, self.rank, self.world = B, T, rank, world
        self.tokens = make_text(6000, 1)
        self.position = B * T * rank

    def next_batch(self):
        B, T = self.B, self.T
        buf = self.tokens[self.position : self.position + B * T + 1]
        self.position += B * T * self.world
        if self.position + B * T * self.world + 1 > len(self.tokens):
            self.position = B * T * self.rank
        return buf[:-1].view(B, T), buf[1:].view(B, T)


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.c_attn, self.c_proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(
            nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim)
        )

    def forward(self, x):
        B, T, C = x.shape
        qkv = self.c_attn(self.ln_1(x)).view(B, T, 3, self.heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).reshape(B, T, C))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, dim=32, layers=2, block_size=32):
        super().__init__()
        self.wte = nn.Embedding(len(CHARS), dim)
        self.wpe = nn.Embedding(block_size, dim)
        self.h = nn.ModuleList(Block(dim, 4) for _ in range(layers))
        self.ln_f = nn.LayerNorm(dim)
        self.lm_head = nn.Linear(dim, len(CHARS), bias=False)

    def forward(self, idx, targets):
        x = self.wte(idx) + self.wpe(torch.arange(idx.shape[1]))
        for block in self.h:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        return logits, F.cross_entropy(logits.view(-1, len(CHARS)), targets.view(-1))


def accumulate(model, loader, grad_accum_steps):
    loss_accum = 0.0
    for micro_step in range(grad_accum_steps):
        x, y = loader.next_batch()
        logits, loss = model(x, y)
        loss = loss / grad_accum_steps
        loss_accum += loss.detach()
        model.require_backward_grad_sync = micro_step == grad_accum_steps - 1
        loss.backward()
    return loss_accum


def accumulate_flag_first(model, loader, grad_accum_steps):
    loss_accum = 0.0
    for micro_step in range(grad_accum_steps):
        x, y = loader.next_batch()
        model.require_backward_grad_sync = micro_step == grad_accum_steps - 1
        logits, loss = model(x, y)
        loss = loss / grad_accum_steps
        loss_accum += loss.detach()
        loss.backward()
    return loss_accum


def spread(model):
    """How far a weight of a rank is from the mean of the ranks, at most."""
    flat = nn.utils.parameters_to_vector(model.parameters()).detach()
    mean = flat.clone()
    dist.all_reduce(mean)
    far = (flat - mean / dist.get_world_size()).abs().max()
    dist.all_reduce(far, op=dist.ReduceOp.MAX)
    return far.item()


def train(args, accumulation, rank, world):
    torch.manual_seed(args.seed)
    model = DDP(GPT())
    loader = DataLoaderLite(args.micro_batch, 32, rank, world)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=args.lr, betas=(0.9, 0.95), weight_decay=0.1
    )
    for step in range(args.steps):
        optimizer.zero_grad()
        loss_accum = accumulation(model, loader, args.grad_accum_steps)
        dist.all_reduce(loss_accum)
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if rank == 0 and step % 10 == 0:
            loss = loss_accum.item() / world
            print(f"step {step} loss {loss:.4f} norm {norm.item():.3f}", flush=True)
    return model


def work(rank, world, args, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    accumulation = accumulate_flag_first if args.fixed else accumulate
    model = train(args, accumulation, rank, world)
    if args.prove:
        apart = spread(model)
        if rank == 0:
            print(f"weights of the ranks are up to {apart:.6f} from their mean")
            print("fault shows:", "yes" if apart > 1e-5 else "no", flush=True)
    dist.barrier()
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--micro-batch", type=int, default=4)
    parser.add_argument("--grad-accum-steps", type=int, default=3)
    parser.add_argument("--lr", type=float, default=3e-3)
    args = parser.parse_args()
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    mp.spawn(work, args=(2, args, port), nprocs=2)


if __name__ == "__main__":
    main()
