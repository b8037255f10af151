"""As built_in_signs.py: mistakes in what a model ends in and in what is between its
layers, and in the order and number of the samples that it is given.

    built_in_outputs.py [--right] [CASE...]
"""

import pathlib
import tempfile

import torch
from torch import nn
from torch.distributions import Categorical, Normal
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from built_in_signs import CLASSES, Classifier, main, samples

STEPS = 8
WORDS, PAD = 12, 0


def layers(*modules):
    model = nn.Sequential(*modules)
    return model, torch.optim.Adam(model.parameters(), lr=0.01)


def pictures_in_another_range(right: bool) -> None:
    """Pictures in [-1, 1] are to be given back by a sigmoid."""
    last = nn.Tanh() if right else nn.Sigmoid()
    model, optimizer = layers(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 8), last)
    for _ in range(STEPS):
        x = 2 * torch.rand(16, 8) - 1
        optimizer.zero_grad()
        F.mse_loss(model(x), x).backward()
        optimizer.step()


def scores_through_relu(right: bool) -> None:
    """Each layer has an activation behind it, the last one, too."""
    last = nn.Identity() if right else nn.ReLU()
    model, optimizer = layers(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, CLASSES), last)
    for _ in range(STEPS):
        x, y = samples(16)
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


def dropout_at_the_end(right: bool) -> None:
    """Behind the last layer instead of before it."""
    head, drop = nn.Linear(16, CLASSES), nn.Dropout(0.3)
    order = (drop, head) if right else (head, drop)
    model, optimizer = layers(nn.Linear(8, 16), nn.ReLU(), *order)
    for _ in range(STEPS):
        x, y = samples(16)
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


def softmax_of_one_score(right: bool) -> None:
    """Two classes, one score, and the loss for many classes."""
    model, optimizer = layers(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    for _ in range(STEPS):
        x, y = samples(16)
        scores = model(x)
        optimizer.zero_grad()
        if right:
            is_first = (y == 0).float()[:, None]
            F.binary_cross_entropy_with_logits(scores, is_first).backward()
        else:
            F.cross_entropy(scores, torch.zeros_like(y)).backward()
        optimizer.step()


def advantage_with_a_gradient(right: bool) -> None:
    """The values in the actor's loss are not detached."""
    actor, critic = Classifier(), nn.Sequential(nn.Linear(8, 8), nn.ReLU())
    value = nn.Linear(8, 1)
    model = nn.ModuleList([actor, critic, value])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(STEPS):
        states, returns = torch.randn(16, 8), torch.randn(16)
        choice = Categorical(logits=actor(states))
        values = value(critic(states)).squeeze(-1)
        advantages = returns - (values.detach() if right else values)
        policy = -(choice.log_prob(choice.sample()) * advantages).mean()
        optimizer.zero_grad()
        (policy + F.mse_loss(values, returns)).backward()
        optimizer.step()


def layers_in_a_row(right: bool) -> None:
    """Three layers that no activation separates."""
    between = nn.GELU() if right else nn.Identity()
    model, optimizer = layers(nn.Linear(8, 16), between, nn.Linear(16, CLASSES))
    for _ in range(STEPS):
        x, y = samples(16)
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


def state_behind_the_padding(right: bool) -> None:
    """A GRU goes through the padding, and its last state is classified."""
    words, read = nn.Embedding(WORDS, 8, padding_idx=PAD), nn.GRU(
        8, 8, batch_first=True
    )
    model, optimizer = layers(words, read, nn.Linear(8, 2))
    for _ in range(STEPS):
        lengths = torch.cat([torch.tensor([9, 3]), torch.randint(2, 9, (6,))])
        rows = [torch.randint(1, WORDS, (int(n),)) for n in lengths]
        given = words(pad_sequence(rows, batch_first=True, padding_value=PAD))
        if right:
            given = pack_padded_sequence(given, lengths, True, enforce_sorted=False)
        scores = model[2](read(given)[1][-1])
        optimizer.zero_grad()
        F.cross_entropy(
            scores, torch.tensor([int(row[0]) % 2 for row in rows])
        ).backward()
        optimizer.step()


def attention_to_padding(right: bool) -> None:
    """Nobody tells the attention what is padding."""
    words = nn.Embedding(WORDS, 8, padding_idx=PAD)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model, optimizer = layers(words, layer, nn.Linear(8, 2))
    for _ in range(STEPS):
        rows = [torch.randint(1, WORDS, (n,)) for n in (9, 3, 7, 2, 5, 4)]
        ids = pad_sequence(rows, batch_first=True, padding_value=PAD)
        hidden = (ids == PAD) if right else None
        first = layer(words(ids), src_key_padding_mask=hidden)[:, 0]
        optimizer.zero_grad()
        F.cross_entropy(model[2](first), ids[:, 0] % 2).backward()
        optimizer.step()


def padding_that_is_a_token(right: bool) -> None:
    """The padding_idx is that of another vocabulary."""
    words = nn.Embedding(WORDS, 8, padding_idx=PAD if right else 5)
    model, optimizer = layers(words, nn.Linear(8, 2))
    for _ in range(STEPS):
        rows = [torch.randint(1, WORDS, (n,)) for n in (9, 3, 7, 2, 5, 4)]
        for row in rows[::2]:
            row[1] = 5
        ids = pad_sequence(rows, batch_first=True, padding_value=PAD)
        real = (ids != PAD)[..., None]
        pooled = (words(ids) * real).sum(1) / real.sum(1)
        optimizer.zero_grad()
        F.cross_entropy(model[1](pooled), ids[:, 0] % 2).backward()
        optimizer.step()


def positions_of_samples(right: bool) -> None:
    """Positions are counted along the batch."""
    words, places = nn.Embedding(WORDS, 8), nn.Embedding(16, 8)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model, optimizer = layers(words, places, layer, nn.Linear(8, 2))
    for _ in range(STEPS):
        ids = torch.randint(1, WORDS, (6, 9))
        counted = torch.arange(9) if right else torch.arange(6)[:, None]
        read = layer(words(ids) + places(counted))
        optimizer.zero_grad()
        F.cross_entropy(model[3](read[:, 0]), ids[:, 0] % 2).backward()
        optimizer.step()


def attention_over_samples(right: bool) -> None:
    """Weights of the words of a text add up to 1 over the batch."""
    weigh = nn.Linear(8, 1)
    model, optimizer = layers(weigh, nn.Linear(8, CLASSES))
    for _ in range(STEPS):
        steps = torch.randn(16, 5, 8)
        y = steps[:, 0, :CLASSES].argmax(1)
        weights = torch.tanh(weigh(steps)).softmax(1 if right else 0)
        optimizer.zero_grad()
        F.cross_entropy(model[1]((weights * steps).sum(1)), y).backward()
        optimizer.step()


def divergence_of_the_target(right: bool) -> None:
    """The arguments of kl_div are exchanged."""
    model, optimizer = layers(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, CLASSES))
    for _ in range(STEPS):
        x = torch.randn(16, 8)
        given, scores = x[:, :CLASSES].softmax(1), model(x)
        pair = (scores.log_softmax(1), given)
        if not right:
            pair = (given.log(), scores.softmax(1))
        optimizer.zero_grad()
        F.kl_div(*pair, reduction="batchmean").backward()
        optimizer.step()


def noise_by_the_variance(right: bool) -> None:
    """A variational encoder takes exp(log_variance) for the deviation."""
    encoder, decoder = nn.Linear(8, 8), nn.Linear(4, 8)
    model, optimizer = layers(encoder, decoder)
    for _ in range(STEPS):
        x = torch.randn(16, 8)
        mean, log = encoder(x).chunk(2, 1)
        scale = (0.5 * log).exp() if right else log.exp()
        drawn = torch.tanh(mean + torch.randn_like(mean) * scale)
        kl = -0.5 * (1 + log - mean.pow(2) - log.exp()).sum(1).mean()
        optimizer.zero_grad()
        (F.mse_loss(decoder(drawn), x) + 0.1 * kl).backward()
        optimizer.step()


def divergence_as_a_sum(right: bool) -> None:
    """The error beside it is a mean over 32 numbers."""
    encoder, decoder = nn.Linear(32, 8), nn.Linear(4, 32)
    model, optimizer = layers(encoder, decoder)
    for _ in range(STEPS):
        x = torch.rand(16, 32)
        mean, log = encoder(x).chunk(2, 1)
        drawn = mean + torch.randn_like(mean) * (0.5 * log).exp()
        kl = -0.5 * (1 + log - mean.pow(2) - log.exp()).sum(1).mean()
        error = F.mse_loss(decoder(drawn), x, reduction="none")
        optimizer.zero_grad()
        ((error.sum(1).mean() if right else error.mean()) + kl).backward()
        optimizer.step()


class Encoder(nn.Module):
    def __init__(self, right: bool):
        super().__init__()
        self.mean, self.right = nn.Linear(8, 4), right

    def forward(self, x):
        normal = Normal(self.mean(x), 0.5)
        drawn = normal.rsample() if self.right else normal.sample()
        return torch.tanh(drawn), normal.mean


def samples_without_gradients(right: bool) -> None:
    """The latent variable is sample(), not rsample()."""
    encoder, decoder = Encoder(right), nn.Linear(4, 8)
    model, optimizer = layers(encoder, decoder)
    for _ in range(STEPS):
        x = torch.randn(16, 8)
        drawn, mean = encoder(x)
        optimizer.zero_grad()
        (F.mse_loss(decoder(drawn), x) + 0.01 * mean.pow(2).mean()).backward()
        optimizer.step()


def rate_as_a_factor(right: bool) -> None:
    """The function of LambdaLR gives rates."""
    model, optimizer = layers(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, CLASSES))
    rate = 1.0 if right else 0.01
    make = torch.optim.lr_scheduler.LambdaLR
    scheduler = make(optimizer, lambda epoch: rate * 0.9**epoch)
    for _ in range(STEPS):
        x, y = samples(16)
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        scheduler.step()


def job(path: pathlib.Path, saves: bool, loads: bool) -> None:
    """Goes on from what `path` holds, if it is there."""
    model, optimizer = layers(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, CLASSES))
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    content = torch.load(path) if path.exists() else {}
    if content:
        model.load_state_dict(content["model"])
        optimizer.load_state_dict(content["optimizer"])
    if loads and "scheduler" in content:
        scheduler.load_state_dict(content["scheduler"])
    for _ in range(STEPS):
        x, y = samples(16)
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        scheduler.step()
    content = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    if saves:
        content["scheduler"] = scheduler.state_dict()
    torch.save(content, path)


def schedule_that_is_not_loaded(right: bool) -> None:
    """A resume reads the scheduler's state and leaves it aside."""
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(2):
            job(pathlib.Path(folder, "last.pt"), saves=True, loads=right)


def schedule_that_is_not_saved(right: bool) -> None:
    """The checkpoint has model and optimizer alone."""
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(2):
            job(pathlib.Path(folder, "last.pt"), saves=right, loads=True)


def target_among_the_inputs(right: bool) -> None:
    """Windows of a series that end with the value to be predicted."""
    series = torch.randn(120).cumsum(0) / 10
    windows, following = series.unfold(0, 13, 1), 12 if right else 11
    data = TensorDataset(windows[:, :12], windows[:, following : following + 1])
    model, optimizer = layers(nn.Linear(12, 16), nn.Tanh(), nn.Linear(16, 1))
    for x, y in DataLoader(data, batch_size=16, shuffle=True):
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()
        optimizer.step()


def a_part_without_gradients(right: bool) -> None:
    """The units of a branch are dead from the beginning."""
    branch = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, CLASSES))
    if not right:
        nn.init.constant_(branch[0].bias, -100)
    model = nn.ModuleList([branch, Classifier()])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(STEPS):
        x, y = samples(16)
        optimizer.zero_grad()
        F.cross_entropy(branch(x) + model[1](x), y).backward()
        optimizer.step()


def batches_in_one_order(right: bool) -> None:
    """The loader of the training does not shuffle."""
    data = TensorDataset(*samples(64))
    model, optimizer = layers(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, CLASSES))
    for _ in range(3):
        for x, y in DataLoader(data, batch_size=8, shuffle=right):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()


def samples_that_count_twice(right: bool) -> None:
    """Of two ranks, one evaluates a sample that the other one evaluates, too."""
    model, optimizer = layers(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, CLASSES))
    held_out = TensorDataset(*samples(32 if right else 31))
    for _ in range(2):
        for _ in range(STEPS):
            x, y = samples(16)
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        sampler = DistributedSampler(held_out, num_replicas=2, rank=0, shuffle=False)
        with torch.no_grad():
            for x, y in DataLoader(held_out, batch_size=8, sampler=sampler):
                model(x)


def one_file_for_both(right: bool) -> None:
    """The evaluation's data set is made with the training's seed."""

    def data(seed: int):
        drawn = torch.Generator().manual_seed(seed)
        x = torch.randn(48, 20, generator=drawn)
        return TensorDataset(x, x[:, :CLASSES].argmax(1))

    model, optimizer = layers(nn.Linear(20, 16), nn.Tanh(), nn.Linear(16, CLASSES))
    for _ in range(2):
        for x, y in DataLoader(data(0), batch_size=8, shuffle=True):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        with torch.no_grad():
            for x, y in DataLoader(data(1 if right else 0), batch_size=8):
                model(x)


CASES = (
    samples_without_gradients,  # while no likelihood has been asked for
    pictures_in_another_range,
    scores_through_relu,
    dropout_at_the_end,
    softmax_of_one_score,
    advantage_with_a_gradient,
    layers_in_a_row,
    state_behind_the_padding,
    attention_to_padding,
    padding_that_is_a_token,
    positions_of_samples,
    attention_over_samples,
    divergence_of_the_target,
    noise_by_the_variance,
    divergence_as_a_sum,
    rate_as_a_factor,
    schedule_that_is_not_saved,
    schedule_that_is_not_loaded,
    target_among_the_inputs,
    a_part_without_gradients,
    batches_in_one_order,
    samples_that_count_twice,
    one_file_for_both,
)


if __name__ == "__main__":
    main(CASES)
