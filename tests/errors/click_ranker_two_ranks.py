"""
Click-through model for the shop front page, trained data-parallel on two
CPU processes.  The script starts the processes itself:

    python click_ranker_two_ranks.py --steps 120
"""
import argparse
import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

N_USERS, N_ITEMS = 600, 300


class ClickLog(Dataset):
    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        world = torch.Generator().manual_seed(99)
        u_lat = torch.randn(N_USERS, 6, generator=world)
        i_lat = torch.randn(N_ITEMS, 6, generator=world)
        self.user = torch.randint(0, N_USERS, (n,), generator=g)
        self.item = torch.randint(0, N_ITEMS, (n,), generator=g)
        self.pos = torch.randint(0, 10, (n,), generator=g)
        score = (u_lat[self.user] * i_lat[self.item]).sum(1) * 0.7 - 0.15 * self.pos
        self.click = (torch.rand(n, generator=g) < torch.sigmoid(score)).float()

    def __len__(self):
        return len(self.click)

    def __getitem__(self, k):
        return self.user[k], self.item[k], self.pos[k], self.click[k]


class ClickModel(nn.Module):
    def __init__(self, dim=24):
        super().__init__()
        self.user = nn.Embedding(N_USERS, dim)
        self.item = nn.Embedding(N_ITEMS, dim)
        self.pos = nn.Embedding(10, 4)
        self.mlp = nn.Sequential(
            nn.Linear(dim * 3 + 4, 64), nn.ReLU(), nn.Linear(64, 1)
        )

    def forward(self, u, i, p):
        eu, ei = self.user(u), self.item(i)
        return self.mlp(torch.cat([eu, ei, eu * ei, self.pos(p)], 1)).squeeze(1)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def evaluate(net, data):
    net.eval()
    with torch.no_grad():
        logit = net(data.user, data.item, data.pos)
        loss = nn.functional.binary_cross_entropy_with_logits(logit, data.click)
    net.train()
    return loss.item()


def worker(rank, world, port, args):
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = str(port)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    torch.manual_seed(0)

    train = ClickLog(16000, seed=1)
    valid = ClickLog(4000, seed=2)
    sampler = DistributedSampler(train, world, rank, shuffle=True, seed=3)
    loader = DataLoader(
        train, batch_size=args.batch_size, sampler=sampler, drop_last=True
    )

    model = DDP(ClickModel())
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    crit = nn.BCEWithLogitsLoss()

    # the model also lives outside of DDP in our serving code, keep a handle
    net = model.module
    if args.fixed:
        net = model

    step, epoch = 0, 0
    while step < args.steps:
        sampler.set_epoch(epoch)
        for u, i, p, c in loader:
            logit = net(u, i, p)
            loss = crit(logit, c)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            step += 1
            if rank == 0 and step % 30 == 0:
                print(f"[{step}] train loss {loss.item():.4f}", flush=True)
            if step >= args.steps:
                break
        epoch += 1
        dist.barrier()

    if rank == 0:
        print(f"valid log loss {evaluate(model.module, valid):.4f}", flush=True)

    if args.prove:
        mine = torch.cat([p.detach().flatten() for p in model.parameters()])
        gathered = [torch.empty_like(mine) for _ in range(world)]
        dist.all_gather(gathered, mine)
        gap = (gathered[0] - gathered[1]).abs().max().item()
        if rank == 0:
            print("fault shows:", "yes" if gap > 1e-5 else "no", flush=True)
    dist.barrier()
    dist.destroy_process_group()


def main():
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--steps", type=int, default=150)
    ap.add_argument("--batch-size", type=int, default=128)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()
    mp.spawn(worker, args=(2, free_port(), args), nprocs=2, join=True)


if __name__ == "__main__":
    main()
