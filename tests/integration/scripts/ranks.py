"""One rank of a small training on gloo, for tests of who is who."""

import argparse
import os
import pathlib
import signal
import subprocess
import sys
import time

import torch
from torch import nn


def train(steps, ddp):
    torch.manual_seed(1)
    model = nn.Linear(4, 1)
    if ddp:
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(steps):
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        yield step


def load():
    data = torch.utils.data.TensorDataset(torch.ones(4, 1))
    options = {"num_workers": 1, "multiprocessing_context": "spawn"}
    for _ in torch.utils.data.DataLoader(data, **options):
        pass


def kill_rank_1_once(marker):
    """In the first attempt rank 1 dies, once rank 0 has trained too."""
    if os.environ["TORCHELASTIC_RESTART_COUNT"] != "0":
        return
    if os.environ["RANK"] == "0":
        marker.touch()
        return
    while not marker.exists():
        time.sleep(0.05)
    os.kill(os.getpid(), signal.SIGKILL)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--init", default="env://")
    parser.add_argument("--rank", type=int, default=-1)
    parser.add_argument("--alone", action="store_true", help="without a group")
    parser.add_argument("--spawned-worker", action="store_true")
    parser.add_argument("--subprocess", action="store_true", help="that trains too")
    parser.add_argument("--kill-once", metavar="FILE")
    parser.add_argument("--hold", metavar="FILE", help="trains until it is there")
    args = parser.parse_args()
    if args.hold:
        for _ in train(10**9, False):
            if os.path.exists(args.hold):
                return
            time.sleep(0.05)
    if args.alone:
        list(train(6, False))
        if args.kill_once:
            kill_rank_1_once(pathlib.Path(args.kill_once))
        return
    group = {} if args.rank < 0 else {"rank": args.rank, "world_size": 2}
    torch.distributed.init_process_group("gloo", init_method=args.init, **group)
    rank = torch.distributed.get_rank()
    list(train(6, True))
    if args.spawned_worker:
        load()
    if args.subprocess and rank == 0:
        subprocess.run([sys.executable, __file__, "--alone"], check=True)
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
