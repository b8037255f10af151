"""Right programs that come close to the mistakes of built_in_inputs.py.

    built_in_near_inputs.py [CASE...]
"""

import copy

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils.data import Subset, TensorDataset

from built_in_inputs import STEPS, Blobs, balanced_batches, fit, fit_balanced, overlap
from built_in_inputs import fit_nodes, nodes, padded_texts, reader, regression
from built_in_inputs import text_batches, train_adversaries
from built_in_near import main
from built_in_outputs import layers
from built_in_signs import CLASSES


def lengths_of_other_texts() -> None:
    """Packed in any order, and without the last token of each text."""
    (words, layer, head), optimizer = reader()
    for step in range(STEPS):
        lengths = torch.tensor([3, 7, 5, 2, 6, 4])
        ids = padded_texts(lengths)
        vectors = F.dropout(words(ids), 0.1).transpose(0, 1)
        kept = lengths - step % 2
        packed = pack_padded_sequence(vectors, kept, enforce_sorted=False)
        optimizer.zero_grad()
        F.cross_entropy(head(layer(packed)[1][0]), ids[:, 0] % 2).backward()
        optimizer.step()


def labels_of_other_texts() -> None:
    """States are put back in the order of the labels."""
    (words, layer, head), optimizer = reader()
    for rows, sizes, y in text_batches():
        order = sizes.argsort(descending=True)
        vectors = words(rows[order]).transpose(0, 1)
        state = layer(pack_padded_sequence(vectors, sizes[order]))[1][0]
        optimizer.zero_grad()
        F.cross_entropy(head(state[order.argsort()]), y).backward()
        optimizer.step()


def weights_of_frequent_classes() -> None:
    """Two labels, each weighed by what it lacks; classes that are as frequent."""
    model, optimizer = layers(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, CLASSES))
    labels = (torch.rand(48, CLASSES) < torch.tensor([0.1, 0.2, 0.5, 0.8])).float()
    rare = (1 - labels).sum(0) / labels.sum(0)
    costs, y = torch.tensor([1.0, 2.0, 4.0, 8.0]), torch.arange(48) % CLASSES
    for _ in range(STEPS):
        scores = model(torch.randn(48, 8))
        optimizer.zero_grad()
        loss = F.binary_cross_entropy_with_logits(scores, labels, pos_weight=rare)
        (loss + F.cross_entropy(scores, y, weight=costs)).backward()
        optimizer.step()


def classes_balanced_twice() -> None:
    """Drawn equally often, with the costs of mistakes in the loss."""
    loader, _ = balanced_batches()
    fit_balanced(loader, torch.tensor([1.0, 1.0, 2.0, 4.0]))


def penalty_without_a_graph() -> None:
    """Inputs that are made harder, and a penalty of weights."""
    model, optimizer = layers(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, CLASSES))
    for step in range(STEPS):
        x = torch.randn(16, 8, requires_grad=True)
        y = torch.randint(0, CLASSES, (16,))
        [slope] = torch.autograd.grad(F.cross_entropy(model(x), y), x)
        harder = x.detach() + 0.1 * slope.sign()
        decay = sum(weight.square().sum() for weight in model.parameters())
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y) + F.cross_entropy(model(harder), y)
        (loss + 1e-4 * decay).backward()
        optimizer.step()


def pictures_of_bytes() -> None:
    """A BatchNorm scales them; and few whole numbers, as counts are."""
    model, optimizer = layers(
        nn.BatchNorm2d(3), nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(144, CLASSES)
    )
    counts, of_counts = layers(nn.Linear(8, CLASSES))
    for _ in range(STEPS):
        y = torch.randint(0, CLASSES, (16,))
        optimizer.zero_grad()
        x = torch.randint(0, 256, (16, 3, 8, 8)).float()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        of_counts.zero_grad()
        x = torch.randint(0, 20, (16, 8)).float()
        F.cross_entropy(counts(x), y).backward()
        of_counts.step()


def overlap_of_scores() -> None:
    """Several classes, of a softmax that is resized; and a mean within a mask."""
    model, optimizer = layers(nn.Conv2d(1, CLASSES, 3, padding=1))
    for _ in range(STEPS):
        x = torch.randn(8, 1, 8, 8)
        mask = (x > 0.5).float()
        scores = model(F.avg_pool2d(x, 2))
        shares = F.interpolate(scores.softmax(1), scale_factor=2)
        within = (scores[:, :1] * mask[:, :, ::2, ::2]).sum() / mask.sum()
        optimizer.zero_grad()
        (overlap(shares, mask.expand_as(shares)) + within.square()).backward()
        optimizer.step()


def mean_over_classes() -> None:
    """Added up over the classes first; and the mean of each class on its own."""
    model, optimizer = layers(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, CLASSES))
    for _ in range(STEPS):
        shares = torch.rand(16, CLASSES).softmax(1)
        logarithms = F.log_softmax(model(torch.randn(16, 8)), 1)
        divergence = F.kl_div(logarithms, shares, reduction="none")
        entropy = -(shares * logarithms).mean(0).sum()
        optimizer.zero_grad()
        (divergence.sum(1).mean() + entropy).backward()
        optimizer.step()


def two_schedules_for_one() -> None:
    """A schedule in two parts, and a critic whose rate stays."""
    generator, of_generator = regression(8)
    critic, of_critic = layers(nn.Linear(1, 1))
    rises = torch.optim.lr_scheduler.LinearLR(of_generator, 0.5, 1.0, 2)
    falls = torch.optim.lr_scheduler.LinearLR(of_generator, 1.0, 0.1, 4)
    schedule = torch.optim.lr_scheduler.SequentialLR(of_generator, [rises, falls], [2])
    train_adversaries(generator, of_generator, critic, of_critic, [schedule])


def copy_that_stands_still() -> None:
    """The best network so far, which takes the weights over now and then; a teacher."""
    model, optimizer = regression(8)
    teacher, best = copy.deepcopy(model).eval(), copy.deepcopy(model)
    x = torch.randn(80, 8)
    data = TensorDataset(x, x.sum(1, keepdim=True))
    train, held_out = Subset(data, range(48)), Subset(data, range(48, 80))
    for _ in range(4):
        best.load_state_dict(model.state_dict())
        fit(model, optimizer, train, held_out, best, epochs=1)
        for rows in x[:48].split(16):
            with torch.no_grad():
                target = teacher(rows)
            optimizer.zero_grad()
            F.mse_loss(model(rows), target + rows.sum(1, keepdim=True)).backward()
            optimizer.step()


def windows_of_one_series() -> None:
    """Windows that do not overlap, drawn at random; and how well the training fits."""
    windows = torch.randn(128 * 13).cumsum(0).unfold(0, 13, 13)
    data = TensorDataset(windows[:, :12], windows[:, 12:])
    order = torch.randperm(128).tolist()
    model, optimizer = regression(12)
    train = Subset(data, order[:96])
    fit(model, optimizer, train, Subset(data, order[96:]))
    fit(model, optimizer, train, train)


def scaled_before_the_split() -> None:
    """Rows that are about 0 by nature; and each row by itself."""
    rows, target = torch.randn(96, 6), torch.randn(96, 1)
    alone = F.layer_norm(rows, (6,))
    for table in (rows, alone):
        data = TensorDataset(table, target)
        fit(*regression(6), Subset(data, range(64)), Subset(data, range(64, 96)))


def masks_left_behind() -> None:
    """Both are turned by one draw; and pictures are flipped that have nothing in common
    with what is multiplied with them."""

    def turned(picture, mask):
        times = int(torch.randint(4, ()))
        return torch.rot90(picture, times, (1, 2)), torch.rot90(mask, times, (1, 2))

    def network():
        return layers(nn.Conv2d(1, 4, 3, padding=1), nn.Tanh(), nn.Conv2d(4, 1, 1))

    fit(*network(), Blobs(48, turned))
    holes = Blobs(48, lambda picture, mask: (picture.flip(-1), mask))
    holes.masks = holes.masks[torch.randperm(48)]
    fit(*network(), holes)


def nodes_without_a_label() -> None:
    """Labels of nodes that are held out are hidden in the table itself."""
    data = nodes()
    known = data["y"].clone()
    data["y"][~data["train_mask"]] = -100
    fit_nodes(data, lambda out, y: F.cross_entropy(out, y, ignore_index=-100))
    data["y"] = known


def groups_of_all_nodes() -> None:
    """All nodes learn the group that they are in, which is not what is tested."""
    data = nodes()
    groups = torch.arange(60) % CLASSES
    fit_nodes(data, lambda out, _: F.cross_entropy(out, groups))


def numbers_beside_the_loss() -> None:
    """A number divides a term, another one is shown, and a constant is added."""
    model, optimizer = layers(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, CLASSES))
    shown = 0.0
    for _ in range(STEPS):
        x, y = torch.randn(16, 8), torch.randint(CLASSES, (16,))
        out = model(x)
        size = out.square().mean()
        loss = F.cross_entropy(out, y) + size / size.item() + 1e-8
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        shown = loss + size.item()
    assert shown > 0


CASES = (
    lengths_of_other_texts,
    labels_of_other_texts,
    weights_of_frequent_classes,
    classes_balanced_twice,
    penalty_without_a_graph,
    pictures_of_bytes,
    overlap_of_scores,
    mean_over_classes,
    two_schedules_for_one,
    copy_that_stands_still,
    windows_of_one_series,
    scaled_before_the_split,
    masks_left_behind,
    nodes_without_a_label,
    groups_of_all_nodes,
    numbers_beside_the_loss,
)


if __name__ == "__main__":
    main(CASES)
