"""REINFORCE with a learnt baseline: a lamplighter walks a street of eight lamps and
wants them all lit before dawn. Whole episodes are played, returns to go are summed
backwards, and the advantage is a number for the policy: the baseline has its own loss
and optimizer. Lamps go out at random, so returns stay noisy.

    python reinforce_lamplighter.py --steps 60
"""

import argparse

import torch
from torch import nn
import torch.nn.functional as F
from torch.distributions import Categorical

LAMPS, NIGHT, GAMMA = 8, 24, 0.97
LEFT, LIGHT, RIGHT = range(3)


class Street:
    def __init__(self, rng):
        self.rng = rng

    def reset(self):
        self.lit = torch.rand(LAMPS, generator=self.rng) < 0.3
        self.at = int(torch.randint(LAMPS, (), generator=self.rng))
        self.hour = 0
        return self.view()

    def view(self):
        place = F.one_hot(torch.tensor(self.at), LAMPS)
        hour = torch.tensor([self.hour / NIGHT])
        return torch.cat([self.lit.float(), place.float(), hour])

    def step(self, action):
        if action == LIGHT:
            reward = -0.2 if self.lit[self.at] else 1.0
            self.lit[self.at] = True
        else:
            reward = -0.05
            self.at = (self.at + (1 if action == RIGHT else -1)) % LAMPS
        self.lit &= torch.rand(LAMPS, generator=self.rng) >= 0.01
        self.hour += 1
        done = bool(self.lit.all())
        return self.view(), reward + 2.0 * done, done or self.hour == NIGHT


def mlp(inputs, outputs, width=48):
    return nn.Sequential(nn.Linear(inputs, width), nn.Tanh(), nn.Linear(width, outputs))


@torch.no_grad()
def play(street, policy):
    """Views, actions and rewards of one episode."""
    views, actions, rewards = [], [], []
    view, over = street.reset(), False
    while not over:
        action = Categorical(logits=policy(view)).sample()
        views.append(view)
        actions.append(action)
        view, reward, over = street.step(int(action))
        rewards.append(reward)
    return torch.stack(views), torch.stack(actions), rewards


def returns_to_go(rewards):
    total, found = 0.0, []
    for reward in reversed(rewards):
        total = reward + GAMMA * total
        found.append(total)
    return torch.tensor(found[::-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--episodes", type=int, default=8, help="of an update")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    street = Street(torch.Generator().manual_seed(args.seed))
    policy, baseline = mlp(2 * LAMPS + 1, 3), mlp(2 * LAMPS + 1, 1)
    policy_opt = torch.optim.Adam(policy.parameters(), lr=1e-2)
    baseline_opt = torch.optim.Adam(baseline.parameters(), lr=1e-2)
    for step in range(args.steps):
        episodes = [play(street, policy) for _ in range(args.episodes)]
        views = torch.cat([one[0] for one in episodes])
        actions = torch.cat([one[1] for one in episodes])
        returns = torch.cat([returns_to_go(one[2]) for one in episodes])

        value = baseline(views).squeeze(1)
        value_loss = F.mse_loss(value, returns)
        baseline_opt.zero_grad()
        value_loss.backward()
        baseline_opt.step()

        advantage = returns - value.detach()
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-6)
        chosen = Categorical(logits=policy(views))
        gain = (chosen.log_prob(actions) * advantage).sum() / args.episodes
        loss = -gain - 0.02 * chosen.entropy().sum() / args.episodes
        policy_opt.zero_grad()
        loss.backward()
        policy_opt.step()
        total = sum(sum(one[2]) for one in episodes) / args.episodes
        print(
            f"step {step} loss {loss.item():.4f} value {value_loss.item():.4f} "
            f"return {total:.3f}",
            flush=True,
        )
    test = Street(torch.Generator().manual_seed(args.seed + 1))
    totals = [sum(play(test, policy)[2]) for _ in range(20)]
    print(f"return on other nights {sum(totals) / len(totals):.3f}")


if __name__ == "__main__":
    main()
