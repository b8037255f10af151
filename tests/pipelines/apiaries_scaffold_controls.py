"""Federated hive-state classifier over 8 apiaries, SCAFFOLD (option II).

Each apiary sees mostly two of the four hive states. Plain averaging drifts; SCAFFOLD adds
(c - c_i) to every local gradient. Half of the apiaries answer in a round. One worker model
is reused for all of them, its SGD is built anew for each visit (no momentum is wanted: the
control update divides by K * lr).
"""
import argparse
import logging

import torch
import torch.nn as nn
import torch.nn.functional as F

log = logging.getLogger("apiaries")
STATES = ["calm", "swarming", "queenless", "robbed"]
N_CLIENTS, PER_ROUND, LOCAL_STEPS, LOCAL_LR = 8, 4, 6, 0.1


def build():
    return nn.Sequential(
        nn.Linear(20, 48),
        nn.ReLU(),
        nn.Linear(48, 24),
        nn.ReLU(),
        nn.Linear(24, len(STATES)),
    )


class World:
    """Sound-band features of hives; a shared nonlinear rule with client-specific state mix."""

    def __init__(self, seed=0):
        self.g = torch.Generator().manual_seed(seed)
        self.centres = torch.randn(len(STATES), 20, generator=self.g) * 0.75
        self.bend = torch.randn(20, 20, generator=self.g) / 20**0.5

    def draw(self, n, mix):
        y = torch.multinomial(mix, n, replacement=True, generator=self.g)
        z = self.centres[y] + 0.8 * torch.randn(n, 20, generator=self.g)
        return z + torch.tanh(z @ self.bend), y

    def apiary(self, i):
        mix = torch.full((len(STATES),), 0.06)
        mix[i % 4] += 0.5
        mix[(i + 1) % 4] += 0.26
        return self.draw(240, mix)


class Apiary:
    def __init__(self, data, template):
        self.x, self.y = data
        self.control = [torch.zeros_like(p) for p in template.parameters()]

    def visit(self, worker, server_weights, server_control, gen):
        """Returns the change of the weights, of the control, and the mean local loss."""
        with torch.no_grad():
            for p, w in zip(worker.parameters(), server_weights):
                p.copy_(w)
        opt = torch.optim.SGD(worker.parameters(), lr=LOCAL_LR)
        order = torch.randperm(len(self.x), generator=gen)
        total = 0.0
        for idx in order.chunk(LOCAL_STEPS):
            opt.zero_grad()
            loss = F.cross_entropy(worker(self.x[idx]), self.y[idx])
            loss.backward()
            for p, c, ci in zip(worker.parameters(), server_control, self.control):
                p.grad.add_(c - ci)
            opt.step()
            total += loss.item()
        with torch.no_grad():
            dw = [p - w for p, w in zip(worker.parameters(), server_weights)]
            new = [
                ci - c - d / (LOCAL_STEPS * LOCAL_LR)
                for ci, c, d in zip(self.control, server_control, dw)
            ]
            dc = [n - ci for n, ci in zip(new, self.control)]
        self.control = new
        return dw, dc, total / LOCAL_STEPS


class Server:
    def __init__(self, seed=0):
        torch.manual_seed(seed)
        self.model = build()
        self.control = [torch.zeros_like(p) for p in self.model.parameters()]

    @torch.no_grad()
    def merge(self, answers):
        m = len(answers)
        for p, *deltas in zip(self.model.parameters(), *(a[0] for a in answers)):
            p.add_(torch.stack(deltas).mean(0))
        for c, *deltas in zip(self.control, *(a[1] for a in answers)):
            c.add_(torch.stack(deltas).mean(0), alpha=m / N_CLIENTS)

    @torch.no_grad()
    def evaluate(self, x, y):
        out = self.model(x)
        acc = (out.argmax(1) == y).float()
        per_state = [acc[y == k].mean().item() for k in range(len(STATES))]
        return F.cross_entropy(out, y).item(), acc.mean().item(), per_state


def main(rounds):
    world = World(seed=2)
    server = Server(seed=1)
    worker = build()
    apiaries = [Apiary(world.apiary(i), server.model) for i in range(N_CLIENTS)]
    xt, yt = world.draw(1200, torch.full((len(STATES),), 0.25))
    gen = torch.Generator().manual_seed(77)

    first = server.evaluate(xt, yt)
    log.info("round   0  test loss %.3f  acc %.3f", first[0], first[1])
    visits = [0] * N_CLIENTS
    for rnd in range(1, rounds + 1):
        weights = [p.detach().clone() for p in server.model.parameters()]
        control = [c.clone() for c in server.control]
        chosen = torch.randperm(N_CLIENTS, generator=gen)[:PER_ROUND].tolist()
        answers = []
        for i in chosen:
            visits[i] += 1
            answers.append(apiaries[i].visit(worker, weights, control, gen))
        server.merge(answers)
        if rnd % 10 == 0:
            loss, acc, per_state = server.evaluate(xt, yt)
            log.info(
                "round %3d  local %.3f  test loss %.3f  acc %.3f  [%s]",
                rnd,
                sum(a[2] for a in answers) / PER_ROUND,
                loss,
                acc,
                " ".join(f"{s} {v:.2f}" for s, v in zip(STATES, per_state)),
            )

    # SCAFFOLD's invariant: the server control is the mean of all client controls.
    for k, c in enumerate(server.control):
        mean = torch.stack([a.control[k] for a in apiaries]).mean(0)
        assert torch.allclose(c, mean, atol=1e-4), f"control {k} drifted"
    loss, acc, per_state = server.evaluate(xt, yt)
    log.info("visits per apiary: %s", visits)
    if rounds >= 40:
        assert min(visits) > 0
        assert loss < 0.6 * first[0] and acc > 0.75 and min(per_state) > 0.6, (
            loss,
            acc,
        )
    log.info("final test loss %.3f acc %.3f", loss, acc)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(name)s | %(message)s")
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=60, help="communication rounds")
    main(ap.parse_args().steps)
