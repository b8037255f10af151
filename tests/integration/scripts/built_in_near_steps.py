"""As built_in_near.py: what is frozen, stepped, saved, loaded and read.

    built_in_near_steps.py
"""

import copy
import os
import tempfile
import threading

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, IterableDataset, Subset, TensorDataset
from torch.utils.data import WeightedRandomSampler, get_worker_info

from built_in_near import main, sgd
from built_in_sequences import LENGTH, WIDTH, WORDS, learn, next_word, sentences
from built_in_signs import CLASSES, STEPS, Classifier, samples, train


def labelled(count: int = 32):
    return TensorDataset(*samples(count))


def frozen_in_training() -> None:
    """A model that keeps its frozen part in evaluation mode itself."""

    class Keeping(Classifier):
        def train(self, mode: bool = True):
            super().train(mode)
            self.body.eval()
            return self

    model = Keeping()
    model.body.requires_grad_(False)
    model.train()
    optimizer = torch.optim.SGD(model.head.parameters(), lr=0.05)
    for _ in range(2):
        train(model, optimizer=optimizer, steps=3)
        model.eval()
        with torch.no_grad():
            model(samples(16)[0])
        model.train()


def frozen_that_moves() -> None:
    """What is frozen on the way loses its gradients, and Adam leaves it alone."""
    model = Classifier()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    train(model, optimizer=optimizer, steps=4)
    for parameter in model.body.parameters():
        parameter.requires_grad_(False)
        parameter.grad = None
    train(model, optimizer=optimizer, steps=4)


def unfrozen_for_nobody() -> None:
    """What is unfrozen gets an optimizer of its own."""
    model = Classifier()
    model.body.requires_grad_(False)
    optimizer = torch.optim.SGD(model.head.parameters(), lr=0.05)
    train(model, optimizer=optimizer, steps=2)
    model.body.requires_grad_(True)
    second = torch.optim.SGD(model.body.parameters(), lr=0.01)
    for _ in range(18):
        x, y = samples(16)
        model.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        second.step()


def layer_made_in_forward() -> None:
    """A layer that learns its sizes from the first batch."""
    model = nn.Sequential(nn.LazyLinear(16), nn.ReLU(), nn.LazyLinear(CLASSES))
    model(samples(16)[0])
    train(model)


def layers_in_a_list() -> None:
    """The optimizer is given what the list hides."""

    class Listed(Classifier):
        def __init__(self):
            super().__init__()
            self.layers = [nn.Linear(8, 8)]

        def forward(self, x):
            return super().forward(self.layers[0](x))

    model = Listed()
    hidden = model.layers[0].parameters()
    train(model, optimizer=torch.optim.SGD([*model.parameters(), *hidden], lr=0.05))


def norm_that_decays() -> None:
    """What has one dimension is spared, norms among it."""
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Linear(16, CLASSES))
    groups = [
        {"params": [p for p in model.parameters() if p.dim() > 1]},
        {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0},
    ]
    train(model, optimizer=torch.optim.SGD(groups, lr=0.05, weight_decay=0.01))


def average_without_statistics() -> None:
    """An average that averages its buffers, too."""
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Linear(16, CLASSES))
    average = torch.optim.swa_utils.AveragedModel(model, use_buffers=True)
    optimizer = sgd(model)
    for _ in range(STEPS):
        train(model, optimizer=optimizer, steps=1)
        average.update_parameters(model)
        average.eval()
        with torch.no_grad():
            average(samples(16)[0])


def steps_below_precision() -> None:
    """Weights in bfloat16 begin near 0, where small steps count."""
    model = Classifier(dtype=torch.bfloat16)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    train(
        lambda x: model(x.bfloat16()),
        lambda scores, y: F.cross_entropy(scores.float(), y),
        optimizer,
    )


def copy_in_half_for_evaluation() -> None:
    """Refreshed now and then, from an average in float32."""
    model = Classifier()
    average = copy.deepcopy(model)
    half = copy.deepcopy(model).bfloat16()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(STEPS):
        train(model, optimizer=optimizer, steps=1)
        with torch.no_grad():
            for slow, fast in zip(average.parameters(), model.parameters()):
                slow.lerp_(fast, 0.01)
            if step % 3 == 0:
                half.load_state_dict(average.state_dict())


def optimizer_made_anew() -> None:
    """A second phase with another rate."""
    model = Classifier()
    for rate in (0.01, 0.001):
        optimizer = torch.optim.Adam(model.parameters(), lr=rate)
        train(model, optimizer=optimizer, steps=4)


def rate_reset_on_resume() -> None:
    """The scheduler is told with which step it goes on."""
    model = Classifier()
    optimizer = sgd(model)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: 0.5**n)
    for _ in range(3):
        train(model, optimizer=optimizer, steps=1)
        scheduler.step()
    state, reached = optimizer.state_dict(), scheduler.last_epoch
    optimizer = sgd(model)
    optimizer.load_state_dict(state)
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda n: 0.5**n, last_epoch=reached - 1
    )
    train(model, optimizer=optimizer, steps=3)
    # A schedule whose first step is still to come, when it is loaded.
    optimizer = sgd(model)
    optimizer.load_state_dict(sgd(model).state_dict())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 100)
    scheduler.load_state_dict({**scheduler.state_dict(), "last_epoch": 3})
    train(model, optimizer=optimizer, steps=3)


def one_cycle_of_epochs() -> None:
    """Stepped with each batch, over two passes."""
    model = Classifier()
    optimizer = sgd(model)
    cycle = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, 0.05, epochs=2, steps_per_epoch=4
    )
    for _ in range(2):
        for x, y in DataLoader(labelled(), batch_size=8, shuffle=True):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            cycle.step()


def seeded_in_each_step() -> None:
    """Seeded once an epoch, with its number."""
    model = nn.Sequential(nn.Dropout(0.3), Classifier())
    optimizer = sgd(model)
    for epoch in range(2):
        torch.manual_seed(epoch)
        train(model, optimizer=optimizer, steps=6)


def float16_without_a_scale() -> None:
    """A scaler is at work, and its scale goes on over a resume."""
    model = Classifier()
    kept = None
    for _ in range(2):
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**6)
        if kept is not None:
            scaler.load_state_dict(kept[0])
            optimizer.load_state_dict(kept[1])
        for _ in range(4):
            x, y = samples(16)
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.float16):
                scores = model(x)
            scaler.scale(F.cross_entropy(scores.float(), y)).backward()
            scaler.step(optimizer)
            scaler.update()
        kept = scaler.state_dict(), optimizer.state_dict()


def layers_in_full_precision() -> None:
    """All layers are called in the region, the loss outside of it."""
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten())
    model.append(nn.Linear(64, CLASSES))
    optimizer = sgd(model)
    for _ in range(STEPS):
        x, y = samples(16)
        with torch.autocast("cpu", torch.bfloat16):
            scores = model(F.pad(x, (14, 14)).view(16, 1, 6, 6))
        optimizer.zero_grad()
        F.cross_entropy(scores.float(), y).backward()
        optimizer.step()


def saved_in_files(folder: str) -> None:
    """Several saves, each of its own moment, some by a thread; and a resume."""
    model = Classifier()
    optimizer = torch.optim.Adam(model.parameters())
    path = os.path.join(folder, "all.pt")
    for number in range(3):
        train(model, optimizer=optimizer, steps=2)
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(state, path)
        flat = torch.cat([p.flatten() for p in model.state_dict().values()])
        torch.save({"flat": flat}, os.path.join(folder, f"{number}.pt"))
    writer = threading.Thread(target=torch.save, args=(model.state_dict(), path + "2"))
    writer.start()
    writer.join()
    train(model, optimizer=optimizer, steps=2)
    model = Classifier()
    optimizer = torch.optim.Adam(model.parameters())
    state = torch.load(path)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    train(model, optimizer=optimizer, steps=2)


def saved_while_training() -> None:
    """A thread saves the live tensors, and the training waits for it."""
    with tempfile.TemporaryDirectory() as folder:
        saved_in_files(folder)


def best_by_reference() -> None:
    """What was kept by reference is loaded into another model."""
    model, other = Classifier(), Classifier()
    state = model.state_dict()
    train(model, steps=2)
    other.load_state_dict(state)
    train(other, steps=2)


def tied_no_more() -> None:
    """A state whose weights are tied, for a model that ties its own."""

    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(WORDS, WIDTH)
            self.head = nn.Linear(WIDTH, WORDS, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, tokens):
            return self.head(self.embed(tokens))

    model = Tied()
    model.load_state_dict(Tied().state_dict())
    optimizer = sgd(model)
    for _ in range(STEPS):
        text = sentences()
        optimizer.zero_grad()
        next_word(model(text[:, :LENGTH]), text[:, 1:]).backward()
        optimizer.step()


def leftover_micro_batches() -> None:
    """The count goes on over the end of an epoch: each step has three batches. Their
    gradients are clipped when the scale has been taken out."""
    model = Classifier()
    optimizer = sgd(model)
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
    loader = DataLoader(labelled(28), batch_size=4, shuffle=True)
    count = 0
    for _ in range(12):
        for x, y in loader:
            count += 1
            scaler.scale(F.cross_entropy(model(x), y) / 3).backward()
            if count % 3 == 0:
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()


def anothers_gradients() -> None:
    """A critic's gradients are set to zero, by its module, before its own loss; that of
    the generator has reached them."""
    generator, critic = nn.Linear(4, 8), Classifier()
    first, second = sgd(generator), sgd(critic)
    x, y = samples(64)
    for rows in torch.arange(64).split(8):
        made = critic(generator(torch.randn(8, 4)))
        F.cross_entropy(made, torch.zeros(8, dtype=torch.long)).backward()
        first.step()
        first.zero_grad()
        critic.zero_grad(set_to_none=False)
        F.cross_entropy(critic(x[rows]), y[rows]).backward()
        second.step()


class Stream(IterableDataset):
    """Each worker draws numbers of its own."""

    def __iter__(self):
        worker = get_worker_info()
        generator = torch.Generator().manual_seed(worker.id)
        for _ in range(8 * STEPS):
            x = torch.randn(8, generator=generator)
            yield x, x[:CLASSES].argmax()


def workers_that_repeat() -> None:
    """Seeded by their number."""
    learn(DataLoader(Stream(), batch_size=16, num_workers=2))


def weights_of_classes() -> None:
    """More weights than samples are drawn."""
    data = labelled(64)
    weights = 1.0 / torch.bincount(data.tensors[1], minlength=CLASSES).clamp(min=1)
    sampler = WeightedRandomSampler(weights[data.tensors[1]], 32, replacement=False)
    learn(DataLoader(data, batch_size=8, sampler=sampler))


def split_twice() -> None:
    """Two parts of the data, of one scale each, and both modes in turn."""
    data = labelled(64)
    seen = DataLoader(Subset(data, range(48)), batch_size=8, shuffle=True)
    held_out = DataLoader(Subset(data, range(48, 64)), batch_size=8)
    model = nn.Sequential(nn.Dropout(0.1), Classifier())
    optimizer = sgd(model)
    for _ in range(3):
        model.train()
        learn(seen, model, optimizer)
        model.eval()
        with torch.no_grad():
            for x, y in held_out:
                F.cross_entropy(model(x), y)


class Copied(torch.utils.data.Dataset):
    """Rows that are changed when they have been copied."""

    def __init__(self):
        self.rows, self.labels = samples(32)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int):
        return self.rows[index].mul(1.2).sub_(0.1), self.labels[index]


def data_normalised_in_place() -> None:
    """What is changed in place is a result."""
    model = Classifier()
    optimizer = sgd(model)
    loader = DataLoader(Copied(), batch_size=8, shuffle=True)
    for _ in range(3):
        learn(loader, model, optimizer)


def counted_again() -> None:
    """A region that reads its buffer only, and draws nothing."""

    class Scaling(Classifier):
        def __init__(self):
            super().__init__()
            self.register_buffer("scale", torch.full((), 0.5))

        def region(self, x):
            return torch.relu(self.body(x)) * self.scale

        def forward(self, x):
            options = {"use_reentrant": False, "preserve_rng_state": False}
            return self.head(checkpoint(self.region, x, **options))

    train(Scaling())


def cut_checkpoint() -> None:
    """A reentrant checkpoint of what requires a gradient."""

    class Checkpointed(Classifier):
        def forward(self, x):
            x = x.clone().requires_grad_()
            hidden = checkpoint(self.body, x, use_reentrant=True)
            return self.head(torch.relu(hidden))

    train(Checkpointed())


def workers_that_stay() -> None:
    """A data set that counts in its workers, and knows its length once asked."""

    class Counting(IterableDataset):
        def __init__(self):
            self.rows = list(zip(*samples(32)))
            self.passes = 0
            self.length = None

        def __len__(self):
            if self.length is None:
                self.length = len(self.rows)
            return self.length

        def __iter__(self):
            self.passes += 1
            return iter(self.rows)

    model = Classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    loader = DataLoader(Counting(), 8, num_workers=1, persistent_workers=True)
    for _ in range(3):
        for x, y in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        len(loader)


def another_head() -> None:
    """A pretrained body; its head was for other classes, and has another name."""
    model = Classifier()
    state = {name: t for name, t in model.state_dict().items() if "body" in name}
    state["fc.weight"] = torch.zeros_like(model.head.weight)
    model.load_state_dict(state, strict=False)
    train(model, steps=3)


CASES = (
    # First: of several optimizers nobody knows whose a backward is.
    leftover_micro_batches,
    anothers_gradients,
    frozen_in_training,
    frozen_that_moves,
    unfrozen_for_nobody,
    layer_made_in_forward,
    layers_in_a_list,
    norm_that_decays,
    average_without_statistics,
    steps_below_precision,
    copy_in_half_for_evaluation,
    optimizer_made_anew,
    rate_reset_on_resume,
    one_cycle_of_epochs,
    seeded_in_each_step,
    float16_without_a_scale,
    layers_in_full_precision,
    saved_while_training,
    best_by_reference,
    tied_no_more,
    workers_that_repeat,
    workers_that_stay,
    another_head,
    weights_of_classes,
    split_twice,
    data_normalised_in_place,
    # Last: what checkpoints keep hides other graphs.
    counted_again,
    cut_checkpoint,
)


if __name__ == "__main__":
    main(CASES)
