"""A small training that does awkward things which trainings may do.

    awkward.py SECTION... [--end ENDING]

Prints all that it notices, so that two runs can be compared line by line.
"""

import argparse
import asyncio
import contextvars
import ctypes
import faulthandler
import gc
import os
import signal
import subprocess
import sys
import threading
import traceback
import tracemalloc

import torch
from torch import nn


OURS = "traincheck"  # in each variable that turns the agent on


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(6, 8)
        self.head = nn.Linear(8, 1)

    def forward(self, x):
        return self.head(torch.relu(self.body(x)))


class Training:
    def __init__(self):
        torch.manual_seed(3)
        self.model = Net()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01)

    def steps(self, count):
        for _ in range(count):
            x = torch.randn(8, 6)
            self.optimizer.zero_grad()
            loss = (self.model(x) - x.sum(1, keepdim=True)).square().mean()
            loss.backward()
            self.optimizer.step()
        print("loss", loss.item().hex())


def signals(training):
    seen = []
    for number in (signal.SIGUSR1, signal.SIGCHLD, signal.SIGALRM):
        signal.signal(number, lambda number, frame: seen.append(number))
    training.steps(2)
    print("signals", seen)
    os.kill(os.getpid(), signal.SIGUSR1)
    print("signals", seen)
    other = Net()
    signal.setitimer(signal.ITIMER_REAL, 0.01)
    while signal.SIGALRM not in seen:
        other(torch.ones(1, 6)).sum().backward()
    print("alarm")
    with torch.random.fork_rng(devices=[]):  # how many models it makes is chance
        timeouts()


class Timeout(Exception):
    pass


def timeouts():
    """A handler's exception arrives, wherever the training is just then."""
    raised, caught, delay = 0, 0, 0.0001

    def expire(number, frame):
        nonlocal raised
        raised += 1
        raise Timeout

    signal.signal(signal.SIGALRM, expire)
    while raised < 400:
        delay = delay * 1.05 if delay < 0.003 else 0.0001
        try:
            model = Net()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            signal.setitimer(signal.ITIMER_REAL, delay)
            for _ in range(20):
                optimizer.zero_grad()
                model(torch.ones(1, 6)).sum().backward()
                optimizer.step()
            signal.setitimer(signal.ITIMER_REAL, 0)
        except Timeout:
            caught += 1
            # It may have cut short the end of a torch.no_grad().
            torch.set_grad_enabled(True)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    print("timeouts", raised - caught)


def children(training):
    training.steps(2)
    try:
        print("wait", os.wait())
    except ChildProcessError:
        print("no child")
    try:
        print("waitpid", os.waitpid(-1, os.WNOHANG))
    except ChildProcessError:
        print("no child")
    child = os.fork()
    if child == 0:
        Training().steps(1)
        sys.stdout.flush()
        os._exit(3)
    pid, status = os.wait()
    print("child", pid == child, os.waitstatus_to_exitcode(status))
    done = subprocess.run(["sh", "-c", "exit 4"])
    print("subprocess", done.returncode)
    training.steps(2)


def descriptors(training):
    training.steps(2)
    before = os.open("/dev/null", os.O_RDONLY)
    print("lowest descriptor", before)
    os.closerange(3, 256)
    mine = [os.open("/dev/null", os.O_RDONLY) for _ in range(150)]
    print("descriptors", mine[0], mine[-1])
    training.steps(2)
    thread = threading.Thread(target=lambda: Training().steps(1))
    thread.start()
    thread.join()
    print("still open", all(os.fstat(fd) for fd in mine))
    os.closerange(3, 256)


class Raises(nn.Module):
    def __init__(self, inner=None):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        if self.inner is None:
            raise ValueError("as asked")
        return self.inner(x)


def tell(what, function, *arguments):
    try:
        function(*arguments)
    except BaseException as error:
        depth, frames = 0, error.__traceback__
        while frames is not None:
            depth, frames = depth + 1, frames.tb_next
        print(what, type(error).__name__, depth, error.__context__ is None)
        print(traceback.format_exc())
    else:
        print(what, "raised nothing")


class Exploding(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        raise KeyError("no such row")


def exceptions(training):
    def refuse(gradient):
        raise ValueError("no gradient")

    def closure():
        raise ValueError("no closure")

    tell("forward", Raises(Raises(Raises())), torch.ones(1))
    parameter = nn.Parameter(torch.ones(2))
    parameter.register_hook(refuse)
    tell("backward", parameter.sum().backward)
    tell("step", torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1).step, closure)
    tell("fetch", next, iter(torch.utils.data.DataLoader(Exploding())))
    tell("exit", Raises(lambda x: sys.exit(9)), torch.ones(1))
    tell("arguments", training.model)
    tell("optimizer", torch.optim.SGD, [], 0.1)
    tell("clip", nn.utils.clip_grad_norm_, [nn.Parameter(torch.ones(1))], "x")
    tell("load", training.model.load_state_dict, {})
    tell("torch.load", torch.load, "/nonexistent")
    tell("backward twice", torch.ones(1).backward)
    tell("group", torch.distributed.all_reduce, torch.ones(1))
    training.steps(2)


class Deep(nn.Module):
    def forward(self, x, count):
        count[0] += 1
        return self(x, count)


def recursion(training):
    count = [0]
    try:
        Deep()(torch.ones(1), count)
    except RecursionError:
        # To be compared with some tolerance.
        print("~recursion", count[0])
    training.steps(2)


class Yields(nn.Module):
    def forward(self, x):
        for factor in range(3):
            yield x * factor


class Awaits(nn.Module):
    async def forward(self, x):
        await asyncio.sleep(0)
        return x * VARIABLE.get()


VARIABLE = contextvars.ContextVar("factor", default=2)


def generators(training):
    module = Yields()
    one, two = module(torch.ones(1)), module(torch.ones(1) * 2)
    for left, right in zip(one, two):
        print("yields", left.item(), right.item())

    def without_gradients():
        with torch.no_grad():
            for _ in range(2):
                yield torch.is_grad_enabled()

    for inside in without_gradients():
        print("gradients", inside, torch.is_grad_enabled())

    async def several():
        VARIABLE.set(5)
        return await asyncio.gather(*[Awaits()(torch.ones(1) * n) for n in (1, 2)])

    print("awaited", [tensor.item() for tensor in asyncio.run(several())])
    unfinished = module(torch.ones(1))
    next(unfinished)
    del unfinished
    training.steps(2)


def tracing(training):
    tracemalloc.start()
    faulthandler.enable()
    gc.disable()
    calls = {}

    def trace(frame, event, argument):
        if event == "call" and not frame.f_code.co_filename.startswith("<traincheck"):
            if frame.f_code.co_filename == __file__:
                calls[frame.f_code.co_name] = calls.get(frame.f_code.co_name, 0) + 1
        return None

    sys.settrace(trace)
    training.steps(2)
    sys.settrace(None)
    print("traced", sorted(calls.items()))
    calls.clear()
    sys.setprofile(trace)
    training.steps(2)
    sys.setprofile(None)
    print("profiled", sorted(calls.items()))
    print("collector", gc.isenabled(), gc.collect() >= 0)
    tracemalloc.stop()


def finders(training):
    class Finder:
        def find_spec(self, name, path=None, target=None):
            return None

    sys.meta_path.insert(0, Finder())
    import torch.testing  # noqa: F401

    names = [
        getattr(finder, "__name__", type(finder).__name__) for finder in sys.meta_path
    ]
    print("finders", [name for name in names if "Torch" in name or "Embed" in name])
    sys.meta_path[:] = sys.meta_path[1:]
    print("path", len(sys.argv), repr(sys.argv[0].rpartition("/")[2]))
    inherited = subprocess.check_output(["env"], text=True).splitlines()
    print("environment", sorted(line for line in inherited if OURS not in line.lower()))
    training.steps(2)


def exit_in_thread():
    thread = threading.Thread(target=sys.exit, args=(3,))
    thread.start()
    thread.join()
    print("thread ended")


def threads_remain():
    """Ends while a daemon thread that has trained is still there. It waits by then:
    Python ends a thread that wants the interpreter too late with pthread_exit, and
    where that meets C++ of torch the process aborts, with us or without."""
    ready = threading.Event()

    def forever():
        training = Training()
        for _ in range(20):
            x = torch.randn(2, 6)
            training.model(x).sum().backward()
            training.optimizer.step()
        ready.set()
        threading.Event().wait()

    threading.Thread(target=forever, daemon=True).start()
    ready.wait()


class Interrupted(nn.Module):
    def forward(self, x):
        # What the terminal sends for Ctrl-C, inside a wrapped call.
        signal.raise_signal(signal.SIGINT)
        return x


def interrupt():
    nn.Sequential(Interrupted())(torch.ones(1, 6))


def fail():
    raise RuntimeError("as asked")


ENDINGS = {
    "normal": lambda: None,
    "exit-code": lambda: sys.exit(7),
    "exit-text": lambda: sys.exit("a text"),
    "os-exit": lambda: os._exit(5),
    "abort": os.abort,
    "segfault": lambda: ctypes.string_at(0),
    "interrupt": interrupt,
    "term": lambda: os.kill(os.getpid(), signal.SIGTERM),
    "exception": fail,
    "exit-in-thread": exit_in_thread,
    "threads-remain": threads_remain,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    sections = (
        signals,
        children,
        descriptors,
        exceptions,
        recursion,
        generators,
        tracing,
        finders,
    )
    names = {section.__name__: section for section in sections}
    parser.add_argument("sections", nargs="*", metavar="SECTION")
    parser.add_argument("--end", choices=ENDINGS, default="normal")
    args = parser.parse_args()
    torch.set_num_threads(1)
    training = Training()
    for name in args.sections:
        print("---", name)
        names[name](training)
    training.steps(2)
    sys.stdout.flush()
    ENDINGS[args.end]()


if __name__ == "__main__":
    main()
