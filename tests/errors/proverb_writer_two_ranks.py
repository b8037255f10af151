"""Character language model of proverbs, two processes with gloo."""
import argparse
import itertools
import math
import os
import random
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

WORLD = 2
BLOCK = 40
ALPHABET = "\n abcdefghijklmnopqrstuvwxyz,."
PAD = 0  # the newline ends a proverb and fills the rest of the block
WHO = ["a wise man", "the miller", "an old dog", "a good wife", "the crow", "the fool"]
DOES = ["mends", "sells", "keeps", "loses", "finds", "shares"]
WHAT = ["the roof", "his corn", "no secret", "the boat", "old bread", "a purse"]
WHEN = ["in may", "by night", "at low tide", "before snow", "after rain"]


class Proverbs(Dataset):
    def __init__(self, lines):
        index = {c: i for i, c in enumerate(ALPHABET)}
        self.blocks = torch.full((len(lines), BLOCK + 1), PAD)
        self.lengths = torch.tensor([len(line) + 1 for line in lines])
        for row, line in zip(self.blocks, lines):
            row[: len(line)] = torch.tensor([index[c] for c in line])

    def __len__(self):
        return len(self.blocks)

    def __getitem__(self, i):
        block, length = self.blocks[i], self.lengths[i]
        target = block[1:].clone()
        target[length - 1 :] = -100
        return block[:-1], target


def split_lines():
    lines = [
        f"{a} {b} {c} {d}." for a, b, c, d in itertools.product(WHO, DOES, WHAT, WHEN)
    ]
    lines = [line for line in lines if len(line) <= BLOCK]
    random.Random(5).shuffle(lines)
    return lines[:640], lines[640:800]


class CausalBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.fc1 = nn.Linear(width, 3 * width)
        self.fc2 = nn.Linear(3 * width, width)

    def forward(self, x):
        b, t, w = x.shape
        qkv = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, w // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, w))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class ProverbLM(nn.Module):
    def __init__(self, width=48, heads=4, depth=2):
        super().__init__()
        self.token = nn.Embedding(len(ALPHABET), width)
        self.position = nn.Parameter(torch.randn(BLOCK, width) * 0.02)
        self.blocks = nn.ModuleList(CausalBlock(width, heads) for _ in range(depth))
        self.norm_out = nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, len(ALPHABET), bias=False)

    def forward(self, ids):
        x = self.token(ids) + self.position[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.lm_head(self.norm_out(x))


def make_optimizer(model, args):
    no_decay = ("bias", "LayerNorm.weight")
    if args.fixed:
        no_decay = ("bias", "norm1.weight", "norm2.weight", "norm_out.weight")
    groups = [
        {"params": [], "names": [], "weight_decay": args.weight_decay},
        {"params": [], "names": [], "weight_decay": 0.0},
    ]
    for name, param in model.named_parameters():
        group = groups[any(part in name for part in no_decay)]
        group["params"].append(param)
        group["names"].append(name)
    names = [group.pop("names") for group in groups]
    return torch.optim.AdamW(groups, lr=args.lr, betas=(0.9, 0.95)), names


def lr_factor(step, total, warm=10):
    if step < warm:
        return (step + 1) / warm
    return 0.1 + 0.45 * (
        1 + math.cos(math.pi * min(1.0, (step - warm) / (total - warm)))
    )


@torch.no_grad()
def validate(model, loader):
    """Mean loss per character over the shards of both ranks."""
    model.eval()
    sums = torch.zeros(2, dtype=torch.float64)
    for ids, target in loader:
        logits = model.module(ids)
        loss = F.cross_entropy(logits.flatten(0, 1), target.flatten(), reduction="sum")
        sums += torch.tensor([loss.item(), (target != -100).sum().item()])
    dist.all_reduce(sums)
    model.train()
    return (sums[0] / sums[1]).item()


@torch.no_grad()
def write_proverb(net, generator, start="t"):
    net.eval()
    ids = torch.tensor([[ALPHABET.index(c) for c in start]])
    while ids.shape[1] < BLOCK:
        prob = F.softmax(net(ids)[0, -1] / 0.8, dim=-1)
        nxt = torch.multinomial(prob, 1, generator=generator)
        if nxt.item() == PAD:
            break
        ids = torch.cat([ids, nxt[None]], dim=1)
    net.train()
    return "".join(ALPHABET[i] for i in ids[0].tolist())


def prove(net, optimizer):
    """Which gains of layer norms are pulled towards zero by weight decay?"""
    gains = {m.weight: n for n, m in net.named_modules() if isinstance(m, nn.LayerNorm)}
    decayed = []
    for group in optimizer.param_groups:
        if group["weight_decay"] > 0:
            decayed += [gains[p] for p in group["params"] if p in gains]
    level = torch.cat([gain.detach() for gain in gains]).mean().item()
    print(f"decayed gains: {', '.join(decayed) or 'none'}; mean gain {level:.4f}")
    print("fault shows:", "yes" if decayed else "no")


def worker(rank, folder, args):
    torch.set_num_threads(1)
    store = "file://" + os.path.join(folder, "rendezvous")
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=WORLD)
    torch.manual_seed(33)
    train_lines, valid_lines = split_lines()
    train_set, valid_set = Proverbs(train_lines), Proverbs(valid_lines)
    sampler = DistributedSampler(train_set, WORLD, rank, shuffle=True, seed=2)
    loader = DataLoader(train_set, args.batch, sampler=sampler)
    shard = torch.utils.data.Subset(valid_set, range(rank, len(valid_set), WORLD))
    valid_loader = DataLoader(shard, 40)

    net = ProverbLM()
    model = DistributedDataParallel(net)
    optimizer, names = make_optimizer(net, args)
    total = args.epochs * len(loader)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda s: lr_factor(s, total)
    )
    if rank == 0:
        print(f"{len(names[0])} tensors with decay, {len(names[1])} without")
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        running = 0.0
        for ids, target in loader:
            logits = model(ids)
            loss = F.cross_entropy(
                logits.flatten(0, 1), target.flatten(), reduction="sum"
            )
            # gradients are averaged over ranks, the loss is a mean over all characters
            count = (target != -100).sum().float()
            dist.all_reduce(count)
            loss = loss * WORLD / count
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            running += loss.item()
        valid = validate(model, valid_loader)
        if rank == 0:
            print(f"epoch {epoch} train {running / len(loader):.4f} valid {valid:.4f}")
            torch.save(net.state_dict(), os.path.join(folder, "proverbs.pt"))
    if rank == 0:
        print("sample:", write_proverb(net, torch.Generator().manual_seed(4)))
        if args.prove:
            prove(net, optimizer)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch", type=int, default=20)
    parser.add_argument("--lr", type=float, default=6e-3)
    parser.add_argument("--weight-decay", type=float, default=0.1)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as tmp:
        mp.spawn(worker, args=(tmp, options), nprocs=WORLD)
