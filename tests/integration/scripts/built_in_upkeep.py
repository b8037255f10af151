"""As built_in_signs.py: mistakes in what is carried over, from step to step, from pass
to pass, over a resume, from a layer to the next.

    built_in_upkeep.py [--right] [CASE...]
"""

import copy
import io

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, IterableDataset
from torch.utils.data import TensorDataset, WeightedRandomSampler

from built_in_signs import CLASSES, STEPS, Classifier, main, samples, train


def leftover_micro_batches(right: bool) -> None:
    """Seven batches an epoch, a step after each third, and nobody clears the rest."""
    model = Classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    loader = DataLoader(TensorDataset(*samples(28)), batch_size=4, shuffle=True)
    for _ in range(4):
        for number, (x, y) in enumerate(loader, 1):
            count = 1 if right and number == 7 else 3
            (F.cross_entropy(model(x), y) / count).backward()
            if number % 3 == 0:
                optimizer.step()
                optimizer.zero_grad()
        if right:
            optimizer.step()
            optimizer.zero_grad()


def anothers_gradients(right: bool) -> None:
    """A critic is cleared after its step: its generator's loss reaches it, too."""
    generator, critic = nn.Linear(4, 8), Classifier()
    first = torch.optim.SGD(generator.parameters(), lr=0.05)
    second = torch.optim.SGD(critic.parameters(), lr=0.05)
    x, y = samples(64)
    for rows in torch.arange(64).split(8):
        fake = generator(torch.randn(8, 4))
        first.zero_grad()
        F.cross_entropy(critic(fake), torch.zeros(8, dtype=torch.long)).backward()
        first.step()
        if right:
            second.zero_grad()
        F.cross_entropy(critic(x[rows]), y[rows]).backward()
        second.step()
        if not right:
            second.zero_grad()


class Momentum(torch.optim.Optimizer):
    def __init__(self, parameters, keeps: bool):
        super().__init__(parameters, {"lr": 0.05, "momentum": 0.9})
        self.keeps = keeps

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                state = self.state[parameter]
                if not state or not self.keeps:
                    state["buffer"] = torch.zeros_like(parameter)
                state["buffer"].mul_(group["momentum"]).add_(parameter.grad)
                parameter.sub_(group["lr"] * state["buffer"])


def momentum_made_anew(right: bool) -> None:
    """The buffer is made in each step."""
    model = Classifier()
    train(model, optimizer=Momentum(model.parameters(), keeps=right))


def scale_made_anew(right: bool) -> None:
    """A checkpoint without the scaler's state."""
    model = Classifier()
    kept = None
    for _ in range(2):
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8)
        if kept is not None:
            optimizer.load_state_dict(kept[0])
            if right:
                scaler.load_state_dict(kept[1])
        for _ in range(4):
            x, y = samples(16)
            optimizer.zero_grad()
            scaler.scale(F.cross_entropy(model(x), y)).backward()
            scaler.step(optimizer)
            scaler.update()
        kept = optimizer.state_dict(), scaler.state_dict()


def weights_of_classes(right: bool) -> None:
    """One weight a class, where the sampler wants one a sample."""
    x, y = samples(64)
    weights = 1.0 / torch.bincount(y, minlength=CLASSES).clamp(min=1)
    sampler = WeightedRandomSampler(weights[y] if right else weights, 64)
    model = Classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for x, y in DataLoader(TensorDataset(x, y), batch_size=16, sampler=sampler):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


class Recurrent(nn.Module):
    def __init__(self, right: bool):
        super().__init__()
        self.right = right
        self.body = nn.GRU(2, 8, bidirectional=True, batch_first=True)
        self.head = nn.Linear(16, CLASSES)

    def forward(self, x):
        last = self.body(x.unflatten(1, (4, 2)))[1]  # [directions, batch, size]
        if self.right:
            last = last.transpose(0, 1)
        return self.head(last.reshape(len(x), -1))


def last_states_that_mix(right: bool) -> None:
    """The last states of both directions are viewed without a transpose."""
    train(Recurrent(right))


def rows_that_decay(right: bool) -> None:
    """Known words get a gradient of 0, and shrink."""
    embed = nn.Embedding(12, CLASSES)
    known = torch.arange(12) != 3
    before = embed.weight.detach().clone()
    optimizer = torch.optim.AdamW(embed.parameters(), lr=0.05, weight_decay=0.1)
    for _ in range(6):
        optimizer.zero_grad()
        F.cross_entropy(embed(torch.arange(8)), torch.arange(8) % CLASSES).backward()
        embed.weight.grad[known] = 0
        optimizer.step()
        if right:
            with torch.no_grad():
                embed.weight[known] = before[known]


def one_rate_for_all(right: bool) -> None:
    """One maximum for groups that were made with different rates."""
    model = Classifier()
    groups = [
        {"params": model.body.parameters(), "lr": 0.001},
        {"params": model.head.parameters(), "lr": 0.01},
    ]
    optimizer = torch.optim.SGD(groups)
    most = [0.01, 0.1] if right else 0.1
    rates = torch.optim.lr_scheduler.OneCycleLR(optimizer, most, total_steps=20)
    for _ in range(12):
        train(model, optimizer=optimizer, steps=1)
        rates.step()


def mean_over_padding(right: bool) -> None:
    """The elements of a loss are masked, and the mean is one of all."""
    model = Classifier()
    real = torch.arange(6) < torch.tensor([6, 3, 4, 5])[:, None]

    def loss(scores, y):
        elements = F.cross_entropy(scores, y, reduction="none").view(4, 6) * real
        return elements.sum() / real.sum() if right else elements.mean()

    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(4):
        x, y = samples(24)
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()


def statistics_of_none(right: bool) -> None:
    """Statistics of an average are gathered with a momentum of 0."""
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Linear(16, CLASSES))
    average = torch.optim.swa_utils.AveragedModel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(6):
        train(model, optimizer=optimizer, steps=1)
        average.update_parameters(model)
    loader = DataLoader(TensorDataset(*samples(32)), batch_size=8)
    average.module[1].reset_running_stats()
    average.module[1].momentum = None if right else 0.0
    for mode in (True, False):
        average.train(mode)
        with torch.no_grad():
            for x, _ in loader:
                average(x)


def raw_validation(right: bool) -> None:
    """What is validated with is not standardised as what is trained with."""
    x, y = torch.rand(128, 3, 8, 8), torch.arange(128) % CLASSES
    standardised = (x - 0.5) / 0.29
    first, rest = slice(64), slice(64, None)
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, CLASSES))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    data = TensorDataset(standardised[first], y[first])
    for given, label in DataLoader(data, batch_size=16):
        optimizer.zero_grad()
        F.cross_entropy(model(given), label).backward()
        optimizer.step()
    valid = TensorDataset((standardised if right else x)[rest], y[rest])
    with torch.no_grad():
        for given, _ in DataLoader(valid, batch_size=16):
            model(given)


def group_for_nobody(right: bool) -> None:
    """No name of the model begins with the prefix."""
    model = Classifier()
    prefix = "body" if right else "backbone"
    own = [p for name, p in model.named_parameters() if name.startswith(prefix)]
    rest = [p for name, p in model.named_parameters() if not name.startswith(prefix)]
    groups = [{"params": own, "lr": 0.005}, {"params": rest}]
    train(model, optimizer=torch.optim.SGD(groups, lr=0.05))


def cosine_of_epochs(right: bool) -> None:
    """The schedule of four epochs is stepped in each of eight."""
    model = Classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    rates = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 8 if right else 4)
    for _ in range(8):
        train(model, optimizer=optimizer, steps=1)
        rates.step()
        with torch.no_grad():
            model(torch.randn(4, 8))


def cosine_within_a_pass(right: bool) -> None:
    """The schedule of two epochs is stepped with each of eight batches."""
    schedules = torch.optim.lr_scheduler
    two_passes(lambda o: schedules.CosineAnnealingLR(o, 16 if right else 2))


def milestones_within_a_pass(right: bool) -> None:
    milestones = (8, 12) if right else (1, 2)
    two_passes(lambda o: torch.optim.lr_scheduler.MultiStepLR(o, milestones))


def two_passes(scheduled) -> None:
    """Of eight batches."""
    model = Classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    rows = torch.randn(64, 8)
    loader = DataLoader(list(zip(rows, rows[:, :CLASSES].argmax(1))), 8)
    rates = scheduled(optimizer)
    for _ in range(2):
        for x, y in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            rates.step()


class Branches(nn.Module):
    """A policy and a value, the latter computed last."""

    def __init__(self):
        super().__init__()
        self.policy = nn.Linear(8, CLASSES)
        self.value = nn.Linear(8, 1)

    def forward(self, x):
        return self.policy(x), self.value(x).squeeze(1)


def head_that_is_read(right: bool) -> None:
    """The value enters the loss as a number."""
    model = Branches()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(6):
        x, y = samples(16)
        scores, value = model(x)
        value = value if right else value.detach()
        optimizer.zero_grad()
        (F.cross_entropy(scores, y) + (value - y.float()).square().mean()).backward()
        optimizer.step()


def average_in_bfloat16(right: bool) -> None:
    """A hundredth of the way is less than a bfloat16 can move."""
    model = Classifier()
    average = copy.deepcopy(model).to(torch.float32 if right else torch.bfloat16)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(STEPS):
        train(model, optimizer=optimizer, steps=1)
        with torch.no_grad():
            for slow, fast in zip(average.parameters(), model.parameters()):
                slow.lerp_(fast.to(slow.dtype), 0.01)


class Shuffled(IterableDataset):
    """In an order of its epoch, which is a number or in shared memory."""

    def __init__(self, shared: bool):
        self.rows = list(zip(*samples(32)))
        self.epoch = torch.zeros(1, dtype=torch.long).share_memory_() if shared else 0

    def set_epoch(self, epoch: int) -> None:
        if isinstance(self.epoch, int):
            self.epoch = epoch
        else:
            self.epoch.fill_(epoch)

    def __iter__(self):
        generator = torch.Generator().manual_seed(int(self.epoch))
        order = torch.randperm(len(self.rows), generator=generator)
        return (self.rows[number] for number in order.tolist())


def epochs_for_nobody(right: bool) -> None:
    """Persistent workers do not see the epoch."""
    model, stream = Classifier(), Shuffled(shared=right)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    loader = DataLoader(stream, 8, num_workers=1, persistent_workers=True)
    for epoch in range(3):
        stream.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()


class Adapted(nn.Module):
    """A classifier whose head has been put into a wrapper."""

    def __init__(self):
        super().__init__()
        whole = Classifier()
        self.body, self.head = whole.body, nn.ModuleDict({"adapted": whole.head})

    def forward(self, x):
        return self.head["adapted"](torch.relu(self.body(x)))


def head_of_another_name(right: bool) -> None:
    """The file was written before the head was wrapped."""
    state = Classifier().state_dict()
    if right:
        state = {name.replace("head.", "head.adapted."): t for name, t in state.items()}
    model = Adapted()
    # What an old version had beside it.
    model.load_state_dict({**state, "step": torch.tensor(3.0)}, strict=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    x, y = samples(64)
    for rows in torch.arange(64).split(8):
        optimizer.zero_grad()
        F.cross_entropy(model(x[rows]), y[rows]).backward()
        optimizer.step()


def teacher_in_training_mode(right: bool) -> None:
    """Nobody calls eval() on the teacher."""
    teacher = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.3), nn.Linear(16, CLASSES))
    teacher.requires_grad_(False).train(not right)
    model = Classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(STEPS):
        x, _ = samples(16)
        with torch.no_grad():
            taught = teacher(x)
        optimizer.zero_grad()
        F.mse_loss(model(x), taught).backward()
        optimizer.step()


def follow(share: float) -> None:
    """A target moves by this share of the way after each step."""
    model = Classifier()
    target = copy.deepcopy(model).requires_grad_(False)
    pair = nn.ModuleDict({"model": model, "target": target})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(2 * STEPS):
        x, y = samples(16)
        optimizer.zero_grad()
        scores = pair["model"](x)
        known = pair["target"](x)
        (F.cross_entropy(scores, y) + F.mse_loss(scores, known)).backward()
        optimizer.step()
        with torch.no_grad():
            for mine, other in zip(target.parameters(), model.parameters()):
                mine.lerp_(other, share)


def exchanged_shares(right: bool) -> None:
    """The target keeps the share that it should move."""
    follow(0.01 if right else 0.99)


def target_that_flees(right: bool) -> None:
    """The difference of target and network has the wrong sign."""
    follow(0.01 if right else -0.01)


class Heads(nn.Module):
    """One head a task, of one shape, in the order of the tasks as given."""

    def __init__(self, tasks):
        super().__init__()
        self.body = nn.Linear(8, 16)
        self.heads = nn.ModuleDict({task: nn.Linear(16, CLASSES) for task in tasks})

    def forward(self, x):
        hidden = torch.relu(self.body(x))
        return sum(head(hidden) for head in self.heads.values())


def heads_in_another_order(right: bool) -> None:
    """The resumed model is built in another order than the one that was saved."""
    model = Heads(("colour", "form", "size"))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    train(model, optimizer=optimizer, steps=3)
    file = io.BytesIO()
    states = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save(states, file)
    file.seek(0)
    tasks = ("colour", "form", "size") if right else ("size", "colour", "form")
    again = Heads(tasks)
    optimizer = torch.optim.Adam(again.parameters(), lr=0.01)
    states = torch.load(file)
    again.load_state_dict(states["model"])
    optimizer.load_state_dict(states["optimizer"])
    train(again, optimizer=optimizer, steps=3)


def plateau_of_an_accuracy(right: bool) -> None:
    """ReduceLROnPlateau takes an accuracy for a loss."""
    model = Classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimizer, mode="max" if right else "min", patience=1
    )
    for _ in range(3):
        train(model, optimizer=optimizer, steps=3)
        x, y = samples(32)
        model.eval()
        with torch.no_grad():
            val_accuracy = (model(x).argmax(1) == y).float().mean().item()
        model.train()
        scheduler.step(val_accuracy)


def validation_of_nothing(right: bool) -> None:
    """The held-out samples are fewer than a batch, and are dropped."""
    model, held_out = Classifier(), TensorDataset(*samples(12))
    loader = DataLoader(held_out, batch_size=4 if right else 16, drop_last=True)
    for _ in range(2):
        train(model, steps=3)
        model.eval()
        with torch.no_grad():
            hits = [(model(x).argmax(1) == y).sum() for x, y in loader]
        model.train()
        print("accuracy", float(sum(hits)) / 12)


CASES = (
    leftover_micro_batches,
    anothers_gradients,
    momentum_made_anew,
    scale_made_anew,
    weights_of_classes,
    last_states_that_mix,
    rows_that_decay,
    one_rate_for_all,
    mean_over_padding,
    statistics_of_none,
    raw_validation,
    group_for_nobody,
    cosine_of_epochs,
    cosine_within_a_pass,
    milestones_within_a_pass,
    head_that_is_read,
    average_in_bfloat16,
    epochs_for_nobody,
    head_of_another_name,
    teacher_in_training_mode,
    exchanged_shares,
    target_that_flees,
    heads_in_another_order,
    plateau_of_an_accuracy,
    validation_of_nothing,
)


if __name__ == "__main__":
    main(CASES)
