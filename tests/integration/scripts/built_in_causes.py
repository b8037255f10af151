"""As built_in_signs.py: mistakes whose effect other rules see, and whose cause the agent
sees: a schedule, a seed, a mask, averaged weights, a decorated forward.

    built_in_causes.py [--right] [CASE...]
"""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from built_in_sequences import WIDTH, WORDS, next_word, sentences
from built_in_signs import CLASSES, STEPS, Classifier, main, samples, train


def schedule_of_micro_batches(right: bool) -> None:
    """It is laid out in steps, and stepped with each micro-batch."""
    model = Classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    steps = 14
    falls = lambda n: max(0.0, 1 - n / steps)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, falls)
    for _ in range(steps):
        optimizer.zero_grad()
        for last in (False, False, True):
            x, y = samples(8)
            (F.cross_entropy(model(x), y) / 3).backward()
            if last:
                optimizer.step()
            if last or not right:
                scheduler.step()


def schedules_side_by_side(right: bool) -> None:
    """A warm-up that is stepped on beside the decay, instead of before it."""
    model = Classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    rises = lambda n: min(1.0, (n + 1) / 3)
    warm_up = torch.optim.lr_scheduler.LambdaLR(optimizer, rises)
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=9)
    for step in range(12):
        train(model, optimizer=optimizer, steps=1)
        if step < 3 or not right:
            warm_up.step()
        if step >= 3 or not right:
            decay.step()


def schedule_of_another_counter(right: bool) -> None:
    """It goes on from the number of the epoch, and counts steps."""
    model = Classifier()
    falls = lambda n: 1 / (1 + n)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, falls)
    for _ in range(12):
        train(model, optimizer=optimizer, steps=1)
        scheduler.step()
    state, reached = optimizer.state_dict(), scheduler.last_epoch if right else 2
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    optimizer.load_state_dict(state)
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, falls, last_epoch=reached - 1
    )
    for _ in range(3):
        train(model, optimizer=optimizer, steps=1)
        scheduler.step()


def seeded_after_each_epoch(right: bool) -> None:
    """What is drawn to look at is the same each time, and so is all that follows."""
    model = Classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    loader = DataLoader(TensorDataset(*samples(48)), batch_size=8, shuffle=True)
    for _ in range(4):
        for x, y in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(x + 0.1 * torch.randn_like(x)), y).backward()
            optimizer.step()
        own = torch.Generator()
        (own if right else torch).manual_seed(3)
        with torch.no_grad():
            model.eval()
            model(torch.randn(4, 8, generator=own if right else None))
            model.train()


def cleared_too_late(right: bool) -> None:
    """zero_grad stands between backward and step."""
    model = Classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(STEPS):
        x, y = samples(16)
        loss = F.cross_entropy(model(x), y)
        if right:
            optimizer.zero_grad()
        loss.backward()
        if not right:
            optimizer.zero_grad()
        optimizer.step()


def backward_behind_the_loop(right: bool) -> None:
    """It should be within the loop over micro-batches."""
    model = Classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    loader = DataLoader(TensorDataset(*samples(64)), batch_size=8, shuffle=True)
    for _ in range(STEPS):
        for x, y in loader:
            loss = F.cross_entropy(model(x), y)
            if right:
                (loss / len(loader)).backward()
        if not right:
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()


class Body(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(8, 16), nn.ReLU())


class UnseenBody(Body):
    @torch.no_grad()
    def forward(self, x):
        return super().forward(x)


def tower_without_gradients(right: bool) -> None:
    """Its forward is decorated for when it was frozen, and it is to be tuned."""
    body = Body() if right else UnseenBody()
    train(nn.Sequential(body, nn.Linear(16, CLASSES)))


class Averages:
    """As diffusers has them."""

    def __init__(self, parameters) -> None:
        self.shadows = [one.detach().clone() for one in parameters]
        self.kept: list[torch.Tensor] = []

    def update(self, parameters) -> None:
        for shadow, one in zip(self.shadows, parameters):
            shadow.lerp_(one.detach(), 0.1)

    def store(self, parameters) -> None:
        self.kept = [one.detach().clone() for one in parameters]

    def copy_to(self, parameters) -> None:
        with torch.no_grad():
            for shadow, one in zip(self.shadows, parameters):
                one.copy_(shadow)

    def restore(self, parameters) -> None:
        with torch.no_grad():
            for kept, one in zip(self.kept, parameters):
                one.copy_(kept)


def averages_that_stay(right: bool) -> None:
    """An evaluation by averaged weights does not put the trained ones back."""
    model = Classifier()
    averages = Averages(model.parameters())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for number in range(3):
        for _ in range(5):
            train(model, optimizer=optimizer, steps=1)
            averages.update(model.parameters())
        averages.store(model.parameters())
        averages.copy_to(model.parameters())
        with torch.no_grad():
            model.eval()
            model(samples(16)[0])
            model.train()
        if right:
            averages.restore(model.parameters())


def stepped_once_more(right: bool) -> None:
    """The scaler steps the optimizer, and the loop does so again."""
    model = Classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    for _ in range(STEPS):
        x, y = samples(16)
        optimizer.zero_grad()
        scaler.scale(F.cross_entropy(model(x), y)).backward()
        scaler.step(optimizer)
        if not right:
            optimizer.step()
        scaler.update()


class Reader(nn.Module):
    """One attention, with a mask of a given meaning."""

    def __init__(self, right: bool) -> None:
        super().__init__()
        self.right = right
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, tokens):
        rows = self.embed(tokens)
        size = tokens.shape[1]
        hidden = torch.ones(size, size, dtype=torch.bool).triu(1)
        mask = ~hidden if self.right else hidden
        mixed = F.scaled_dot_product_attention(rows, rows, rows, attn_mask=mask)
        return self.head(rows + mixed.nan_to_num())


def mask_of_the_other_meaning(right: bool) -> None:
    """True means hidden to one function, and seen to another one."""
    model = Reader(right)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(STEPS):
        text = sentences()
        optimizer.zero_grad()
        next_word(model(text[:, :-1]), text[:, 1:]).backward()
        optimizer.step()


def one_sample_of_a_batch(right: bool) -> None:
    """What makes a batch puts all inputs into one sample."""

    def collate(items):
        x, y = map(torch.stack, zip(*items))
        return x if right else x.mean(0, keepdim=True), y

    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1), nn.Flatten(0))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    x, _ = samples(64)
    data = TensorDataset(x, x.sum(1))
    for x, y in DataLoader(data, batch_size=8, shuffle=True, collate_fn=collate):
        optimizer.zero_grad()
        (model(x) - y).square().mean().backward()
        optimizer.step()


CASES = (
    backward_behind_the_loop,  # looked for in the first steps of a process
    schedule_of_micro_batches,
    schedules_side_by_side,
    schedule_of_another_counter,
    seeded_after_each_epoch,
    cleared_too_late,
    tower_without_gradients,
    averages_that_stay,
    stepped_once_more,
    mask_of_the_other_meaning,
    one_sample_of_a_batch,
)

if __name__ == "__main__":
    main(CASES)
