"""Which of eight lighthouses flashes (conv1d) on two ranks: whole blocks are dropped.

Whether a block is left out in a step is drawn by a generator that has the same seed on
both ranks, so its parameters are unused on both (`find_unused_parameters`). Early
stopping on a loss that is summed over the ranks' unequal shares of the validation; rank
0 saves, all ranks load. Starts its ranks itself, or takes those of torchrun.

    python ddp_layerdrop_lighthouses.py --epochs 7
"""

import argparse
import os
import shutil
import socket
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

LIGHTS, LENGTH = 8, 48


def flashes(n, seed):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, LIGHTS, (n,), generator=g)
    t = torch.arange(LENGTH)
    period = torch.tensor([6, 8, 10, 12, 6, 8, 10, 12])[y][:, None]
    double = (y >= 4)[:, None]
    phase = torch.randint(0, 12, (n, 1), generator=g)
    pos = (t + phase) % period
    x = ((pos == 0) | (double & (pos == 2))).float()
    fog = 0.5 + 0.5 * torch.rand(n, 1, generator=g)
    noise = 0.25 * torch.randn(n, LENGTH, generator=g)
    return TensorDataset((x * fog + noise).unsqueeze(1), y)


class Residual(nn.Module):
    def __init__(self, c, dilation):
        super().__init__()
        self.norm = nn.GroupNorm(4, c)
        self.a = nn.Conv1d(c, c, 3, padding=dilation, dilation=dilation)
        self.b = nn.Conv1d(c, c, 1)

    def forward(self, x):
        return self.b(F.silu(self.a(F.silu(self.norm(x)))))


class Keeper(nn.Module):
    def __init__(self, c=24, drop=0.1, seed=9):
        super().__init__()
        self.stem = nn.Conv1d(1, c, 5, padding=2)
        self.blocks = nn.ModuleList(Residual(c, d) for d in (1, 2, 4, 6))
        self.out = nn.Linear(c, LIGHTS)
        self.drop = drop
        self.coin = torch.Generator().manual_seed(seed)  # the same on every rank

    def forward(self, x):
        x = self.stem(x)
        for blk in self.blocks:
            if self.training:
                if torch.rand((), generator=self.coin).item() < self.drop:
                    continue
                x = x + blk(x) / (1 - self.drop)
            else:
                x = x + blk(x)
        return self.out(F.silu(x).amax(-1))


@torch.no_grad()
def evaluate(model, data, rank, world):
    model.eval()
    x, y = (t[rank::world] for t in data.tensors)  # unequal shares, hence sums
    out = model(x)
    loss = F.cross_entropy(out, y, reduction="sum")
    s = torch.stack([loss, (out.argmax(1) == y).sum(), torch.tensor(len(y))])
    dist.all_reduce(s)
    return (s[0] / s[2]).item(), (s[1] / s[2]).item()


def train_epoch(model, opt, loader):
    """The loss of an epoch, summed over batches and ranks."""
    model.train()
    acc = torch.zeros(())
    for x, y in loader:
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        acc += loss.detach()
    dist.all_reduce(acc)
    return acc.item()


def work(epochs):
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    train, valid, test = flashes(640, 1), flashes(201, 2), flashes(203, 3)
    sampler = DistributedSampler(
        train, world, rank, shuffle=True, seed=4, drop_last=True
    )
    loader = DataLoader(train, 32, sampler=sampler, drop_last=True)
    model = DDP(Keeper(), find_unused_parameters=True)
    opt = torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=1e-2)
    box = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(box, 0)
    path = os.path.join(box[0], "best.pt")

    best, waited = float("inf"), 0
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        loss = train_epoch(model, opt, loader) / (world * len(loader))
        v, hit = evaluate(model.module, valid, rank, world)
        if rank == 0:
            line = f"epoch {epoch} loss {loss:.4f} valid {v:.4f} acc {hit:.3f}"
            print(line, flush=True)
        if v < best:  # the same on all ranks
            best, waited = v, 0
            if rank == 0:
                parts = {"model": model.module, "opt": opt}
                state = {name: part.state_dict() for name, part in parts.items()}
                torch.save({"epoch": epoch, **state}, path)
        else:
            waited += 1
            if waited == 3:
                break
    dist.barrier()  # the file is complete before anyone reads it
    ck = torch.load(path, weights_only=True)
    model.module.load_state_dict(ck["model"])
    t, hit = evaluate(model.module, test, rank, world)
    if rank == 0:
        print(f"best epoch {ck['epoch']}: test loss {t:.4f} acc {hit:.3f}", flush=True)
    dist.barrier()
    if rank == 0:
        shutil.rmtree(box[0])
    dist.destroy_process_group()


def as_spawned(rank, port, epochs):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2")
    work(epochs)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=7)
    options = parser.parse_args()
    if "RANK" in os.environ:
        work(options.epochs)
        return
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    mp.spawn(as_spawned, args=(port, options.epochs), nprocs=2)


if __name__ == "__main__":
    main()
