"""Small trainings, each with one mistake that nothing complains of, or without.

    built_in.py [--right] [CASE...]

With several cases one process makes them one after the other.
"""

import argparse
import copy
import os
import tempfile
import threading

import numpy
import torch
from torch import nn
from torch.nn import functional as F

STEPS = 8


class Net(nn.Module):
    """Two layers with dropout between them."""

    def __init__(self, cut: bool = False, functional: bool | None = None):
        super().__init__()
        self.body = nn.Linear(8, 16)
        self.drop = nn.Dropout(0.2)
        self.head = nn.Linear(16, 1)
        self.cut = cut
        self.functional = functional

    def forward(self, x):
        hidden = torch.relu(self.body(x))
        if self.cut:
            hidden = hidden.detach()
        if self.functional is None:
            hidden = self.drop(hidden)
        else:
            training = self.training if self.functional else True
            hidden = F.dropout(hidden, 0.2, training=training)
        return self.head(hidden)


def batches(count: int = STEPS):
    for _ in range(count):
        x = torch.randn(16, 8)
        yield x, x.sum(1, keepdim=True)


def step(model, optimizer, x, y, loss=F.mse_loss) -> None:
    optimizer.zero_grad()
    loss(model(x), y).backward()
    optimizer.step()


def train(model, optimizer, count: int = STEPS) -> None:
    for x, y in batches(count):
        step(model, optimizer, x, y)


def evaluate(model) -> None:
    model.eval()
    with torch.no_grad():
        for x, y in batches(2):
            F.mse_loss(model(x), y)


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.05)


def copied_parameters(right: bool) -> None:
    """The optimizer has copies of the parameters."""
    model = Net()
    held = model if right else copy.deepcopy(model)
    train(model, torch.optim.SGD(held.parameters(), lr=0.05))


def replaced_parameter(right: bool) -> None:
    """The head is replaced after the optimizer was made."""
    model = Net()
    optimizer = None if right else sgd(model)
    model.head = nn.Linear(16, 1)
    train(model, optimizer or sgd(model))


def frozen_parameters(right: bool) -> None:
    """All that the optimizer has is frozen."""
    model = Net()
    for parameter in model.body.parameters():
        parameter.requires_grad_(False)
    held = model.head if right else model.body
    train(model, torch.optim.SGD(held.parameters(), lr=0.05))


def cut_gradient(right: bool) -> None:
    """The first layer is called and gets no gradient."""
    model = Net(cut=not right)
    train(model, sgd(model))


def no_backward(right: bool) -> None:
    """From the fourth step on nobody calls backward."""
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for number, (x, y) in enumerate(batches()):
        if right or number < 3:
            step(model, optimizer, x, y)
        else:
            F.mse_loss(model(x), y)
            optimizer.step()


def cleared_gradient(right: bool) -> None:
    """Gradients are cleared between backward and step."""
    model = Net()
    optimizer = sgd(model)
    for x, y in batches():
        F.mse_loss(model(x), y).backward()
        if right:
            optimizer.step()
        optimizer.zero_grad()
        if not right:
            optimizer.step()


def left_in_evaluation(right: bool) -> None:
    """After an evaluation the training goes on in evaluation mode."""
    model = Net()
    optimizer = sgd(model)
    train(model, optimizer, 4)
    evaluate(model)
    if right:
        model.train()
    train(model, optimizer, 4)


def dropout_in_evaluation(right: bool) -> None:
    """Functional dropout that does not ask for the mode."""
    model = Net(functional=right)
    optimizer = sgd(model)
    train(model, optimizer, 4)
    evaluate(model)
    model.train()
    train(model, optimizer, 2)


def broadcast_loss(right: bool) -> None:
    """The target lacks a dimension that the prediction has."""
    model = Net()
    optimizer = sgd(model)
    for x, y in batches():
        step(model, optimizer, x, y if right else y.squeeze(1))


def _scaled_steps(clip, step_with) -> None:
    model = Net()
    optimizer = sgd(model)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    # More of them: the scaler's calls are recorded from when the daemon asks for them.
    for x, y in batches(4 * STEPS):
        optimizer.zero_grad()
        scaler.scale(F.mse_loss(model(x), y)).backward()
        clip(scaler, optimizer, model)
        step_with(scaler, optimizer)
        scaler.update()


def clipped_while_scaled(right: bool) -> None:
    """Gradients are clipped before the scale is taken out."""

    def clip(scaler, optimizer, model):
        if right:
            scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)

    _scaled_steps(clip, lambda scaler, optimizer: scaler.step(optimizer))


def stepped_while_scaled(right: bool) -> None:
    """The optimizer steps by itself, past the scaler."""
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for x, y in batches():
        optimizer.zero_grad()
        scaler.scale(F.mse_loss(model(x), y)).backward()
        if right:
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()


def _saved(change, strict: bool = True) -> None:
    model = Net()
    optimizer = sgd(model)
    train(model, optimizer, 3)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.pt")
        torch.save(change(model), path)
        train(model, optimizer, 2)
        model.load_state_dict(torch.load(path), strict=strict)
    train(model, optimizer, 2)


def saved_other_values(right: bool) -> None:
    """A tensor of the checkpoint is not what the model holds."""

    def change(model):
        state = {k: v.clone() for k, v in model.state_dict().items()}
        if not right:
            state["head.weight"] = torch.zeros_like(state["head.weight"])
        return state

    _saved(change)


def saved_in_part(right: bool) -> None:
    """The checkpoint lacks a module's bias; who wants no head leaves out all of it."""

    def change(model):
        left_out = "head." if right else "head.bias"
        state = model.state_dict().items()
        return {name: tensor for name, tensor in state if left_out not in name}

    _saved(change, strict=False)


def saved_without_a_head(right: bool) -> None:
    """A checkpoint with the optimizer's state, in two files or in one too few."""
    model = Net()
    optimizer = sgd(model)
    optimizer.param_groups[0]["momentum"] = 0.9
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(2):
            train(model, optimizer, 2)
            parts = {"head": {}, "body": {}}
            for name, tensor in model.state_dict().items():
                parts["head" if "head" in name else "body"][name] = tensor
            state = {"model": parts["body"], "optimizer": optimizer.state_dict()}
            torch.save(state, os.path.join(folder, "body.pt"))
            if right:
                torch.save(parts["head"], os.path.join(folder, "head.pt"))


def saved_once_more(right: bool) -> None:
    """Each file but the first holds what the first one held."""
    model = Net()
    optimizer = sgd(model)
    staged = None
    with tempfile.TemporaryDirectory() as folder:
        for number in range(4):
            train(model, optimizer, 2)
            state = model.state_dict()
            if right or staged is None:
                staged = torch.cat([value.flatten() for value in state.values()])
            torch.save({"flat": staged}, os.path.join(folder, f"{number}.pt"))


def saved_while_training(right: bool) -> None:
    """A thread writes the live tensors while the training goes on."""
    model = Net()
    optimizer = sgd(model)
    trained = threading.Event()
    with tempfile.TemporaryDirectory() as folder:

        def write(state):
            trained.wait()
            torch.save(state, os.path.join(folder, "model.pt"))

        train(model, optimizer, 2)
        writer = threading.Thread(target=write, args=(model.state_dict(),))
        writer.start()
        if not right:
            train(model, optimizer, 3)
        trained.set()
        writer.join()
        train(model, optimizer, 2)


def forgotten_moments(right: bool) -> None:
    """The optimizer's file is read on resume, and the optimizer never gets it."""
    model = Net()
    optimizer = torch.optim.Adam(model.parameters())
    train(model, optimizer, 3)
    with tempfile.TemporaryDirectory() as folder:
        weights = os.path.join(folder, "model.pt")
        moments = os.path.join(folder, "optimizer.pt")
        torch.save(model.state_dict(), weights)
        torch.save({"optimizer": optimizer.state_dict(), "step": 3}, moments)
        model = Net()
        optimizer = torch.optim.Adam(model.parameters())
        model.load_state_dict(torch.load(weights))
        state = torch.load(moments)
        if right:
            optimizer.load_state_dict(state["optimizer"])
    train(model, optimizer, 3)


class Drawn(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        x = torch.as_tensor(numpy.random.rand(8), dtype=torch.float32)
        return x, x.sum().unsqueeze(0)


def _numpy_seed(worker: int) -> None:
    numpy.random.seed(torch.initial_seed() % 2**32)


def _one_seed(worker: int) -> None:
    numpy.random.seed(7)


def one_seed(right: bool) -> None:
    """All workers of a loader draw the same numbers."""
    model = Net()
    optimizer = sgd(model)
    loader = torch.utils.data.DataLoader(
        Drawn(),
        batch_size=8,
        num_workers=2,
        worker_init_fn=_numpy_seed if right else _one_seed,
    )
    for x, y in loader:
        step(model, optimizer, x, y)


CASES = (
    copied_parameters,
    replaced_parameter,
    frozen_parameters,
    cut_gradient,
    no_backward,
    cleared_gradient,
    left_in_evaluation,
    dropout_in_evaluation,
    broadcast_loss,
    clipped_while_scaled,
    stepped_while_scaled,
    saved_other_values,
    saved_in_part,
    saved_without_a_head,
    saved_once_more,
    saved_while_training,
    forgotten_moments,
    one_seed,
)


def main() -> None:
    cases = {case.__name__: case for case in CASES}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--right", action="store_true")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    for name in arguments.cases or cases:
        cases[name](arguments.right)


if __name__ == "__main__":
    main()
