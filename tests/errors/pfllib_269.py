"""Federated training of a bearing-condition classifier over several plants.

Every plant keeps its own vibration windows.  The server picks the plants of a
round, sends the current model, collects the locally trained ones and averages
them by number of samples.
"""
import argparse
import copy
import os
import tempfile

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

N_CLASSES = 4
WINDOW = 64


def make_windows(rng, n, gain, offset):
    t = np.arange(WINDOW) / WINDOW
    y = rng.integers(0, N_CLASSES, n)
    base = np.array([3.0, 5.0, 8.0, 12.0])[y]
    phase = rng.uniform(0, 2 * np.pi, n)
    x = np.sin(2 * np.pi * base[:, None] * t + phase[:, None])
    x += 0.4 * np.sin(2 * np.pi * 2 * base[:, None] * t + 2 * phase[:, None])
    x += rng.normal(0, 0.6, x.shape)
    x = gain * x + offset
    return (
        torch.tensor(x[:, None, :], dtype=torch.float32),
        torch.tensor(y, dtype=torch.long),
    )


class VibrationNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv1d(1, 16, 9, padding=4)
        self.bn1 = nn.BatchNorm1d(16)
        self.conv2 = nn.Conv1d(16, 32, 5, stride=2, padding=2)
        self.bn2 = nn.BatchNorm1d(32)
        self.fc = nn.Linear(32, N_CLASSES)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.relu(self.bn2(self.conv2(x)))
        return self.fc(x.mean(dim=2))


class Client:
    def __init__(self, cid, model, data, args):
        self.id = cid
        self.model = copy.deepcopy(model)
        self.train_samples = len(data[1])
        self.loader = DataLoader(
            TensorDataset(*data),
            batch_size=args.batch_size,
            shuffle=True,
            drop_last=True,
            generator=torch.Generator().manual_seed(args.seed + cid),
        )
        self.optimizer = torch.optim.SGD(
            self.model.parameters(), lr=args.local_learning_rate
        )

    def set_parameters(self, global_model):
        self.model.load_state_dict(global_model.state_dict())

    def train(self, local_epochs):
        self.model.train()
        total, seen = 0.0, 0
        for _ in range(local_epochs):
            for x, y in self.loader:
                loss = F.cross_entropy(self.model(x), y)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                total += loss.item() * len(y)
                seen += len(y)
        return total / seen


class FedAvgServer:
    def __init__(self, model, clients, test_data, args):
        self.global_model = model
        self.clients = clients
        self.test_data = test_data
        self.args = args
        self.rng = np.random.default_rng(args.seed)
        self.uploaded_models = []
        self.uploaded_weights = []

    def select_clients(self):
        n = max(2, int(self.args.join_ratio * len(self.clients)))
        return list(self.rng.choice(self.clients, n, replace=False))

    def receive_models(self, selected):
        total = sum(c.train_samples for c in selected)
        self.uploaded_weights = [c.train_samples / total for c in selected]
        self.uploaded_models = [c.model for c in selected]

    @torch.no_grad()
    def aggregate_parameters(self):
        self.global_model = copy.deepcopy(self.uploaded_models[0])
        for param in self.global_model.parameters():
            param.zero_()
        for w, client_model in zip(self.uploaded_weights, self.uploaded_models):
            for gp, cp in zip(
                self.global_model.parameters(), client_model.parameters()
            ):
                gp.add_(cp, alpha=w)
        if self.args.fixed:
            self.aggregate_buffers()

    def aggregate_buffers(self):
        states = [dict(m.named_buffers()) for m in self.uploaded_models]
        for name, buf in self.global_model.named_buffers():
            if buf.is_floating_point():
                pairs = zip(self.uploaded_weights, states)
                buf.copy_(sum(w * s[name] for w, s in pairs))
            else:
                buf.copy_(max(s[name] for s in states))

    @torch.no_grad()
    def evaluate(self):
        self.global_model.eval()
        x, y = self.test_data
        logits = self.global_model(x)
        acc = (logits.argmax(1) == y).float().mean().item()
        return F.cross_entropy(logits, y).item(), acc

    def train(self, out_dir):
        best = 0.0
        for rnd in range(self.args.rounds):
            selected = self.select_clients()
            losses = []
            for client in selected:
                client.set_parameters(self.global_model)
                losses.append(client.train(self.args.local_epochs))
            self.receive_models(selected)
            self.aggregate_parameters()
            path = os.path.join(out_dir, f"server_round_{rnd:03d}.pt")
            torch.save(self.global_model.state_dict(), path)
            test_loss, acc = self.evaluate()
            best = max(best, acc)
            print(
                f"round {rnd:2d}  local loss {np.mean(losses):.4f}  "
                f"test loss {test_loss:.4f}  test acc {acc:.3f}"
            )
        print(f"best test accuracy {best:.3f}")


def prove(server):
    """Largest distance between the server's statistics and the clients' mean."""
    worst = 0.0
    states = [dict(m.named_buffers()) for m in server.uploaded_models]
    for name, buf in server.global_model.named_buffers():
        if buf.is_floating_point():
            mean = sum(w * s[name] for w, s in zip(server.uploaded_weights, states))
            gap = (buf - mean).abs().max() / mean.abs().max().clamp_min(1e-8)
            worst = max(worst, gap.item())
    print(f"relative gap of running statistics: {worst:.4f}")
    print("fault shows:", "yes" if worst > 1e-3 else "no")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", dest="rounds", type=int, default=12)
    parser.add_argument("--local_epochs", type=int, default=1)
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--local_learning_rate", type=float, default=0.05)
    parser.add_argument("--join_ratio", type=float, default=0.7)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed)
    plants = [(1.0, 0.0), (1.2, 0.2), (0.8, -0.2), (1.1, 0.4), (0.9, -0.4), (1.3, 0.1)]
    sizes = [480, 640, 384, 800, 512, 448]
    model = VibrationNet()
    clients, held_out = [], []
    for cid, ((gain, offset), n) in enumerate(zip(plants, sizes)):
        clients.append(Client(cid, model, make_windows(rng, n, gain, offset), args))
        held_out.append(make_windows(rng, n // 4, gain, offset))
    test_data = tuple(torch.cat(parts) for parts in zip(*held_out))

    server = FedAvgServer(model, clients, test_data, args)
    with tempfile.TemporaryDirectory() as out_dir:
        server.train(out_dir)
    if args.prove:
        prove(server)


if __name__ == "__main__":
    main()
