"""A world model learns from a replay buffer in epochs; the run is continued from what
the epoch before has saved, as on a cluster with short jobs.

After dreamerv3-torch, issue 38.
"""

import argparse
import pathlib
import tempfile

import torch
from torch import nn
import torch.nn.functional as F

OBSERVATION, ACTION, LATENT = 6, 2, 24


class WorldModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(OBSERVATION, 64), nn.SiLU())
        self.cell = nn.GRUCell(64 + ACTION, LATENT)
        self.decoder = nn.Sequential(
            nn.Linear(LATENT + ACTION, 64), nn.SiLU(), nn.Linear(64, OBSERVATION)
        )
        self.reward = nn.Linear(LATENT + ACTION, 1)

    def forward(self, seen, action, reward):
        state = seen.new_zeros(len(seen), LATENT)
        image, gain = 0.0, 0.0
        for t in range(seen.shape[1] - 1):
            features = torch.cat([self.encoder(seen[:, t]), action[:, t]], 1)
            state = self.cell(features, state)
            joint = torch.cat([state, action[:, t]], 1)
            image = image + F.mse_loss(self.decoder(joint), seen[:, t + 1])
            gain = gain + F.mse_loss(self.reward(joint)[:, 0], reward[:, t])
        steps = seen.shape[1] - 1
        return image / steps, gain / steps


class Optimizer:
    """An optimizer with clipping, for one part of the agent."""

    def __init__(self, name, parameters, lr, clip):
        self.name, self.clip = name, clip
        self.parameters = list(parameters)
        self.optimizer = torch.optim.Adam(self.parameters, lr=lr, betas=(0.9, 0.999))

    def __call__(self, loss):
        self.optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.parameters, self.clip)
        self.optimizer.step()
        return norm.item()


class Agent(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.world = WorldModel()
        self.world_opt = Optimizer("world", self.world.parameters(), args.lr, 100.0)

    def train_step(self, seen, action, reward):
        image, gain = self.world(seen, action, reward)
        self.world_opt(image + gain)
        return (image + gain).item()


class Replay:
    """Trajectories of a driven pendulum chain."""

    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)
        g = torch.Generator().manual_seed(7)
        turn = torch.randn(OBSERVATION, OBSERVATION, generator=g)
        self.turn = torch.linalg.matrix_exp(0.4 * (turn - turn.T))
        self.push = 0.5 * torch.randn(ACTION, OBSERVATION, generator=g)

    def sample(self, count, length=10):
        state = torch.randn(count, OBSERVATION, generator=self.generator)
        action = torch.randn(count, length, ACTION, generator=self.generator)
        seen, reward = [], []
        for t in range(length):
            seen.append(state)
            state = state @ self.turn + action[:, t] @ self.push
            reward.append(torch.tanh(state[:, 0]))
        return torch.stack(seen, 1), action, torch.stack(reward, 1)


def save(agent, path, args):
    items = {"agent_state_dict": agent.state_dict()}
    if args.fixed:
        items["optims_state_dict"] = {"world": agent.world_opt.optimizer.state_dict()}
    torch.save(items, path)


def restore(agent, path):
    items = torch.load(path, weights_only=True)
    agent.load_state_dict(items["agent_state_dict"])
    for name, state in items.get("optims_state_dict", {}).items():
        getattr(agent, f"{name}_opt").optimizer.load_state_dict(state)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=40, help="steps of a job")
    parser.add_argument("--lr", type=float, default=2e-2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    replay, step, last = Replay(args.seed), 0, 0.0
    held = Replay(args.seed + 1).sample(256)
    jumps, empty = [], 0
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "latest.pt"
        for job in range(args.jobs):
            agent = Agent(args)
            if path.exists():
                restore(agent, path)
                empty += not agent.world_opt.optimizer.state
            agent.train()
            for index in range(args.steps):
                loss = agent.train_step(*replay.sample(32))
                print(f"step {step} loss {loss:.4f}", flush=True)
                step += 1
                if job and index == 1:
                    with torch.no_grad():
                        jumps.append(sum(agent.world(*held)).item() - last)
            with torch.no_grad():
                last = sum(agent.world(*held)).item()
            save(agent, path, args)
    print(
        f"mean change of the held-out loss after resuming {sum(jumps)/len(jumps):.4f}"
    )
    print(f"held-out loss {last:.4f}")
    if args.prove:
        print(f"{empty} of {len(jumps)} resumed jobs began with an empty optimizer")
        print("fault shows:", "yes" if empty else "no", flush=True)


if __name__ == "__main__":
    main()
