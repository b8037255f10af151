"""As built_in.py: mistakes that the agent itself looks for.

    built_in_signs.py [--right] [CASE...]
"""

import argparse
import copy

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

STEPS = 8
CLASSES = 4


class Classifier(nn.Module):
    def __init__(self, dtype=None):
        super().__init__()
        self.body = nn.Linear(8, 16, dtype=dtype)
        self.head = nn.Linear(16, CLASSES, dtype=dtype)

    def forward(self, x):
        return self.head(torch.relu(self.body(x)))


def samples(count: int):
    x = torch.randn(count, 8)
    return x, x[:, :CLASSES].argmax(1)


def train(model, loss=F.cross_entropy, optimizer=None, steps: int = STEPS) -> None:
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(steps):
        x, y = samples(16)
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()


def copied_loss(right: bool) -> None:
    """The loss is a new tensor that was told to require a gradient."""

    def loss(scores, y):
        found = F.cross_entropy(scores, y)
        return found if right else torch.tensor(found.item(), requires_grad=True)

    train(Classifier(), loss)


def softmax_over_samples(right: bool) -> None:
    """log_softmax takes the wrong dimension."""
    train(Classifier(), lambda s, y: F.nll_loss(s.log_softmax(1 if right else 0), y))


def kl_of_probabilities(right: bool) -> None:
    """kl_div is given a softmax."""

    def loss(scores, y):
        target = F.one_hot(y, CLASSES).float().lerp(torch.full((CLASSES,), 0.25), 0.2)
        given = scores.log_softmax(1) if right else scores.softmax(1)
        return F.kl_div(given, target, reduction="batchmean")

    train(Classifier(), loss)


def cut_checkpoint(right: bool) -> None:
    """A reentrant checkpoint is given data, which require no gradient."""

    class Checkpointed(Classifier):
        def forward(self, x):
            hidden = checkpoint(self.body, x, use_reentrant=not right)
            return self.head(torch.relu(hidden))

    train(Checkpointed())


def best_by_reference(right: bool) -> None:
    """The best weights are kept without a copy."""
    model = Classifier()
    train(model, steps=2)
    best = (copy.deepcopy(model) if right else model).state_dict()
    train(model, steps=2)
    model.load_state_dict(best)
    train(model, steps=2)


def clipping_of_nothing(right: bool) -> None:
    """The optimizer has used up the generator that is clipped."""
    model = Classifier()
    parameters = model.parameters()
    optimizer = torch.optim.SGD(parameters, lr=0.05)
    for _ in range(STEPS):
        x, y = samples(16)
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        nn.utils.clip_grad_norm_(model.parameters() if right else parameters, 1.0)
        optimizer.step()


def cleared_micro_batches(right: bool) -> None:
    """Each micro-batch clears the gradients of the one before."""
    model = Classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(STEPS):
        for micro_batch in range(4):
            x, y = samples(16)
            if not right or micro_batch == 0:
                optimizer.zero_grad()
            (F.cross_entropy(model(x), y) / 4).backward()
        optimizer.step()


def frozen_by_an_attribute(right: bool) -> None:
    """requires_grad of a module is nothing that torch reads."""
    model = Classifier()
    if right:
        model.body.requires_grad_(False)
    else:
        model.body.requires_grad = False
    train(model)


def layers_in_a_list(right: bool) -> None:
    """A plain list hides layers from parameters()."""

    class Listed(Classifier):
        def __init__(self):
            super().__init__()
            layers = [nn.Linear(8, 8) for _ in range(2)]
            self.layers = nn.ModuleList(layers) if right else layers

        def forward(self, x):
            for layer in self.layers:
                x = torch.relu(layer(x))
            return super().forward(x)

    train(Listed())


def layer_made_in_forward(right: bool) -> None:
    """A layer of each forward, with new weights."""

    class Maker(Classifier):
        def __init__(self):
            super().__init__()
            self.mix = nn.Linear(8, 8)

        def forward(self, x):
            mix = self.mix if right else nn.Linear(8, 8)
            return super().forward(mix(x))

    train(Maker())


def optimizer_made_anew(right: bool) -> None:
    """An optimizer for each epoch."""
    model = Classifier()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(5):
        if not right:
            optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        train(model, optimizer=optimizer, steps=2)


def loss_of_nan(right: bool) -> None:
    """The logarithm of nothing enters the loss once."""
    model = Classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(STEPS):
        x, y = samples(16)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        if step == 4:
            loss = loss * float("nan")
        if right and not loss.isfinite():
            continue
        loss.backward()
        optimizer.step()


def seeded_in_each_step(right: bool) -> None:
    """Every iteration seeds again."""
    model = nn.Sequential(nn.Dropout(0.3), Classifier())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    x, y = samples(16)
    for _ in range(STEPS):
        if not right:
            torch.manual_seed(7)
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


def steps_below_precision(right: bool) -> None:
    """Weights in bfloat16 move by less than they can hold."""
    model = Classifier(dtype=torch.bfloat16)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.uniform_(0.5, 1.5)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05 if right else 1e-5)

    def loss(scores, y):
        return F.cross_entropy(scores.float(), y)

    for _ in range(STEPS):
        x, y = samples(16)
        optimizer.zero_grad()
        loss(model(x.bfloat16()), y).backward()
        optimizer.step()


def float16_without_a_scale(right: bool) -> None:
    """autocast to float16, and no GradScaler."""
    model = Classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
    for _ in range(STEPS):
        x, y = samples(16)
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.float16):
            loss = F.cross_entropy(model(x).float(), y)
        if right:
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        else:
            loss.backward()
            optimizer.step()


class Stream(IterableDataset):
    def __init__(self, shares: bool):
        self.shares = shares

    def __iter__(self):
        generator = torch.Generator().manual_seed(5)
        worker = get_worker_info()
        for number in range(16 * STEPS):
            x = torch.randn(8, generator=generator)
            if not self.shares or number % worker.num_workers == worker.id:
                yield x, x[:CLASSES].argmax()


def workers_that_repeat(right: bool) -> None:
    """Each worker gives the whole stream."""
    model = Classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    loader = DataLoader(Stream(right), batch_size=16, num_workers=2)
    for _, (x, y) in zip(range(STEPS), loader):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


def one_layer_many_times(right: bool) -> None:
    """[layer] * 3 is one layer."""

    class Deep(Classifier):
        def __init__(self):
            super().__init__()
            layers = [nn.Linear(8, 8) for _ in range(3)]
            self.layers = nn.Sequential(*(layers if right else [layers[0]] * 3))

        def forward(self, x):
            return super().forward(self.layers(x))

    train(Deep())


def unfrozen_for_nobody(right: bool) -> None:
    """A part is unfrozen, and the optimizer was made before."""
    model = Classifier()
    model.body.requires_grad_(False)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=0.05)
    train(model, optimizer=optimizer, steps=1)
    model.body.requires_grad_(True)
    if right:
        optimizer.add_param_group({"params": model.body.parameters()})
    train(model, optimizer=optimizer, steps=16)


def scheduler_first(right: bool) -> None:
    """scheduler.step() comes before optimizer.step()."""
    model = Classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 4)
    for _ in range(STEPS):
        x, y = samples(16)
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        if not right:
            scheduler.step()
        optimizer.step()
        if right:
            scheduler.step()


def split_twice(right: bool) -> None:
    """The two parts of the data are of two splits."""
    data = torch.utils.data.TensorDataset(*samples(64))
    trained, held_out = torch.utils.data.random_split(data, [48, 16])
    if not right:
        _, held_out = torch.utils.data.random_split(data, [48, 16])
    model = Classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(2):
        for x, y in DataLoader(trained, batch_size=16, shuffle=True):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        with torch.no_grad():
            for x, y in DataLoader(held_out, batch_size=16):
                F.cross_entropy(model(x), y)


def average_without_statistics(right: bool) -> None:
    """An average of the parameters alone is evaluated."""
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Linear(16, CLASSES))
    average = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(STEPS):
        train(model, optimizer=optimizer, steps=1)
        average.eval()
        with torch.no_grad():
            for mine, other in zip(average.parameters(), model.parameters()):
                mine.lerp_(other, 0.1)
            for mine, other in zip(average.buffers(), model.buffers()):
                if right:
                    mine.copy_(other)
            average(samples(16)[0])


def summed_means(right: bool) -> None:
    """Means of micro-batches are added up and not divided."""
    model = Classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(STEPS):
        optimizer.zero_grad()
        for _ in range(2):
            x, y = samples(16)
            loss = F.cross_entropy(model(x), y)
            if right:
                loss = loss / 2
            loss.backward()
        optimizer.step()


def names_that_do_not_fit(right: bool) -> None:
    """Every name of the state has a prefix, and strict is off."""
    model = Classifier()
    state = Classifier().state_dict()
    if not right:
        state = {"module." + name: tensor for name, tensor in state.items()}
    model.load_state_dict(state, strict=False)
    train(model)


def initialised_after_the_load(right: bool) -> None:
    """All modules are initialised when the pretrained ones have been loaded."""
    model = Classifier()

    def initialise(module):
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)

    state = Classifier().state_dict()
    if right:
        model.apply(initialise)
    model.load_state_dict(state)
    if not right:
        model.apply(initialise)
    train(model)


class Readings(Dataset):
    """Normalised when they are read."""

    def __init__(self, copies: bool):
        self.readings, self.labels = samples(96)
        self.copies = copies

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int):
        x = self.readings[index]
        x = x.clone() if self.copies else x
        x -= 0.1
        x *= 1.2
        return x, self.labels[index]


def data_normalised_in_place(right: bool) -> None:
    """The data set's own rows, once more in each epoch."""
    model = Classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    loader = DataLoader(Readings(copies=right), batch_size=16, shuffle=True)
    for _ in range(2):
        for x, y in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()


def labels_of_minus_one(right: bool) -> None:
    """Binary cross entropy with labels of -1 and 1."""

    def loss(scores, y):
        labels = 2.0 * F.one_hot(y, CLASSES) - 1
        labels = (labels + 1) / 2 if right else labels
        return F.binary_cross_entropy_with_logits(scores, labels)

    train(Classifier(), loss)


CASES = (
    copied_loss,
    softmax_over_samples,
    kl_of_probabilities,
    best_by_reference,
    clipping_of_nothing,
    cleared_micro_batches,
    frozen_by_an_attribute,
    layers_in_a_list,
    layer_made_in_forward,
    optimizer_made_anew,
    loss_of_nan,
    seeded_in_each_step,
    steps_below_precision,
    float16_without_a_scale,
    workers_that_repeat,
    one_layer_many_times,
    unfrozen_for_nobody,
    scheduler_first,
    split_twice,
    average_without_statistics,
    summed_means,
    names_that_do_not_fit,
    initialised_after_the_load,
    data_normalised_in_place,
    labels_of_minus_one,
    # Last: what checkpoints keep hides other graphs.
    cut_checkpoint,
)


def main(all_cases=CASES) -> None:
    cases = {case.__name__: case for case in all_cases}
    parser = argparse.ArgumentParser()
    parser.add_argument("--right", action="store_true")
    parser.add_argument("cases", nargs="*")
    args = parser.parse_args()
    for name in args.cases or cases:
        torch.manual_seed(1)
        cases[name](args.right)


if __name__ == "__main__":
    main()
