"""A training with a wrapper, autocast, a GradScaler, dropout, an embedding and a
checkpoint. Each option brings in one error."""

import argparse
import os
import tempfile

import torch
import torch.distributed as dist
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

ERRORS = (
    "bypass-wrapper",
    "clip-scaled",
    "step-scaled",
    "drop-in-evaluation",
    "fixed-order",
    "leave-loader",
    "nan-gradient",
    "decay",
    "initialise-again",
    "frozen-statistics",
    "statistics-stop",
    "outside-autocast",
    "own-memory",
    "broadcast-target",
    "steps-stop",
)


class OneOrder(torch.utils.data.Sampler):
    """Draws as if at random, and the same in each epoch."""

    def __init__(self, data):
        self.rows = len(data)

    def __iter__(self):
        generator = torch.Generator().manual_seed(3)
        return iter(torch.randperm(self.rows, generator=generator).tolist())

    def __len__(self):
        return self.rows


class Net(torch.nn.Module):
    def __init__(self, error):
        super().__init__()
        self.embed = torch.nn.Embedding(50, 8)
        self.hidden = torch.nn.Linear(8, 16)
        self.norm = torch.nn.BatchNorm1d(16)
        momentum = 0.0 if error == "frozen-statistics" else 0.1
        self.norm2 = torch.nn.BatchNorm1d(16, momentum=momentum)
        self.head = torch.nn.Linear(16, 2)
        self.always_drop = error == "drop-in-evaluation"

    def forward(self, x):
        x = self.norm2(torch.relu(self.norm(self.hidden(self.embed(x)))))
        x = functional.dropout(x, 0.5, training=self.training or self.always_drop)
        return self.head(x)


def batches(error):
    torch.manual_seed(1)
    # Rows 40 to 49 of the embedding are never looked up.
    data = TensorDataset(torch.randint(0, 40, (48,)), torch.randint(0, 2, (48,)))
    if error == "fixed-order":
        return DataLoader(data, batch_size=8, sampler=OneOrder(data))
    return DataLoader(data, batch_size=8, shuffle=True)


def resume(error, net):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "net.pt")
        torch.save(net.state_dict(), path)
        net.load_state_dict(torch.load(path, weights_only=True))
    if error == "initialise-again":
        torch.nn.init.normal_(net.head.weight)


def loss_of(error, outputs, y):
    # As a column, like the output; a row is compared with each of it.
    wanted = y.float() if error == "broadcast-target" else y.float()[:, None]
    return functional.cross_entropy(outputs, y) + functional.mse_loss(
        outputs[:, 1:], wanted
    )


def update(error, net, ddp, optimizer, scaler, x, y):
    optimizer.zero_grad()
    model = net if error == "bypass-wrapper" else ddp
    with torch.autocast("cpu", torch.bfloat16, enabled=error != "outside-autocast"):
        loss = loss_of(error, model(x), y)
    scaler.scale(loss).backward()
    if error == "clip-scaled":
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    scaler.unscale_(optimizer)
    if error != "clip-scaled":
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    if error == "nan-gradient":
        net.head.bias.grad[0] = float("nan")
    scaler.step(optimizer)
    scaler.update()


def only_backward(error, ddp, x, y):
    with torch.autocast("cpu", torch.bfloat16):
        loss = loss_of(error, ddp(x), y)
    loss.backward()


def update_scaled(net, ddp, optimizer, scaler, x, y):
    """The optimizer itself steps, with gradients as they come."""
    optimizer.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        loss = functional.cross_entropy(ddp(x), y)
    scaler.scale(loss).backward()
    optimizer.step()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--error", choices=ERRORS)
    error = parser.parse_args().error
    store = tempfile.NamedTemporaryFile()
    dist.init_process_group(
        "gloo", init_method=f"file://{store.name}", rank=0, world_size=1
    )
    torch.manual_seed(0)
    net = Net(error)
    if error != "own-memory":
        net.share_memory()
    ddp = DistributedDataParallel(net)
    decay = 0.1 if error == "decay" else 0.0
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, weight_decay=decay)
    if error != "frozen-statistics":
        resume(error, net)
    scaler = torch.amp.GradScaler("cpu", init_scale=128.0)
    loader = batches(error)
    for epoch in range(3):
        ddp.train()
        if error == "statistics-stop" and epoch > 0:
            net.norm2.eval()
        for number, (x, y) in enumerate(loader):
            if error == "steps-stop" and epoch > 0:
                only_backward(error, ddp, x, y)
            elif error == "step-scaled":
                update_scaled(net, ddp, optimizer, scaler, x, y)
            else:
                update(error, net, ddp, optimizer, scaler, x, y)
            if error == "leave-loader" and number == 4:
                break
        ddp.eval()
        with torch.no_grad():
            net(torch.arange(8))
    dist.destroy_process_group()


main()
