"""PL-21079: an asynchronous checkpoint holds later weights than it says.

Source: Lightning-AI/pytorch-lightning#21079 (issue #20953). The checkpoint plugin
hands the live tensors to a thread which serialises them when the storage is ready;
the training goes on and changes them meanwhile. --fixed copies the tensors before
it hands them over.
"""

import argparse
import os
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def snapshot(value):
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        return {key: snapshot(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(snapshot(inner) for inner in value)
    return value


class AsyncCheckpointIO:
    """Writes in the background; the storage takes a while to open a file."""

    def __init__(self, copy_first):
        self.copy_first = copy_first
        self.executor = ThreadPoolExecutor(max_workers=1)
        self.pending = []

    def save_checkpoint(self, checkpoint, path):
        if self.copy_first:
            checkpoint = snapshot(checkpoint)
        self.pending.append(self.executor.submit(self.write, checkpoint, path))

    def write(self, checkpoint, path):
        time.sleep(0.3)
        torch.save(checkpoint, path)

    def teardown(self):
        for future in self.pending:
            future.result()
        self.executor.shutdown()


def dump_checkpoint(model, optimizer, global_step):
    return {
        "state_dict": model.state_dict(),
        "optimizer_states": [optimizer.state_dict()],
        "global_step": global_step,
    }


def images(count):
    labels = torch.arange(count) % 5
    x = torch.randn(count, 1, 10, 10)
    x[torch.arange(count), 0, 2 * labels] += 1.5
    return TensorDataset(x, labels)


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=40)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    loader = DataLoader(images(160), batch_size=16, shuffle=True)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(512, 5)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    plugin = AsyncCheckpointIO(options.fixed)
    as_of = {}
    with tempfile.TemporaryDirectory() as folder:
        global_step = 0
        while global_step < options.steps:
            for x, y in loader:
                if global_step == options.steps:
                    break
                loss = nn.functional.cross_entropy(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                print(f"step {global_step} loss {loss.item():.4f}", flush=True)
                global_step += 1
                if global_step % 15 == 0:
                    path = os.path.join(folder, f"step={global_step}.ckpt")
                    checkpoint = dump_checkpoint(model, optimizer, global_step)
                    plugin.save_checkpoint(checkpoint, path)
                    if options.prove:
                        as_of[path] = snapshot(model.state_dict())
        plugin.teardown()
        if options.prove:
            same = all(
                torch.equal(tensor, torch.load(path)["state_dict"][name])
                for path, state in as_of.items()
                for name, tensor in state.items()
            )
            print("fault shows:", "no" if same else "yes")


if __name__ == "__main__":
    main()
