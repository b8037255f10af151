"""Sorts beans by measurements on two ranks with accelerate (gloo): neither the harvest
nor the test set divides by the ranks' batches, so that accelerate fills up the last
batches. Averaged gradients come from DDP, a rare sort is drawn more often by a weighted
sampler, and gather_for_metrics drops the samples that were filled in when it collects
the evaluation from both ranks.

    python accelerate_uneven_beans.py --steps 80
"""

import argparse
import os
import socket
import tempfile

import torch
import torch.multiprocessing as mp
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

SORTS, TRAITS, BATCH = 7, 16, 24


def beans(count, seed):
    world = torch.Generator().manual_seed(0)
    middle = 1.2 * torch.randn(SORTS, TRAITS, generator=world)
    mixing = torch.randn(TRAITS, TRAITS, generator=world) / TRAITS**0.5
    g = torch.Generator().manual_seed(seed)
    shares = torch.tensor([4.0, 4, 3, 3, 2, 2, 1])
    sort = torch.multinomial(shares, count, replacement=True, generator=g)
    x = middle[sort] + torch.randn(count, TRAITS, generator=g)
    return TensorDataset(torch.sin(x @ mixing) + 0.3 * x, sort)


def network():
    return nn.Sequential(
        nn.Linear(TRAITS, 64),
        nn.LayerNorm(64),
        nn.SiLU(),
        nn.Dropout(0.1),
        nn.Linear(64, 64),
        nn.SiLU(),
        nn.Linear(64, SORTS),
    )


def training_loader(seed):
    """Draws the sorts evenly, with a last batch that is not full."""
    data = beans(1741, seed=1)
    sort = data.tensors[1]
    weights = 1.0 / torch.bincount(sort)[sort]
    g = torch.Generator().manual_seed(seed)
    sampler = WeightedRandomSampler(weights, len(data), generator=g)
    return DataLoader(data, BATCH, sampler=sampler)


class Run:
    def __init__(self, args, folder):
        self.args, self.step = args, 0
        self.accelerator = Accelerator(cpu=True, project_dir=folder)
        set_seed(args.seed)
        model = network()
        optimizer = torch.optim.AdamW(model.parameters(), lr=6e-3, weight_decay=0.02)
        train = training_loader(args.seed)
        test = DataLoader(beans(401, seed=2), batch_size=50)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 40, gamma=0.5)
        prepared = self.accelerator.prepare(model, optimizer, train, test)
        self.model, self.optimizer, self.train, self.test = prepared
        # By hand and not prepared: it steps once per update, whatever the ranks.
        self.schedule = schedule
        self.criterion = nn.CrossEntropyLoss()

    def epoch(self):
        self.model.train()
        for x, y in self.train:
            self.optimizer.zero_grad()
            loss = self.criterion(self.model(x), y)
            self.accelerator.backward(loss)
            self.accelerator.clip_grad_norm_(self.model.parameters(), 5.0)
            self.optimizer.step()
            self.schedule.step()
            self.step += 1
            if self.step % 10 == 0:
                mean = self.accelerator.reduce(loss.detach(), reduction="mean")
                self.accelerator.print(f"step {self.step} loss {mean:.4f}", flush=True)
            if self.step >= self.args.steps:
                break

    @torch.inference_mode()
    def evaluate(self):
        self.model.eval()
        right, losses = [], []
        for x, y in self.test:
            scores = self.model(x)
            loss = nn.functional.cross_entropy(scores, y, reduction="none")
            hit = (scores.argmax(-1) == y).float()
            hit, loss = self.accelerator.gather_for_metrics((hit, loss))
            right.append(hit)
            losses.append(loss)
        right, losses = torch.cat(right), torch.cat(losses)
        text = f"step {self.step} valid {losses.mean():.4f}"
        self.accelerator.print(f"{text} right {right.mean():.3f} of {len(right)}")


def train(rank, port, folder, args):
    os.environ.update(
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        WORLD_SIZE="2",
        LOCAL_WORLD_SIZE="2",
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
        ACCELERATE_USE_CPU="true",
    )
    torch.set_num_threads(1)
    run = Run(args, folder)
    while run.step < args.steps:
        run.epoch()
        run.evaluate()
    run.accelerator.save_model(run.model, f"{folder}/final")
    run.accelerator.end_training()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--seed", type=int, default=14)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(train, (free_port(), folder, args), nprocs=2)


if __name__ == "__main__":
    main()
