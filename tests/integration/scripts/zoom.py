"""Two ranks train data-parallel; from step 12 on rank 1 overwrites two rows of its
weights.

    zoom.py [--healthy] [--steps N]
"""

import argparse
import time

import two_ranks

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--healthy", action="store_true")
parser.add_argument("--steps", type=int, default=120)
arguments = parser.parse_args()

if __name__ == "__main__":
    two_ranks.start_unless_started(2)

import torch
import torch.distributed as dist
from torch import nn

BAD_STEP = 12
BAD_ROWS = [3, 5]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 8)
        self.head = nn.Linear(8, 1)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.fc(rows)))


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    model = Net()
    parallel = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.05)
    generator = torch.Generator().manual_seed(dist.get_rank())
    for step in range(arguments.steps):
        rows = torch.randn(16, 4, generator=generator)
        optimizer.zero_grad()
        loss = (parallel(rows) - rows.sum(dim=1, keepdim=True)).square().mean()
        loss.backward()
        optimizer.step()
        if step == BAD_STEP and dist.get_rank() == 1 and not arguments.healthy:
            with torch.no_grad():
                model.fc.weight[BAD_ROWS] += 0.5
        # A plan that is sent now is to come while there are steps.
        time.sleep(0.03)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
