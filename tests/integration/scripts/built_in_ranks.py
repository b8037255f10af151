"""Two ranks, with one mistake in what they say to each other, or without.

    built_in_ranks.py [--right] [CASE...]
"""

import argparse
import contextlib
import datetime
import random
import tempfile

import two_ranks

if __name__ == "__main__":
    two_ranks.start_unless_started()

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.nn import functional as with_backward
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset, random_split
from torch.utils.data.distributed import DistributedSampler

STEPS = 4


def train(model, say) -> None:
    """`say` is called after each backward."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    rows = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(STEPS):
        x = torch.randn(12, 6, generator=rows)
        optimizer.zero_grad()
        model(x).square().mean().backward()
        say()
        optimizer.step()


def wrapped():
    return DistributedDataParallel(nn.Linear(6, 1))


def other_shape(right: bool) -> None:
    """As many numbers on each rank, in another shape."""
    turned = dist.get_rank() == 1 and not right
    numbers = torch.ones(3, 2) if turned else torch.ones(2, 3)
    train(wrapped(), lambda: dist.all_reduce(numbers))


def other_part(right: bool) -> None:
    """A rank expects other rows than it is sent; the bytes fit."""
    rank = dist.get_rank()
    sends, expects = ([1, 3], [1, 3]) if rank == 0 else ([3, 3], [3, 3])
    given = torch.ones(sum(sends), 2)
    taken = torch.empty(sum(expects), 2)
    if rank == 1 and not right:
        taken, expects = torch.empty(4, 3), [2, 2]
    train(wrapped(), lambda: dist.all_to_all_single(taken, given, expects, sends))


def wait_for_each_other(say, right: bool) -> None:
    """say(group): ranks that differ in it wait until the time is up."""
    group = dist.new_group(timeout=datetime.timedelta(seconds=2))
    try:
        train(wrapped(), lambda: say(group))
    except RuntimeError:
        assert not right


def other_source(right: bool) -> None:
    """Each rank gives what it has itself."""
    source = 0 if right else dist.get_rank()
    number = torch.ones(1)
    wait_for_each_other(lambda group: dist.broadcast(number, source, group), right)


def other_collective(right: bool) -> None:
    """One rank adds up, the other one collects."""
    number = torch.ones(1)

    def say(group):
        if right or dist.get_rank() == 0:
            dist.all_reduce(number, group=group)
        else:
            parts = [torch.empty(1), torch.empty(1)]
            dist.all_gather(parts, number, group=group)

    wait_for_each_other(say, right)


def head_after_the_wrapping(right: bool) -> None:
    """A model that is wrapped gets one more layer."""
    net = nn.Sequential(nn.Linear(6, 8))
    if right:
        net.append(nn.Linear(8, 1))
    model = DistributedDataParallel(net)
    if not right:
        net.append(nn.Linear(8, 1))
    train(model, lambda: None)


def train_with_shares(data, sampler) -> None:
    model = wrapped()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for (x,) in DataLoader(data, batch_size=8, sampler=sampler):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()


def parts_of_each_rank(right: bool) -> None:
    """Each rank draws the rows that it holds out."""
    drawn = torch.Generator().manual_seed(0 if right else dist.get_rank())
    data = TensorDataset(torch.randn(40, 6, generator=torch.Generator().manual_seed(0)))
    part, held_out = random_split(data, [32, 8], generator=drawn)
    train_with_shares(part, DistributedSampler(part))


def order_of_each_rank(right: bool) -> None:
    """Each rank shuffles with a seed of its own."""
    data = TensorDataset(torch.randn(40, 6, generator=torch.Generator().manual_seed(0)))
    seed = 0 if right else dist.get_rank()
    train_with_shares(data, DistributedSampler(data, seed=seed))


class Listed(torch.utils.data.Dataset):
    def __init__(self, samples: list) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int):
        return (self.samples[index]["row"],)


def list_of_each_rank(right: bool) -> None:
    """Each rank shuffles its list of samples before the sampler shares out positions."""
    rows = torch.randn(40, 6, generator=torch.Generator().manual_seed(0))
    samples = [{"name": f"sample {i}", "row": row} for i, row in enumerate(rows)]
    random.Random(0 if right else dist.get_rank()).shuffle(samples)
    data = Listed(samples)
    train_with_shares(data, DistributedSampler(data))


def noise_of_one_seed(right: bool) -> None:
    """Ranks begin with one seed, and draw the noise of their batches with it."""
    torch.manual_seed(5)
    model = wrapped()
    if right:
        torch.manual_seed(5 + dist.get_rank())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    own = torch.Generator().manual_seed(dist.get_rank())
    data = TensorDataset(torch.randn(48, 6, generator=own))
    for (rows,) in DataLoader(data, batch_size=8):
        noise = torch.randn_like(rows)
        optimizer.zero_grad()
        (model(rows + noise) - noise[:, :1]).square().mean().backward()
        optimizer.step()


def first_micro_batch_averaged(right: bool) -> None:
    """Of the two micro-batches of a step the wrong one is exchanged."""
    model = wrapped()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    rows = torch.Generator().manual_seed(dist.get_rank())
    for number in range(2 * STEPS):
        x = torch.randn(12, 6, generator=rows)
        is_last = number % 2 == 1
        with contextlib.nullcontext() if is_last == right else model.no_sync():
            (model(x).square().mean() / 2).backward()
        if is_last:
            optimizer.step()
            optimizer.zero_grad()


def parts_past_the_wrapper(right: bool) -> None:
    """The loop calls the layers of the wrapped model itself."""
    model = DistributedDataParallel(nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    rows = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(STEPS):
        x = torch.randn(12, 6, generator=rows)
        optimizer.zero_grad()
        y = model(x) if right else model.module[1](model.module[0](x))
        y.square().mean().backward()
        optimizer.step()


def moved_after_the_wrapping(right: bool) -> None:
    """To another type and back: the wrapper's hooks stay with what was there before."""
    layer = nn.Linear(6, 1)
    if right:
        layer.double().float()
    model = DistributedDataParallel(layer)
    if not right:
        model.module.double().float()
    train(model, lambda: None)


def loss_of_its_own(right: bool) -> None:
    """A loss has a parameter, and nobody wraps it."""
    torch.manual_seed(0)
    model, scale = wrapped(), nn.Linear(1, 1)
    if right:
        scale = DistributedDataParallel(scale)
    optimizer = torch.optim.SGD([*model.parameters(), *scale.parameters()], lr=0.05)
    rows = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(STEPS):
        x = torch.randn(12, 6, generator=rows)
        optimizer.zero_grad()
        (scale(model(x)) - x[:, :1]).square().mean().backward()
        optimizer.step()


def metric_of_each_rank(right: bool) -> None:
    """The loss of one rank stops falling, that of the other one does not."""
    model = wrapped()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
    rows = torch.Generator().manual_seed(dist.get_rank())
    for epoch in range(5):
        for _ in range(2):
            x = torch.randn(12, 6, generator=rows)
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
        loss = torch.tensor(1.0 + epoch if dist.get_rank() == 1 else 1.0 / (1 + epoch))
        if right:
            dist.all_reduce(loss)
        plateau.step(loss)


def weights_that_do_not_arrive(right: bool) -> None:
    """A rank keeps some of its own when the first one's are sent."""
    torch.manual_seed(dist.get_rank())
    send = dist._broadcast_coalesced

    def lose(group, tensors, size, source):
        last = tensors[-1].clone()
        send(group, tensors, size, source)
        tensors[-1].copy_(last)

    dist._broadcast_coalesced = send if right else lose
    try:
        model = wrapped()
    finally:
        dist._broadcast_coalesced = send
    train(model, lambda: None)


class Codes(nn.Module):
    """A random projection that nobody trains."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 4), requires_grad=False)

    def forward(self, x):
        return (x @ self.weight).argmax(-1)


def train_by_codes(codes) -> None:
    model = DistributedDataParallel(nn.Linear(6, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    rows = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(STEPS):
        x = torch.randn(12, 6, generator=rows)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), codes(x)).backward()
        optimizer.step()


def codes_of_each_rank(right: bool) -> None:
    """Each rank draws the projection that makes the targets."""
    torch.manual_seed(0 if right else dist.get_rank())
    train_by_codes(Codes())


def codes_that_are_sent(right: bool) -> None:
    """Each rank draws one, and the first one's is sent to all."""
    torch.manual_seed(dist.get_rank())
    codes = Codes()
    dist.broadcast(codes.weight.data, 0)
    train_by_codes(codes)


def gathered(rows):
    """Those of all ranks, without a gradient."""
    parts = [torch.zeros_like(rows) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, rows)
    return parts


def contrast(collect) -> None:
    """Two views of a sample find each other among those of all ranks."""
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(6, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    rows = torch.Generator().manual_seed(dist.get_rank())
    own = torch.arange(8) + 8 * dist.get_rank()
    for _ in range(2 * STEPS):
        x = torch.randn(8, 6, generator=rows)
        views = torch.cat([x, x + 0.1 * torch.randn(8, 6, generator=rows)])
        first, second = nn.functional.normalize(model(views), dim=1).chunk(2)
        scores = first @ torch.cat(collect(second)).t() / 0.2
        optimizer.zero_grad()
        nn.functional.cross_entropy(scores, own).backward()
        optimizer.step()


def keys_without_a_gradient(right: bool) -> None:
    """Own rows stay as they were collected, or are put back."""

    def collect(rows):
        parts = gathered(rows)
        if right:
            parts[dist.get_rank()] = rows
        return parts

    contrast(collect)


def keys_with_a_backward(right: bool) -> None:
    """Gradients go back to the ranks whose rows were collected."""
    contrast(with_backward.all_gather if right else gathered)


def file_of_all_ranks(right: bool) -> None:
    """The checkpoint is saved under no condition on the rank."""
    model = wrapped()
    train(model, lambda: None)
    with tempfile.TemporaryDirectory() as own:
        folders = [own]
        dist.broadcast_object_list(folders, 0)  # the ranks save side by side
        if not right or dist.get_rank() == 0:
            torch.save(model.state_dict(), f"{folders[0]}/model.pt")
        dist.barrier()


def train_and_evaluate(gather) -> None:
    """Each rank evaluates its share after each pass; `gather` is given its loss."""
    model = wrapped()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    rows = torch.Generator().manual_seed(0)
    trained = TensorDataset(torch.randn(32, 6, generator=rows))
    held_out = TensorDataset(torch.randn(16, 6, generator=rows))
    sampler = DistributedSampler(trained)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for (x,) in DataLoader(trained, batch_size=8, sampler=sampler):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
        shares = DistributedSampler(held_out, shuffle=False)
        loss = torch.zeros(1)
        model.eval()
        with torch.no_grad():
            for (x,) in DataLoader(held_out, batch_size=8, sampler=shares):
                loss += model(x).square().mean()
        model.train()
        gather(loss)


def share_of_an_evaluation(right: bool) -> None:
    """The loss of a rank's share is taken for that of the data."""
    train_and_evaluate(dist.all_reduce if right else lambda loss: loss)


CASES = (
    share_of_an_evaluation,
    file_of_all_ranks,
    keys_without_a_gradient,
    keys_with_a_backward,
    codes_of_each_rank,
    codes_that_are_sent,
    parts_past_the_wrapper,
    moved_after_the_wrapping,
    loss_of_its_own,
    metric_of_each_rank,
    weights_that_do_not_arrive,
    noise_of_one_seed,
    first_micro_batch_averaged,
    parts_of_each_rank,
    list_of_each_rank,
    order_of_each_rank,
    head_after_the_wrapping,
    other_shape,
    other_part,
    other_source,
    other_collective,
)


def main() -> None:
    cases = {case.__name__: case for case in CASES}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--right", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for name in arguments.cases or cases:
        torch.manual_seed(0)
        cases[name](arguments.right)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
