"""EASYRL-117: policy and target network of a double DQN are one and the same.

Source: https://github.com/datawhalechina/easy-rl/pull/117 (also
higgsfield/RL-Adventure#32). The agent keeps the model that it is given under two
names. What should stand still between two synchronisations moves with each step, and
load_state_dict copies the weights onto themselves. --fixed copies the model.
"""

import argparse
import collections
import copy
import random

import torch
from torch import nn

CFG = dict(gamma=0.9, lr=5e-3, batch_size=32, target_update=8, epsilon=0.3)
Transition = collections.namedtuple("Transition", "state action reward next done")


class Corridor:
    """Eleven cells; treasure at the right end, and a pit in the way to jump over."""

    cells, pit = 11, 6

    def reset(self):
        self.at, self.clock = 0, 0
        return self.observe()

    def observe(self):
        view = torch.zeros(self.cells)
        view[self.at] = 1.0
        return view

    def step(self, action):
        self.clock += 1
        self.at = min(max(self.at + (-1, 1, 2)[action], 0), self.cells - 1)
        if self.at == self.pit:
            return self.observe(), -1.0, True
        if self.at == self.cells - 1:
            return self.observe(), 1.0, True
        return self.observe(), -0.02, self.clock == 40


class DoubleDQN:
    def __init__(self, model, separate):
        self.policy_net = model
        if separate:
            self.target_net = copy.deepcopy(model)
        else:
            self.target_net = model
        self.optimizer = torch.optim.Adam(self.policy_net.parameters(), lr=CFG["lr"])
        self.memory = collections.deque(maxlen=2000)
        self.updates = 0

    @torch.no_grad()
    def choose_action(self, state):
        if random.random() < CFG["epsilon"]:
            return random.randrange(3)
        return int(self.policy_net(state).argmax())

    def update(self):
        batch = Transition(*zip(*random.sample(self.memory, CFG["batch_size"])))
        state, following = torch.stack(batch.state), torch.stack(batch.next)
        action = torch.tensor(batch.action).unsqueeze(1)
        reward, done = torch.tensor(batch.reward), torch.tensor(batch.done)
        value = self.policy_net(state).gather(1, action).squeeze(1)
        with torch.no_grad():
            best = self.policy_net(following).argmax(1, keepdim=True)
            ahead = self.target_net(following).gather(1, best).squeeze(1)
            expected = reward + CFG["gamma"] * ahead * (~done)
        loss = nn.functional.smooth_l1_loss(value, expected)
        self.optimizer.zero_grad()
        loss.backward()
        for parameter in self.policy_net.parameters():
            parameter.grad.clamp_(-1, 1)
        self.optimizer.step()
        self.updates += 1
        return loss.item()

    def synchronise(self):
        self.target_net.load_state_dict(self.policy_net.state_dict())


def distance(one, other):
    pairs = zip(one.parameters(), other.parameters())
    return max((a - b).abs().max().item() for a, b in pairs)


def train(agent, env, steps):
    """Two steps in the corridor for each update. Yields after each update."""
    state, walked = env.reset(), 0
    while agent.updates < steps:
        action = agent.choose_action(state)
        following, reward, done = env.step(action)
        agent.memory.append(Transition(state, action, reward, following, done))
        state, walked = (env.reset() if done else following), walked + 1
        if walked < 80 or walked % 2:
            continue
        loss = agent.update()
        print(f"update {agent.updates - 1} td-loss {loss:.5f}", flush=True)
        yield distance(agent.policy_net, agent.target_net)
        if agent.updates % CFG["target_update"] == 0:
            agent.synchronise()


def main():
    cli = argparse.ArgumentParser(description="double DQN in a corridor")
    cli.add_argument("--steps", type=int, default=24)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    options = cli.parse_args()
    torch.set_num_threads(1)
    random.seed(3)
    torch.manual_seed(3)
    net = nn.Sequential(nn.Linear(Corridor.cells, 32), nn.ReLU(), nn.Linear(32, 3))
    agent = DoubleDQN(net, separate=options.fixed)
    lags = list(train(agent, Corridor(), options.steps))
    if options.prove:
        print("fault shows:", "no" if min(lags) > 0 else "yes")


if __name__ == "__main__":
    main()
