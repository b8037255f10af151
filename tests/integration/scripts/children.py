"""Trains, and has children of the kind that its first argument names.

Prints losses, and at the end one line of JSON: the pids that recorded, by what
they are ("main", "worker 0", "child", ...).
"""

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import threading
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

PIDS = {}


class Rows(Dataset):
    """Each item says which process made it."""

    def __len__(self):
        return 24

    def __getitem__(self, index):
        info = torch.utils.data.get_worker_info()
        worker = torch.tensor([-1 if info is None else info.id, os.getpid()])
        return torch.full((4,), index / 24), worker


def fit(steps=4, seed=1):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        fit_batch(model, optimizer, torch.rand(8, 4, generator=data))


def fit_batch(model, optimizer, x):
    optimizer.zero_grad()
    loss = (model(x).squeeze(-1) - x.sum(1)).square().mean()
    loss.backward()
    optimizer.step()
    return loss.item().hex()


def loader(options):
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = DataLoader(
        Rows(),
        batch_size=4,
        num_workers=2,
        persistent_workers=options.persistent,
        multiprocessing_context=options.start_method,
    )
    for epoch in range(2):
        for x, workers in data:
            print(f"{epoch} {fit_batch(model, optimizer, x)}")
            for number, pid in workers.tolist():
                # Without persistent workers each epoch has its own two.
                PIDS[f"worker {number} {epoch * (not options.persistent)}"] = pid


def fork(function, name="child"):
    pid = os.fork()
    if pid == 0:
        function()
        os._exit(3)
    PIDS[name] = pid
    return pid


def reap(pid, code=3):
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == code


def forks(options):
    fit()
    reap(fork(fit))
    fit(seed=2)


def nested(options):
    """Each generation says through a pipe who its child is."""

    def say(write, name):
        os.write(write, json.dumps({name: PIDS[name]}).encode() + b"\n")

    def child():
        fit(seed=2)
        reap(fork(lambda: fit(seed=3), "grandchild"))
        say(write, "grandchild")
        fit(seed=2)

    read, write = os.pipe()
    fit()
    reap(fork(child))
    os.close(write)
    with open(read) as lines:
        for line in lines:
            PIDS.update(json.loads(line))


def in_thread(options):
    fit()
    thread = threading.Thread(target=lambda: reap(fork(fit)))
    thread.start()
    thread.join()
    fit(seed=2)


def while_recording(options):
    fit()
    end = threading.Event()

    # No backward: a fork within one leaves torch's own locks taken in the child.
    def work():
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
        with torch.no_grad():
            while not end.is_set():
                model(torch.ones(8, 4))
                time.sleep(0.0001)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for number in range(5):
        reap(fork(fit, f"child {number}"))
    end.set()
    for thread in threads:
        thread.join()


def outlives(options):
    def child():
        parent = os.getppid()
        fit(seed=2)
        while os.getppid() == parent:
            time.sleep(0.01)
        fit(seed=2)

    fit()
    fork(child)


def commands(options):
    """None of these records anything; all run as ever."""
    fit()
    descriptors = os.listdir("/proc/self/fd")
    for _ in range(3):
        subprocess.run(["/bin/true"], check=True)
        subprocess.run(["/bin/true"], check=True, close_fds=False)
        listed = subprocess.run(["/bin/ls", "/proc/self/fd"], stdout=subprocess.PIPE)
        assert len(listed.stdout.split()) <= 4, listed.stdout
        reap(os.posix_spawn("/bin/sh", ["sh", "-c", "exit 3"], dict(os.environ)))
    code = "import torch; torch.ones(2).sum()"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert os.listdir("/proc/self/fd") == descriptors
    fit(seed=2)


def multiprocess(options):
    fit()
    context = multiprocessing.get_context(options.start_method)
    children = [context.Process(target=fit, args=(4, n)) for n in range(2)]
    for number, child in enumerate(children):
        child.start()
        PIDS[f"child {number}"] = child.pid
    for child in children:
        child.join()
        assert child.exitcode == 0
    fit(seed=2)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    kinds = [loader, forks, nested, in_thread, while_recording, outlives]
    kinds = {kind.__name__: kind for kind in [*kinds, commands, multiprocess]}
    parser.add_argument("kind", choices=kinds)
    parser.add_argument("--start-method", default="fork")
    parser.add_argument("--persistent", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    PIDS["main"] = os.getpid()
    kinds[options.kind](options)
    print(json.dumps(PIDS), flush=True)


if __name__ == "__main__":
    main()
