"""Activity recognition from accelerometer windows, 2-process DDP (gloo).

    python wearable_activity_ddp.py --epochs 8
"""
import argparse
import os
import socket
import tempfile

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

ACTIVITIES = ["sit", "walk", "run", "stairs", "cycle"]


def synth_windows(n, seed, length=64):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, len(ACTIVITIES), n)
    t = np.arange(length) / 32.0
    freq = np.array([0.0, 1.8, 2.8, 1.5, 1.1])[y] * rng.uniform(0.9, 1.1, n)
    amp = np.array([0.02, 0.5, 1.3, 0.6, 0.3])[y] * rng.uniform(0.8, 1.2, n)
    ph = rng.uniform(0, 2 * np.pi, (n, 3))
    axes = np.array([1.0, 0.6, 0.3])
    x = (
        amp[:, None, None]
        * axes[None, :, None]
        * np.sin(2 * np.pi * freq[:, None, None] * t[None, None] + ph[:, :, None])
    )
    x[y == 3, 2] += 0.3 * np.sign(np.sin(2 * np.pi * 0.75 * t))
    x += rng.normal(0, 0.35, x.shape)
    return torch.tensor(x, dtype=torch.float32), torch.tensor(y)


class ConvGRU(nn.Module):
    def __init__(self, n_classes, ch=32):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv1d(3, ch, 5, stride=2, padding=2),
            nn.BatchNorm1d(ch),
            nn.ReLU(),
            nn.Conv1d(ch, ch, 5, stride=2, padding=2),
            nn.BatchNorm1d(ch),
            nn.ReLU(),
        )
        self.gru = nn.GRU(ch, 32, batch_first=True)
        self.drop = nn.Dropout(0.2)
        self.fc = nn.Linear(32, n_classes)

    def forward(self, x):
        h, _ = self.gru(self.conv(x).transpose(1, 2))
        return self.fc(self.drop(h.mean(1)))


def reduce_sum(*values):
    t = torch.tensor(values, dtype=torch.float64)
    dist.all_reduce(t, op=dist.ReduceOp.SUM)
    return t.tolist()


def setup(rank, world, port):
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = str(port)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    torch.set_num_threads(1)


def evaluate(net, loader):
    """Each rank takes its own slice of the validation set, sums are reduced."""
    net.eval()
    loss = correct = count = 0.0
    with torch.no_grad():
        for x, y in loader:
            out = net(x)
            loss += nn.functional.cross_entropy(out, y, reduction="sum").item()
            correct += (out.argmax(1) == y).sum().item()
            count += len(y)
    loss, correct, count = reduce_sum(loss, correct, count)
    return loss / count, correct / count, int(count)


def train_epoch(ddp, train_loader, criterion, optimizer):
    loss_sum = n = 0.0
    for x, y in train_loader:
        optimizer.zero_grad()
        loss = criterion(ddp(x), y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(ddp.parameters(), 2.0)
        optimizer.step()
        loss_sum += loss.item() * len(y)
        n += len(y)
    return loss_sum, n


def check_best(rank, model, val_loader, ckpt_path):
    # reload the best one on every rank and check it
    state = torch.load(ckpt_path, map_location="cpu", weights_only=True)
    model.load_state_dict(state["model"])
    _, acc, _ = evaluate(model, val_loader)
    if rank == 0:
        print(f"best epoch {state['epoch']}, accuracy {acc:.3f}", flush=True)


def worker(rank, world, port, args, ckpt_path):
    setup(rank, world, port)
    torch.manual_seed(
        args.seed + rank
    )  # different dropout on each rank, DDP broadcasts the weights

    train_set = TensorDataset(*synth_windows(1600, 1))
    xv, yv = synth_windows(501, 2)
    val_set = TensorDataset(xv[rank::world], yv[rank::world])  # no padding duplicates

    sampler = DistributedSampler(
        train_set, num_replicas=world, rank=rank, shuffle=True, seed=args.seed
    )
    train_loader = DataLoader(
        train_set, batch_size=args.batch // world, sampler=sampler
    )
    val_loader = DataLoader(val_set, batch_size=128)

    model = (
        nn.SyncBatchNorm.convert_sync_batchnorm(ConvGRU(len(ACTIVITIES)))
        if args.sync_bn
        else ConvGRU(len(ACTIVITIES))
    )
    ddp = DDP(model)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.AdamW(ddp.parameters(), lr=args.lr, weight_decay=1e-2)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=3, gamma=0.5)

    best = 0.0
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        ddp.train()
        loss_sum, n = train_epoch(ddp, train_loader, criterion, optimizer)
        scheduler.step()

        loss_sum, n = reduce_sum(loss_sum, n)
        # BN running statistics differ a little between ranks: use those of rank 0 everywhere
        for buf in ddp.module.buffers():
            dist.broadcast(buf, src=0)
        val_loss, val_acc, seen = evaluate(ddp.module, val_loader)
        if rank == 0:
            print(
                f"epoch {epoch} train {loss_sum / n:.4f} val {val_loss:.4f} acc {val_acc:.3f} ({seen} windows)",
                flush=True,
            )
            if val_acc > best:
                best = val_acc
                torch.save(
                    {"model": ddp.module.state_dict(), "epoch": epoch}, ckpt_path
                )
        dist.barrier()

    check_best(rank, ddp.module, val_loader, ckpt_path)
    dist.barrier()
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch", type=int, default=80, help="global batch size")
    parser.add_argument("--lr", type=float, default=4e-3)
    parser.add_argument("--seed", type=int, default=17)
    parser.add_argument("--sync_bn", action="store_true", help="needs GPUs")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as tmp:
        mp.spawn(
            worker,
            args=(2, free_port(), args, os.path.join(tmp, "best.pt")),
            nprocs=2,
            join=True,
        )
