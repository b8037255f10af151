"""Two ranks that send each other parts of different sizes before each step.

With --fault rank 1 expects a row less than rank 0 sends, at the third step: gloo
aborts it within the collective.
"""

import argparse
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

STEPS = 4


def exchange(rank, step, fault):
    """Rank 0 keeps one row and sends three; rank 1 sends two and keeps two."""
    sends = ([1, 3], [2, 2])[rank]
    expects = ([1, 2], [3, 2])[rank]
    if fault and step == 2 and rank == 1:
        expects = [2, 2]
    rows = torch.full((sum(sends), 2), float(rank))
    taken = torch.empty(sum(expects), 2)
    dist.all_to_all_single(taken, rows, expects, sends)
    return taken


def main(rank, store, fault):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=2
    )
    torch.manual_seed(0)
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(STEPS):
        taken = exchange(rank, step, fault)
        optimizer.zero_grad()
        model(taken).sum().backward()
        optimizer.step()
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fault", action="store_true")
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(main, (f"{folder}/store", parser.parse_args().fault), nprocs=2)
