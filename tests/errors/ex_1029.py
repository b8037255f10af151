"""EX-1029: a checkpoint is loaded that matches no name of the model.

Source: pytorch/examples#1029. The pretraining wraps the network and saves the
wrapper, so that all names begin with "model."; the fine-tuning loads the file into
the network itself with strict=False, which takes nothing and says nothing, and
starts from random weights. --fixed takes the prefix away.
"""

import argparse
import os
import tempfile

import torch
from torch import nn
from torch.nn import functional as F


class Encoder(nn.Module):
    def __init__(self, letters=20, width=32):
        super().__init__()
        self.embed = nn.Embedding(letters + 1, width)
        self.lstm = nn.LSTM(width, width, batch_first=True, bidirectional=True)
        self.norm = nn.LayerNorm(2 * width)

    def forward(self, ids):
        return self.norm(self.lstm(self.embed(ids))[0])


class Denoising(nn.Module):
    """The task of the pretraining: letters that were masked."""

    def __init__(self, letters=20):
        super().__init__()
        self.letters = letters
        self.model = Encoder(letters)
        self.out = nn.Linear(64, letters)

    def training_step(self, ids):
        hidden = torch.rand(ids.shape) < 0.3
        logits = self.out(self.model(ids.masked_fill(hidden, self.letters)))
        return F.cross_entropy(logits[hidden], ids[hidden])


def sequences(count, length=16, letters=20):
    start = torch.randint(letters, (count, 1))
    pace = torch.randint(1, 4, (count, 1))
    return (start + pace * torch.arange(length)) % letters, pace[:, 0] - 1


def pretrain(steps, path):
    task = Denoising()
    optimizer = torch.optim.Adam(task.parameters(), lr=1e-2)
    for step in range(steps):
        ids, _ = sequences(32)
        loss = task.training_step(ids)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f}", flush=True)
    torch.save({"state_dict": task.state_dict(), "global_step": steps}, path)


def load_encoder(path, strip_prefix):
    encoder = Encoder()
    state = torch.load(path)["state_dict"]
    if strip_prefix:
        state = {name.removeprefix("model."): value for name, value in state.items()}
    encoder.load_state_dict(state, strict=False)
    return encoder


def finetune(encoder, first, last):
    head = nn.Linear(64, 3)
    optimizer = torch.optim.Adam(
        [
            {"params": encoder.parameters(), "lr": 1e-3},
            {"params": head.parameters(), "lr": 1e-2},
        ]
    )
    for step in range(first, last):
        ids, labels = sequences(16)
        loss = F.cross_entropy(head(encoder(ids).mean(dim=1)), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f}", flush=True)


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=20)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    half = options.steps // 2
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "pretrained.ckpt")
        pretrain(half, path)
        encoder = load_encoder(path, options.fixed)
        saved = torch.load(path)["state_dict"]["model.embed.weight"]
    arrived = torch.equal(encoder.embed.weight, saved)
    finetune(encoder, half, options.steps)
    if options.prove:
        print("fault shows:", "no" if arrived else "yes")


if __name__ == "__main__":
    main()
