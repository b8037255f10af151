"""Two ranks under DistributedDataParallel that break a rule in every step from
--fault-step on: the forward goes past the wrapper. Each rank appends to a file of
--stamps when each of its steps ended, by CLOCK_REALTIME.
"""

import argparse
import pathlib
import sys
import time

sys.path.insert(
    0, str(pathlib.Path(__file__).resolve().parent.parent / "integration/scripts")
)

import two_ranks

if __name__ == "__main__":
    two_ranks.start_unless_started()

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--fault-step", type=int, required=True)
    parser.add_argument("--pause-ms", type=float, required=True)
    parser.add_argument("--stamps", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    layers = (
        nn.Linear(32, 64),
        nn.ReLU(),
        nn.Linear(64, 64),
        nn.ReLU(),
        nn.Linear(64, 1),
    )
    model = DistributedDataParallel(nn.Sequential(*layers))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    rows = torch.Generator().manual_seed(dist.get_rank())
    with open(arguments.stamps / f"rank{dist.get_rank()}", "w") as stamps:
        for step in range(arguments.steps):
            x = torch.randn(16, 32, generator=rows)
            optimizer.zero_grad()
            faulty = step >= arguments.fault_step
            (model.module if faulty else model)(x).square().mean().backward()
            optimizer.step()
            stamps.write(f"{step} {time.time_ns()}\n")
            time.sleep(arguments.pause_ms / 1000)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
