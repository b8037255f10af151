"""Healthy trainings that come close to the mistakes of built_in_outputs.py, each in
another way than its right variant.

    built_in_near_outputs.py
"""

import pathlib
import tempfile

import torch
from torch import nn
from torch.distributions import Normal
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from built_in_near import main
from built_in_outputs import PAD, STEPS, WORDS, layers
from built_in_signs import CLASSES, Classifier, samples


def pictures_in_another_range() -> None:
    """Noisy measurements of shares: a few lie a little above 1 or below 0."""
    model, optimizer = layers(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 8), nn.Sigmoid())
    for _ in range(STEPS):
        x = torch.rand(16, 8)
        optimizer.zero_grad()
        F.mse_loss(model(x), x + 0.02 * torch.randn(16, 8)).backward()
        optimizer.step()


def scores_through_relu() -> None:
    """Maps of classes go through a ReLU, and their means are the scores."""
    model, optimizer = layers(nn.Conv1d(1, CLASSES, 3), nn.ReLU())
    for _ in range(STEPS):
        x, y = samples(16)
        optimizer.zero_grad()
        F.cross_entropy(model(x[:, None]).mean(2), y).backward()
        optimizer.step()


def dropout_at_the_end() -> None:
    """Scores of which some are switched off by a mask of zeros and ones."""
    model = Classifier()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    allowed = torch.ones(16, CLASSES)
    allowed[::2, 0] = 0
    for _ in range(STEPS):
        x, y = samples(16)
        optimizer.zero_grad()
        F.cross_entropy(model(x) * allowed, y.clamp(min=1)).backward()
        optimizer.step()


def softmax_of_one_score() -> None:
    """Attention over a single key, whose weight is 1."""
    model, optimizer = layers(nn.Linear(8, 1), nn.Linear(8, CLASSES))
    for _ in range(STEPS):
        x, y = samples(16)
        keys = x[:, None]
        weights = model[0](keys).softmax(1)
        optimizer.zero_grad()
        loss = F.cross_entropy(model[1]((weights * keys).sum(1)), y)
        (loss + 0.01 * model[0](x).square().mean()).backward()
        optimizer.step()


def advantage_with_a_gradient() -> None:
    """A loss that weighs log-probabilities by how sure the model is."""
    model = Classifier()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(STEPS):
        x, y = samples(16)
        right = F.log_softmax(model(x), 1).gather(1, y[:, None]).squeeze(1)
        optimizer.zero_grad()
        (-((1 - right.exp()) ** 2) * right).mean().backward()
        optimizer.step()


def layers_in_a_row() -> None:
    """A narrow layer between two wide ones: components of the data."""
    model, optimizer = layers(nn.Linear(8, 2), nn.Linear(2, 8))
    for _ in range(STEPS):
        x, _ = samples(16)
        optimizer.zero_grad()
        F.mse_loss(model(x), x).backward()
        optimizer.step()


def state_behind_the_padding() -> None:
    """All states are used, those behind the texts without weight."""
    words, read = nn.Embedding(WORDS, 8, padding_idx=PAD), nn.GRU(
        8, 8, batch_first=True
    )
    model, optimizer = layers(words, read, nn.Linear(8, 2))
    for _ in range(STEPS):
        rows = [torch.randint(1, WORDS, (n,)) for n in (9, 3, 7, 2, 5, 4)]
        ids = pad_sequence(rows, batch_first=True, padding_value=PAD)
        real = (ids != PAD)[..., None]
        pooled = (read(words(ids))[0] * real).sum(1) / real.sum(1)
        optimizer.zero_grad()
        F.cross_entropy(model[2](pooled), ids[:, 0] % 2).backward()
        optimizer.step()


def attention_to_padding() -> None:
    """Each token sees what is before it, and none sees what is behind."""
    words = nn.Embedding(WORDS, 8, padding_idx=PAD)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model, optimizer = layers(words, layer, nn.Linear(8, 2))
    mask = nn.Transformer.generate_square_subsequent_mask(9)
    for _ in range(STEPS):
        rows = [torch.randint(1, WORDS, (n,)) for n in (9, 3, 7, 2, 5, 4)]
        ids = pad_sequence(rows, batch_first=True, padding_value=PAD)
        last = [len(row) - 1 for row in rows]
        read = layer(words(ids), src_mask=mask)[torch.arange(6), last]
        optimizer.zero_grad()
        F.cross_entropy(model[2](read), ids[:, 0] % 2).backward()
        optimizer.step()


def padding_that_is_a_token() -> None:
    """Padding before the texts, all of which end in one token."""
    words = nn.Embedding(WORDS, 8, padding_idx=PAD)
    model, optimizer = layers(words, nn.Linear(8, 2))
    for _ in range(STEPS):
        ids = torch.randint(2, WORDS, (6, 9))
        for row, length in zip(ids, (9, 3, 7, 2, 5, 4)):
            row[:-length] = PAD
            row[-1] = 1
        real = (ids != PAD)[..., None]
        pooled = (words(ids) * real).sum(1) / real.sum(1)
        optimizer.zero_grad()
        F.cross_entropy(model[1](pooled), ids[:, -2] % 2).backward()
        optimizer.step()


def positions_of_samples() -> None:
    """The steps come first, in the positions, too."""
    words, places = nn.Embedding(WORDS, 8), nn.Embedding(16, 8)
    layer = nn.TransformerEncoderLayer(8, 2, 16)
    model, optimizer = layers(words, places, layer, nn.Linear(8, 2))
    for _ in range(STEPS):
        ids = torch.randint(1, WORDS, (9, 6))
        read = layer(words(ids) + places(torch.arange(9)[:, None]))
        optimizer.zero_grad()
        F.cross_entropy(model[3](read[0]), ids[0] % 2).backward()
        optimizer.step()


def attention_over_samples() -> None:
    """The steps come first, and weights add up to 1 over them."""
    weigh = nn.Linear(8, 1)
    model, optimizer = layers(weigh, nn.Linear(8, CLASSES))
    for _ in range(STEPS):
        steps = torch.randn(5, 16, 8)
        weights = torch.tanh(weigh(steps)).softmax(0)
        optimizer.zero_grad()
        scores = model[1]((weights * steps).sum(0))
        F.cross_entropy(scores, steps[0, :, :CLASSES].argmax(1)).backward()
        optimizer.step()


def divergence_of_the_target() -> None:
    """Two networks learn from each other."""
    first, second = Classifier(), Classifier()
    model = nn.ModuleList([first, second])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(STEPS):
        x, y = samples(16)
        mine, other = first(x), second(x)
        apart = F.kl_div(mine.log_softmax(1), other.softmax(1), reduction="batchmean")
        optimizer.zero_grad()
        (apart + F.cross_entropy(mine, y) + F.cross_entropy(other, y)).backward()
        optimizer.step()


def noise_by_the_variance() -> None:
    """The encoder gives logarithms of deviations."""
    encoder, decoder = nn.Linear(8, 8), nn.Linear(4, 8)
    model, optimizer = layers(encoder, decoder)
    for _ in range(STEPS):
        x = torch.randn(16, 8)
        mean, log = encoder(x).chunk(2, 1)
        drawn = torch.tanh(mean + torch.randn_like(mean) * log.exp())
        kl = (0.5 * (mean.pow(2) + log.exp().pow(2)) - log - 0.5).sum(1).mean()
        optimizer.zero_grad()
        (F.mse_loss(decoder(drawn), x) + 0.1 * kl).backward()
        optimizer.step()


def divergences_with_their_weights() -> None:
    """One is chosen for the sum; the other two are totals of a batch."""
    encoder, decoder = nn.Linear(32, 8), nn.Linear(4, 32)
    model, optimizer = layers(encoder, decoder)
    for step in range(STEPS):
        x = torch.rand(16, 32)
        mean, log = encoder(x).chunk(2, 1)
        drawn = mean + torch.randn_like(mean) * (0.5 * log).exp()
        kl = -0.5 * (1 + log - mean.pow(2) - log.exp()).sum()
        error = F.mse_loss(decoder(drawn), x, reduction="sum")
        loss = error + kl if step % 2 else error / x.numel() + 0.001 * kl / len(x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.mean = nn.Linear(8, 2)

    def forward(self, x):
        normal = Normal(self.mean(x), 0.5)
        return normal, normal.sample()


def samples_without_gradients() -> None:
    """Actions of a policy are drawn, and their likelihood is trained."""
    policy = Policy()
    optimizer = torch.optim.Adam(policy.parameters(), lr=0.01)
    for _ in range(STEPS):
        normal, actions = policy(torch.randn(16, 8))
        rewards = -actions.pow(2).sum(1)
        likelihood = normal.log_prob(actions).sum(1)
        optimizer.zero_grad()
        (-likelihood * (rewards - rewards.mean())).mean().backward()
        optimizer.step()


def rate_as_a_factor() -> None:
    """A warm-up that goes through the rate itself, by chance."""
    model, optimizer = layers(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, CLASSES))
    make = torch.optim.lr_scheduler.LambdaLR
    scheduler = make(optimizer, lambda epoch: min(1.0, max(0.01, epoch / 4)))
    for _ in range(STEPS):
        x, y = samples(16)
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        scheduler.step()


def job(path: pathlib.Path) -> None:
    """Sets the rate by its own schedule, which knows the epoch."""
    model, optimizer = layers(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, CLASSES))
    content = torch.load(path) if path.exists() else {"epoch": 0}
    if content["epoch"]:
        model.load_state_dict(content["model"])
        optimizer.load_state_dict(content["optimizer"])
    last = content["epoch"] - 1 if content["epoch"] else -1
    make = torch.optim.lr_scheduler.LambdaLR
    scheduler = make(optimizer, lambda epoch: 0.9**epoch, last_epoch=last)
    for _ in range(STEPS):
        x, y = samples(16)
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    scheduler.step()
    epoch = content["epoch"] + 1
    content = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save({**content, "epoch": epoch}, path)


def schedule_that_is_not_saved() -> None:
    """The epoch is saved instead."""
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(2):
            job(pathlib.Path(folder, "last.pt"))


def target_among_the_inputs() -> None:
    """A series that stands still for a while, and a target that is often its last value."""
    steps = torch.randn(120).cumsum(0).div(2).round()
    windows = steps.unfold(0, 13, 1)
    data = TensorDataset(windows[:, :12], windows[:, 12:])
    model, optimizer = layers(nn.Linear(12, 16), nn.Tanh(), nn.Linear(16, 1))
    for x, y in DataLoader(data, batch_size=16, shuffle=True):
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()
        optimizer.step()


def a_part_without_gradients() -> None:
    """A branch whose last layer begins at zero: its first one follows a step later."""
    branch = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, CLASSES))
    nn.init.zeros_(branch[2].weight)
    model = nn.ModuleList([branch, Classifier()])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(STEPS):
        x, y = samples(16)
        optimizer.zero_grad()
        F.cross_entropy(branch(x) + model[1](x), y).backward()
        optimizer.step()


def batches_in_one_order() -> None:
    """Two large batches, which the order of the data does not matter to."""
    data = TensorDataset(*samples(64))
    model, optimizer = layers(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, CLASSES))
    for _ in range(4):
        for x, y in DataLoader(data, batch_size=32):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()


def samples_that_count_twice() -> None:
    """Ranks are filled up in a training."""
    data = TensorDataset(*samples(63))
    model, optimizer = layers(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, CLASSES))
    sampler = DistributedSampler(data, num_replicas=2, rank=0)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for x, y in DataLoader(data, batch_size=4, sampler=sampler):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()


def one_file_for_both() -> None:
    """How well the training does on its own samples, and on others."""
    data = TensorDataset(*samples(48))
    model, optimizer = layers(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, CLASSES))
    for _ in range(2):
        for x, y in DataLoader(data, batch_size=8, shuffle=True):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        with torch.no_grad():
            for evaluated in (data, TensorDataset(*samples(48))):
                for x, y in DataLoader(evaluated, batch_size=8):
                    model(x)


CASES = (
    samples_without_gradients,
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
    divergences_with_their_weights,
    rate_as_a_factor,
    schedule_that_is_not_saved,
    target_among_the_inputs,
    a_part_without_gradients,
    batches_in_one_order,
    samples_that_count_twice,
    one_file_for_both,
)


if __name__ == "__main__":
    main(CASES)
