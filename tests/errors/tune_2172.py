"""TUNE-2172: the gradients are divided by all tokens and by the ranks as well.

Source: https://github.com/meta-pytorch/torchtune/pull/2172. The recipe sums the losses
of the tokens, counts the tokens of all ranks and divides the gradients by that number.
The data-parallel wrapper has averaged them over the ranks before: on two ranks each
step is half of what it should be, and the loss that is shown is right. --fixed takes
the average back.
"""

import argparse
import contextlib
import os
import socket
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

IGNORE, VOCAB, WORLD = -100, 30, 2


def instructions(count, seed):
    """A prompt of three tokens; the answer repeats each of them, then ends."""
    g = torch.Generator().manual_seed(seed)
    samples = []
    for _ in range(count):
        times = int(torch.randint(1, 5, (1,), generator=g))
        prompt = torch.randint(2, VOCAB, (3,), generator=g)
        answer = torch.cat([prompt.repeat_interleave(times), torch.tensor([1])])
        tokens = torch.cat([prompt, answer])
        labels = torch.cat([torch.full((3,), IGNORE), answer])
        samples.append((tokens[:-1], labels[1:]))
    return samples


def collate_sft(samples):
    tokens, labels = zip(*samples)
    pad = nn.utils.rnn.pad_sequence
    return pad(tokens, True), pad(labels, True, padding_value=IGNORE)


class Decoder(nn.Module):
    def __init__(self, width=40):
        super().__init__()
        self.tok_embeddings = nn.Embedding(VOCAB, width)
        self.layer = nn.LSTM(width, width, batch_first=True)
        self.norm = nn.LayerNorm(width)
        self.output = nn.Linear(width, VOCAB)

    def forward(self, tokens):
        return self.output(self.norm(self.layer(self.tok_embeddings(tokens))[0]))


def summed_loss(model, tokens, labels):
    logits = model(tokens).flatten(0, 1)
    return F.cross_entropy(
        logits, labels.flatten(), ignore_index=IGNORE, reduction="sum"
    )


def scale_grads(model, scaler):
    for parameter in model.parameters():
        parameter.grad *= scaler


class FullFinetuneRecipe:
    accumulation, batch_size = 2, 6

    def __init__(self, rank, args):
        self.rank, self.args = rank, args
        torch.manual_seed(6)
        self.model = DistributedDataParallel(Decoder())
        self.optimizer = torch.optim.SGD(
            self.model.parameters(), lr=0.5, momentum=0.9, nesterov=True
        )
        self.samples = instructions(400, seed=14)
        self.furthest = 0.0

    def micro_batches(self, step):
        """What all ranks see in a step; each takes its part of the list."""
        g = torch.Generator().manual_seed(step)
        count = WORLD * self.accumulation * self.batch_size
        rows = torch.randperm(len(self.samples), generator=g)[:count].tolist()
        size = self.batch_size
        parts = [rows[i : i + size] for i in range(0, count, size)]
        return [collate_sft([self.samples[row] for row in part]) for part in parts]

    def compare(self, batches):
        """With the gradient of the mean over all tokens of all ranks."""
        net = self.model.module
        total = sum(summed_loss(net, *batch) for batch in batches)
        tokens = sum((labels != IGNORE).sum() for _, labels in batches)
        wanted = torch.autograd.grad(total / tokens, list(net.parameters()))
        for gradient, parameter in zip(wanted, net.parameters()):
            away = (parameter.grad - gradient).norm() / (gradient.norm() + 1e-12)
            self.furthest = max(self.furthest, away.item())

    def train(self):
        for step in range(self.args.steps):
            batches = self.micro_batches(step)
            running_loss, num_tokens = torch.zeros(()), torch.zeros(())
            mine = batches[self.rank :: WORLD]
            for i, (tokens, labels) in enumerate(mine):
                last = i == len(mine) - 1
                with contextlib.nullcontext() if last else self.model.no_sync():
                    loss = summed_loss(self.model, tokens, labels)
                    loss.backward()
                running_loss += loss.detach()
                num_tokens += (labels != IGNORE).sum()
            dist.all_reduce(num_tokens)
            dist.all_reduce(running_loss)
            if self.args.fixed:
                scale_grads(self.model, WORLD / num_tokens)
            else:
                scale_grads(self.model, 1 / num_tokens)
            if self.args.prove:
                self.compare(batches)
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            if self.rank == 0:
                print(f"{step}|loss: {running_loss / num_tokens:.4f}", flush=True)


def recipe_main(rank, args, port):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(WORLD))
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    recipe = FullFinetuneRecipe(rank, args)
    recipe.train()
    if args.prove and rank == 0:
        print("fault shows:", "yes" if recipe.furthest > 1e-2 else "no", flush=True)
    dist.barrier()
    dist.destroy_process_group()
    time.sleep(0.1)


if __name__ == "__main__":
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=16)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    with socket.create_server(("127.0.0.1", 0)) as server:
        free_port = server.getsockname()[1]
    mp.spawn(recipe_main, (cli.parse_args(), free_port), nprocs=WORLD)
