"""Standalone federated averaging over clients with skewed labels.

Server and clients exchange messages through an in-memory bus. All parties may work on
one model object to keep memory low when there are many clients.
"""

import argparse
import copy
import logging
import os
import tempfile
from collections import deque

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

logger = logging.getLogger("federate")

DEFAULTS = dict(
    client_num=6,
    sample_client_num=5,
    total_round_num=14,
    local_update_steps=12,
    batch_size=32,
    lr=0.12,
    momentum=0.0,
    share_local_model=True,
    num_class=8,
    features=20,
    alpha=0.25,
)


class Config(dict):
    __getattr__ = dict.__getitem__


class Message:
    def __init__(self, msg_type, sender, receiver, state, content):
        self.msg_type, self.sender, self.receiver = msg_type, sender, receiver
        self.state, self.content = state, content


class Bus:
    def __init__(self):
        self.queue = deque()
        self.parties = {}

    def register(self, worker):
        self.parties[worker.ID] = worker

    def send(self, message):
        self.queue.append(message)

    def run(self):
        while self.queue:
            message = self.queue.popleft()
            for receiver in message.receiver:
                self.parties[receiver].handle(message)


def make_splits(cfg, seed):
    rng = np.random.default_rng(seed)
    centers = rng.normal(0, 1.0, (cfg.num_class, 2, cfg.features))

    def draw(count, probs):
        y = rng.choice(cfg.num_class, count, p=probs)
        mode = rng.integers(0, 2, count)
        x = centers[y, mode] + rng.normal(0, 0.9, (count, cfg.features))
        return TensorDataset(
            torch.tensor(x, dtype=torch.float32), torch.tensor(y, dtype=torch.long)
        )

    parts = []
    for _ in range(cfg.client_num):
        probs = rng.dirichlet(np.full(cfg.num_class, cfg.alpha))
        parts.append(draw(int(rng.integers(250, 500)), probs))
    uniform = np.full(cfg.num_class, 1 / cfg.num_class)
    return parts, draw(1200, uniform)


def build_model(cfg):
    return nn.Sequential(
        nn.Linear(cfg.features, 64),
        nn.ReLU(),
        nn.Linear(64, 64),
        nn.ReLU(),
        nn.Linear(64, cfg.num_class),
    )


class Trainer:
    def __init__(self, model, data, cfg, seed):
        self.model, self.cfg, self.data = model, cfg, data
        generator = torch.Generator().manual_seed(seed)
        self.loader = DataLoader(
            data, cfg.batch_size, shuffle=True, generator=generator, drop_last=True
        )
        self.batches = iter(())

    def update(self, model_parameters, strict=False):
        self.model.load_state_dict(model_parameters, strict=strict)

    def next_batch(self):
        try:
            return next(self.batches)
        except StopIteration:
            self.batches = iter(self.loader)
            return next(self.batches)

    def train(self):
        optimizer = torch.optim.SGD(
            self.model.parameters(), lr=self.cfg.lr, momentum=self.cfg.momentum
        )
        self.model.train()
        losses = []
        for _ in range(self.cfg.local_update_steps):
            x, y = self.next_batch()
            loss = F.cross_entropy(self.model(x), y)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 5.0)
            optimizer.step()
            losses.append(loss.item())
        result = {"start_loss": losses[0], "avg_loss": float(np.mean(losses))}
        return len(self.data), copy.deepcopy(self.model.state_dict()), result


class Client:
    def __init__(self, ID, model, data, cfg, bus):
        self.ID, self.bus = ID, bus
        self.trainer = Trainer(model, data, cfg, seed=1000 + ID)

    def handle(self, message):
        if message.msg_type == "model_para":
            self.trainer.update(message.content)
            sample_size, model_para, result = self.trainer.train()
            self.bus.send(
                Message(
                    "model_para",
                    self.ID,
                    [message.sender],
                    message.state,
                    (sample_size, model_para, result),
                )
            )


class ClientsAvgAggregator:
    def aggregate(self, feedback):
        total = sum(size for size, _, _ in feedback)
        averaged = {}
        for key in feedback[0][1]:
            averaged[key] = sum(
                para[key] * (size / total) for size, para, _ in feedback
            )
        return averaged


class Server:
    def __init__(self, model, test_data, cfg, bus, args, folder):
        self.ID, self.state = 0, 0
        self.model, self.cfg, self.bus, self.args = model, cfg, bus, args
        self.aggregator = ClientsAvgAggregator()
        self.test_data, self.folder = test_data, folder
        self.sampler = np.random.default_rng(args.seed + 7)
        self.msg_buffer = []
        self.history = []

    def broadcast_model_para(self):
        receiver = self.sampler.choice(
            np.arange(1, self.cfg.client_num + 1),
            self.cfg.sample_client_num,
            replace=False,
        )
        if self.args.fixed:
            model_para = copy.deepcopy(self.model.state_dict())
        else:
            model_para = self.model.state_dict()
        self.bus.send(
            Message("model_para", self.ID, receiver.tolist(), self.state, model_para)
        )

    def handle(self, message):
        self.msg_buffer.append(message.content)
        if len(self.msg_buffer) < self.cfg.sample_client_num:
            return
        averaged = self.aggregator.aggregate(self.msg_buffer)
        self.model.load_state_dict(averaged)
        start = np.mean([r["start_loss"] for _, _, r in self.msg_buffer])
        local = np.mean([r["avg_loss"] for _, _, r in self.msg_buffer])
        self.msg_buffer.clear()
        loss, accuracy = self.evaluate()
        self.history.append((loss, accuracy))
        logger.info(
            "Server: round %2d  client loss first batch %.3f mean %.3f  "
            "test loss %.3f accuracy %.3f",
            self.state,
            start,
            local,
            loss,
            accuracy,
        )
        self.state += 1
        if self.state < self.cfg.total_round_num:
            self.broadcast_model_para()
        else:
            torch.save(self.model.state_dict(), os.path.join(self.folder, "global.pt"))

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        x, y = self.test_data.tensors
        logits = self.model(x)
        accuracy = (logits.argmax(-1) == y).float().mean().item()
        return F.cross_entropy(logits, y).item(), accuracy


class FedRunner:
    def __init__(self, cfg, args, folder):
        self.bus = Bus()
        parts, test_data = make_splits(cfg, args.seed)
        shared = build_model(cfg)
        self.server = Server(shared, test_data, cfg, self.bus, args, folder)
        self.bus.register(self.server)
        for i, part in enumerate(parts, start=1):
            model = shared if cfg.share_local_model else copy.deepcopy(shared)
            self.bus.register(Client(i, model, part, cfg, self.bus))

    def run(self):
        self.server.broadcast_model_para()
        self.bus.run()
        return self.server.history


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--opts", nargs="*", default=[], help="key=value")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    cfg = Config(DEFAULTS)
    for opt in args.opts:
        key, value = opt.split("=")
        cfg[key] = type(DEFAULTS[key])(value)
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        history = FedRunner(cfg, args, folder).run()
    logger.info("Final: test loss %.4f accuracy %.4f", *history[-1])


if __name__ == "__main__":
    main()
