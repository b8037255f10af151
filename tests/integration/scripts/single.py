"""Trains a small model in one process, and ends as the options say.

Used to see that an ending, a crash or a companion process of the training is
neither changed nor overlooked.
"""

import argparse
import ctypes
import hashlib
import os
import signal
import sys
import threading
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(10, 16), nn.BatchNorm1d(16), nn.ReLU())
        self.drop = nn.Dropout(0.1)
        self.decode = nn.Linear(16, 10)

    def forward(self, x):
        return self.decode(self.drop(self.encode(x)))


def endless(loader):
    while True:
        yield from loader


def make_loader(args):
    rows = torch.randn(128, 10, generator=torch.Generator().manual_seed(args.seed))
    return DataLoader(
        TensorDataset(rows),
        batch_size=16,
        shuffle=True,
        num_workers=args.workers,
        multiprocessing_context=args.start_method if args.workers else None,
        generator=torch.Generator().manual_seed(args.seed),
    )


def wait_as_asked(step, args):
    while step == args.gate_at and not os.path.exists(args.gate):
        time.sleep(0.01)


def end_as_asked(step, args):
    if step == args.kill_at:
        os.kill(os.getpid(), signal.SIGKILL)
    if step == args.crash_at:
        raise RuntimeError("crashed as asked")
    if step == args.os_exit_at:
        os._exit(5)
    if step == args.sys_exit_at:
        sys.exit(7)


def train(args):
    torch.manual_seed(args.seed)
    model = Autoencoder()
    if args.compile:
        model = torch.compile(model, backend=args.compile)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    loss_fn = nn.MSELoss()
    batches = endless(make_loader(args))
    losses = []
    for step in range(args.steps):
        (x,) = next(batches)
        optimizer.zero_grad()
        loss = loss_fn(model(x), x)
        loss.backward()
        wait_as_asked(step, args)
        end_as_asked(step, args)
        optimizer.step()
        losses.append(loss.item().hex())
        if args.sleep:
            time.sleep(args.sleep)
    return model, losses


def train_in_threads(args):
    """Independent trainings side by side; the first one's result counts."""
    # The default generator is the process's: only one thread may draw from it.
    started = []
    for number in range(1, args.threads):
        thread = threading.Thread(target=small_training, args=(number,))
        thread.start()
        started.append(thread)
    result = train(args)
    for thread in started:
        thread.join()
    return result


def small_training(number):
    generator = torch.Generator().manual_seed(number)
    weight = nn.Parameter(torch.zeros(5))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    for _ in range(20):
        x = torch.randn(8, 5, generator=generator)
        optimizer.zero_grad()
        (x @ weight - x.sum(1)).square().mean().backward()
        optimizer.step()


def fork_child():
    """A forked child that trains a little and leaves without clean-up."""
    child = os.fork()
    if child == 0:
        small_training(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if status != 0:
        sys.exit("the child failed")


def scribble_ring():
    """Writes garbage over shared memory, as a wild pointer would."""
    with open("/proc/self/maps") as maps:
        rings = [line for line in maps if "traincheck" in line and "rw-s" in line]
    for line in rings:
        first, last = (int(part, 16) for part in line.split()[0].split("-"))
        # Behind the header page; up to the first mebibyte.
        for address in range(first + 4096, min(last, first + (1 << 20)), 8):
            ctypes.c_uint64.from_address(address).value = 0x4141414141414141


def digest(model):
    sha = hashlib.sha256()
    for tensor in model.state_dict().values():
        sha.update(tensor.detach().numpy().tobytes())
    return sha.hexdigest()


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--lr", type=float, default=1e-2)
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--sleep", type=float, default=0.0, help="seconds a step")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--start-method", default="fork")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--fork-child", action="store_true")
    parser.add_argument("--compile", metavar="BACKEND")
    parser.add_argument("--scribble-ring", action="store_true")
    parser.add_argument("--print-digest", action="store_true")
    # Endings in the middle of a step, counted from 0, and after the training.
    for name in ("kill", "crash", "os-exit", "sys-exit"):
        parser.add_argument(f"--{name}-at", type=int, default=-1, metavar="STEP")
    parser.add_argument("--gate", help="the file for which --gate-at waits")
    parser.add_argument("--gate-at", type=int, default=-1, metavar="STEP")
    parser.add_argument("--exit-code", type=int, default=0)
    return parser.parse_args()


def main():
    args = parse()
    torch.set_num_threads(1)
    if args.fork_child:
        fork_child()
    model, losses = train_in_threads(args) if args.threads > 1 else train(args)
    for step, loss in enumerate(losses):
        print(f"step {step} loss {loss}")
    if args.print_digest:
        print(f"digest {digest(model)}")
    if args.scribble_ring:
        scribble_ring()
    sys.exit(args.exit_code)


if __name__ == "__main__":
    main()
