"""A small language model over two pipeline stages, one process each.

The text is a made-up grammar of letters. Each stage holds a part of the layers;
micro-batches go through one after the other (GPipe), then their gradients come back.
pytorch/torchtitan#596.
"""

import argparse
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

VOCABULARY = 28
WIDTH = 32
LENGTH = 24
PARTS = 4
MAX_NORM = 0.25


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention_norm = nn.RMSNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.ffn_norm = nn.RMSNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH, bias=False)
        self.down = nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, x):
        rows, length, _ = x.shape
        q, k, v = (
            part.view(rows, length, 4, -1).transpose(1, 2)
            for part in self.qkv(self.attention_norm(x)).chunk(3, -1)
        )
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(rows, length, WIDTH))
        return x + self.down(nn.functional.silu(self.up(self.ffn_norm(x))))


class FirstStage(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Embedding(LENGTH, WIDTH)
        self.layers = nn.Sequential(Block(), Block())

    def forward(self, ids):
        return self.layers(self.tokens(ids) + self.positions.weight[: ids.size(1)])


class LastStage(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(Block(), Block())
        self.norm = nn.RMSNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, x, labels):
        logits = self.head(self.norm(self.layers(x)))
        return nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


class Text:
    """Each letter is followed by one of three; the same batches on both stages."""

    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)
        rules = torch.Generator().manual_seed(77)
        self.rules = torch.randint(VOCABULARY, (VOCABULARY, 3), generator=rules)

    def batch(self, rows):
        ids = torch.empty(rows, LENGTH + 1, dtype=torch.long)
        ids[:, 0] = torch.randint(VOCABULARY, (rows,), generator=self.generator)
        choice = torch.randint(3, (rows, LENGTH), generator=self.generator)
        for i in range(LENGTH):
            ids[:, i + 1] = self.rules[ids[:, i], choice[:, i]]
        return ids[:, :-1], ids[:, 1:]


def run_first(stage, ids):
    outputs = [stage(part) for part in ids.chunk(PARTS)]
    for output in outputs:
        dist.send(output.detach(), 1)
    for output in outputs:
        gradient = torch.empty_like(output)
        dist.recv(gradient, 1)
        output.backward(gradient)


def run_last(stage, labels):
    total = 0.0
    inputs = []
    for part in labels.chunk(PARTS):
        received = torch.empty(*part.shape, WIDTH)
        dist.recv(received, 0)
        inputs.append(received.requires_grad_())
    for received, part in zip(inputs, labels.chunk(PARTS)):
        loss = stage(received, part) / PARTS
        loss.backward()
        total += loss.item()
    for received in inputs:
        dist.send(received.grad, 0)
    return total


def model_norm(parameters):
    norm = nn.utils.get_total_norm([p.grad for p in parameters])
    square = norm.square()
    dist.all_reduce(square)
    return square.sqrt()


def clip(parameters, fixed):
    if not fixed:
        return nn.utils.clip_grad_norm_(parameters, MAX_NORM)
    norm = model_norm(parameters)
    nn.utils.clip_grads_with_norm_(parameters, MAX_NORM, norm)
    return norm


def train(rank, options, port, finished):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    torch.manual_seed(10 + rank)
    stage = (FirstStage, LastStage)[rank]()
    parameters = list(stage.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=3e-3, weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda done: min(1.0, (done + 1) / 10)
    )
    text = Text(5)
    longest = 0.0
    for step in range(options.steps):
        ids, labels = text.batch(32)
        optimizer.zero_grad()
        loss = run_last(stage, labels) if rank else run_first(stage, ids)
        norm = clip(parameters, options.fixed)
        if options.prove:
            longest = max(longest, model_norm(parameters).item())
        optimizer.step()
        schedule.step()
        if rank and step % 10 == 0:
            print(f"step {step} loss {loss:.4f} norm {norm:.3f}", flush=True)
    if options.prove and rank:
        print(f"longest gradient after clipping {longest:.3f}", flush=True)
        print("fault shows:", "yes" if longest > 1.05 * MAX_NORM else "no")
    # Neither closes its connections while the other may still need them.
    finished.wait()
    dist.destroy_process_group()


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=90)
    options = cli.parse_args()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    finished = mp.get_context("spawn").Barrier(2)
    mp.spawn(train, (options, port, finished), nprocs=2)


if __name__ == "__main__":
    main()
