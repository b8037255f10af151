"""HALOS-33: the schedule of the rate moves once for each rank, twice as fast as meant.

Two ranks sort short texts with accelerate. The cosine schedule is made for the steps
that a rank takes, since each rank sees its half of the batches; but a scheduler that
accelerate has prepared moves as often per step as there are ranks. The rate is 0 half
way and then rises again, up to its full height at the end.

Source: https://github.com/ContextualAI/HALOs/pull/33 (also
https://github.com/huggingface/accelerate/issues/2318 and 2926). --fixed makes the
schedule for the steps of all ranks.
"""

import argparse
import math
import os
import socket

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

WORDS, LENGTH, CLASSES = 200, 24, 4
RATE, WARMUP = 3e-3, 4


class Texts(Dataset):
    """Four words of a text come from its class's own ten."""

    def __init__(self, count, seed):
        g = torch.Generator().manual_seed(seed)
        self.label = torch.randint(0, CLASSES, (count,), generator=g)
        self.words = torch.randint(0, WORDS, (count, LENGTH), generator=g)
        for one in range(CLASSES):
            rows = (self.label == one).nonzero()
            places = torch.randint(0, LENGTH, (len(rows), 4), generator=g)
            own = torch.randint(0, 10, places.shape, generator=g)
            self.words[rows, places] = 10 * one + own

    def __len__(self):
        return len(self.label)

    def __getitem__(self, index):
        return {"input_ids": self.words[index], "labels": self.label[index]}


class Classifier(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.emb = nn.Embedding(WORDS, width)
        layer = nn.TransformerEncoderLayer(width, 4, 128, 0.1, batch_first=True)
        self.enc = nn.TransformerEncoder(layer, 1)
        self.fc = nn.Linear(width, CLASSES)

    def forward(self, input_ids):
        return self.fc(self.enc(self.emb(input_ids)).mean(1))


@torch.no_grad()
def evaluate(accelerator, model, loader):
    model.eval()
    right = []
    for batch in loader:
        guess = model(batch["input_ids"]).argmax(-1)
        guess, label = accelerator.gather_for_metrics((guess, batch["labels"]))
        right.append(guess == label)
    model.train()
    return torch.cat(right).float().mean().item()


def train(options, accelerator):
    from transformers import get_scheduler

    model = Classifier()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    train_loader = DataLoader(Texts(640, 0), batch_size=16, shuffle=True)
    eval_loader = DataLoader(Texts(128, 1), batch_size=32)
    max_train_steps = options.epochs * len(train_loader) // accelerator.num_processes
    scale = accelerator.num_processes if options.fixed else 1
    lr_scheduler = get_scheduler(
        "cosine",
        optimizer,
        num_warmup_steps=WARMUP * scale,
        num_training_steps=max_train_steps * scale,
    )
    model, optimizer, train_loader, eval_loader, lr_scheduler = accelerator.prepare(
        model, optimizer, train_loader, eval_loader, lr_scheduler
    )
    criterion, rates = nn.CrossEntropyLoss(), []
    model.train()
    for epoch in range(options.epochs):
        for batch in train_loader:
            loss = criterion(model(batch["input_ids"]), batch["labels"])
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            rates.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            lr_scheduler.step()
            optimizer.zero_grad()
            accelerator.print(f"step {len(rates) - 1} loss {loss:.4f}", flush=True)
        accuracy = evaluate(accelerator, model, eval_loader)
        accelerator.print(f"epoch {epoch} accuracy {accuracy:.3f}", flush=True)
    return rates


def planned(step, steps):
    if step < WARMUP:
        return RATE * step / WARMUP
    done = (step - WARMUP) / max(1, steps - WARMUP)
    return RATE * 0.5 * (1 + math.cos(math.pi * done))


def work(rank, options, port):
    os.environ.update(
        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank),
        LOCAL_RANK=str(rank), WORLD_SIZE="2", LOCAL_WORLD_SIZE="2",
        ACCELERATE_USE_CPU="true",
    )  # fmt: skip
    torch.set_num_threads(1)
    from accelerate import Accelerator
    from accelerate.utils import set_seed

    accelerator = Accelerator(cpu=True)
    set_seed(0)
    rates = train(options, accelerator)
    if options.prove:
        plan = [planned(step, len(rates)) for step in range(len(rates))]
        off = max(abs(a - b) for a, b in zip(rates, plan))
        accelerator.print("fault shows:", "yes" if off > 0.1 * RATE else "no")
    accelerator.end_training()


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--epochs", type=int, default=2)
    options = cli.parse_args()
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    torch.multiprocessing.spawn(work, (options, port), nprocs=2)


if __name__ == "__main__":
    main()
