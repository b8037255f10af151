"""Ships in a harbour from radar tracks, two tasks from two loaders, two ranks (accelerate).

Labelled tracks (kind of ship) and a larger set of tracks without labels (the next
positions are forecast) go through one model in the same step. Gradients are accumulated
over three pairs of batches; the last group of an epoch is smaller. The schedule is
counted for all processes, as accelerate moves it once for each.

    python accelerate_harbour_two_loaders.py --epochs 6
"""

import argparse
import os
import socket

from accelerate import Accelerator
from accelerate.utils import set_seed
import torch
import torch.multiprocessing as mp
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, RandomSampler, TensorDataset

LENGTH, AHEAD, KINDS = 32, 4, 4


def tracks(count, seed):
    """Ferries turn back, tugs circle, tankers go straight, fishers wander."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.rand(count, *shape, generator=generator)

    kind = torch.randint(KINDS, (count,), generator=generator)
    time = torch.arange(LENGTH + AHEAD).float()
    speed = torch.tensor([0.9, 0.6, 0.8, 0.5])[kind, None] * (0.8 + 0.4 * draw(1))
    heading = (6.28 * draw(1)).expand(-1, len(time))
    middle = 10 + 14 * draw(1)
    back = 3.14 * torch.sigmoid(1.5 * (time - middle))
    circle = (0.15 + 0.15 * draw(1)) * time * torch.where(draw(1) < 0.5, -1.0, 1.0)
    noise = torch.randn(count, len(time), generator=generator)
    turns = torch.stack(
        [back, circle, 0.004 * (draw(1) - 0.5) * time, 0.35 * noise.cumsum(1)]
    )
    heading = heading + turns[kind, torch.arange(count)]
    move = speed[..., None] * torch.stack([heading.cos(), heading.sin()], 2)
    move = move + 0.08 * torch.randn(move.shape, generator=generator)
    return move, kind


class TrackNet(nn.Module):
    """One forward for both tasks, so that every parameter has a part in each step."""

    def __init__(self, width=48):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv1d(2, width, 5, padding=2), nn.ReLU(),
            nn.Conv1d(width, width, 5, padding=2), nn.ReLU(),
        )  # fmt: skip
        self.gru = nn.GRU(2, width, batch_first=True)
        self.kind = nn.Sequential(
            nn.Linear(3 * width, width),
            nn.ReLU(),
            nn.Dropout(0.1),
            nn.Linear(width, KINDS),
        )
        self.ahead = nn.Linear(width, 2 * AHEAD)

    def classify(self, moves):
        shape = self.conv(moves.transpose(1, 2))
        course = self.gru(moves)[0].mean(1)
        return self.kind(torch.cat([shape.mean(2), shape.amax(2), course], 1))

    def forecast(self, moves):
        last = self.gru(moves)[0][:, -1]
        return self.ahead(last).view(-1, AHEAD, 2)

    def forward(self, labelled, plain=None):
        if plain is None:
            return self.classify(labelled)
        return self.classify(labelled), self.forecast(plain)


def evaluate(accelerator, model, loader):
    model.eval()
    loss, right, total = 0.0, 0, 0
    for moves, kind in loader:
        with torch.no_grad():
            logits = model(moves[:, :LENGTH])
        # without the rows that were repeated to make the ranks' batches equal
        logits, kind = accelerator.gather_for_metrics((logits, kind))
        loss += F.cross_entropy(logits, kind, reduction="sum").item()
        right += (logits.argmax(1) == kind).sum().item()
        total += len(kind)
    model.train()
    return loss / total, right / total, total


def work(rank, args, port):
    os.environ.update(
        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank),
        LOCAL_RANK=str(rank), WORLD_SIZE="2", ACCELERATE_USE_CPU="true", OMP_NUM_THREADS="1",
    )  # fmt: skip
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=3)
    torch.set_num_threads(1)  # here, as accelerate sets a number of its own
    set_seed(args.seed)
    labelled = TensorDataset(*tracks(600, args.seed))
    plain = TensorDataset(tracks(3000, args.seed + 1)[0])
    held = TensorDataset(*tracks(301, args.seed + 2))
    first = DataLoader(labelled, 12, shuffle=True, drop_last=True)
    # as long as the other one, a different part of the tracks each epoch
    some = RandomSampler(plain, num_samples=24 * 2 * (len(labelled) // 24))
    second = DataLoader(plain, 24, sampler=some, drop_last=True)
    model = TrackNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-3, weight_decay=0.01)
    per_rank = len(first) // 2
    updates = args.epochs * -(-per_rank // 3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, 6e-3, total_steps=updates * accelerator.num_processes + 1
    )
    model, optimizer, first, second, test, schedule = accelerator.prepare(
        model, optimizer, first, second, DataLoader(held, 50), schedule
    )
    assert len(first) == len(second) == per_rank
    # dropout is to differ between the ranks; orders are shared by accelerate anyway
    set_seed(args.seed, device_specific=True)
    step = 0
    for epoch in range(args.epochs):
        for (moves, kind), (other,) in zip(first, second):
            with accelerator.accumulate(model):
                logits, ahead = model(moves[:, :LENGTH], other[:, :LENGTH])
                kinds = F.cross_entropy(logits, kind)
                forecast = F.smooth_l1_loss(ahead, other[:, LENGTH:])
                accelerator.backward(kinds + 2.0 * forecast)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()  # does nothing within a group, nor do these two
                schedule.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients:
                shown = torch.stack([kinds.detach(), forecast.detach()])
                shown = accelerator.reduce(shown, "mean")
                accelerator.print(
                    f"step {step} loss {shown[0]:.4f} forecast {shown[1]:.4f} "
                    f"lr {schedule.get_last_lr()[0]:.5f}",
                    flush=True,
                )
                step += 1
        loss, accuracy, total = evaluate(accelerator, model, test)
        assert total == len(held)
        accelerator.print(f"epoch {epoch} held {loss:.4f} accuracy {accuracy:.3f}")
    accelerator.wait_for_everyone()
    total = sum(p.detach().double().sum() for p in model.module.parameters())
    everyone = accelerator.gather(total.reshape(1))
    assert everyone[0] == everyone[1]
    accelerator.end_training()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    mp.spawn(work, (args, port), nprocs=2)


if __name__ == "__main__":
    main()
