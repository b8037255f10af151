"""A crane learns to bring its load to rest above a mark: soft actor-critic with torchrl's
SACLoss (two critics, temperature tuned), SoftUpdate of the target critics, a replay
buffer, separate optimizers. Random actions first, then one update per step; episodes end
by time only, so that targets always look ahead.

    python torchrl_sac_crane.py --steps 300
"""

import argparse

import torch
from tensordict import TensorDict
from tensordict.nn import NormalParamExtractor, TensorDictModule
from torch import nn
from torchrl.data import Bounded, LazyTensorStorage, TensorDictReplayBuffer
from torchrl.modules import ProbabilisticActor, TanhNormal, ValueOperator
from torchrl.objectives import SACLoss, SoftUpdate

CRANES, LIMIT, BATCH = 8, 50, 96


class Cranes:
    """Many cranes at once: place and speed of the trolley, angle and turn of the load."""

    def __init__(self, seed):
        self.g = torch.Generator().manual_seed(seed)
        self.reset()

    def reset(self):
        self.state = torch.randn(CRANES, 4, generator=self.g) * 0.1
        self.state[:, 0] = 2 * torch.rand(CRANES, generator=self.g) - 1
        self.turn = 0
        return self.state.clone()

    def step(self, action):
        place, speed, angle, swing = self.state.unbind(1)
        push = action.squeeze(1)
        speed = 0.95 * speed + 0.1 * push
        swing = 0.97 * swing - 0.2 * angle - 0.1 * push
        place, angle = place + 0.1 * speed, angle + 0.1 * swing
        self.state = torch.stack([place, speed, angle, swing], 1).clamp(-3, 3)
        cost = place.square() + 0.3 * angle.square() + 0.01 * push.square()
        self.turn += 1
        return self.state.clone(), -cost.unsqueeze(1), self.turn >= LIMIT


def mlp(inside, outside, width=64):
    return nn.Sequential(
        nn.Linear(inside, width),
        nn.ReLU(),
        nn.Linear(width, width),
        nn.ReLU(),
        nn.Linear(width, outside),
    )


def make_actor():
    net = nn.Sequential(mlp(4, 2), NormalParamExtractor(scale_lb=1e-3))
    return ProbabilisticActor(
        TensorDictModule(net, in_keys=["observation"], out_keys=["loc", "scale"]),
        in_keys=["loc", "scale"],
        spec=Bounded(-1.0, 1.0, (1,)),
        distribution_class=TanhNormal,
        return_log_prob=True,
    )


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = mlp(5, 1)

    def forward(self, observation, action):
        return self.net(torch.cat([observation, action], -1))


class Agent:
    def __init__(self):
        self.actor = make_actor()
        critic = ValueOperator(Critic(), in_keys=["observation", "action"])
        self.loss = SACLoss(
            self.actor, critic, num_qvalue_nets=2, alpha_init=0.2, target_entropy=-1.0
        )
        self.loss.make_value_estimator(gamma=0.95)
        self.targets = SoftUpdate(self.loss, tau=0.01)
        adam = torch.optim.Adam
        self.optimizers = {
            "loss_actor": adam(self.loss.actor_network_params.parameters(), lr=1e-3),
            "loss_qvalue": adam(self.loss.qvalue_network_params.parameters(), lr=2e-3),
            "loss_alpha": adam([self.loss.log_alpha], lr=3e-3),
        }

    def update(self, batch):
        losses = self.loss(batch)
        total = sum(losses[name] for name in self.optimizers)
        for optimizer in self.optimizers.values():
            optimizer.zero_grad()
        total.backward()
        for optimizer in self.optimizers.values():
            optimizer.step()
        self.targets.step()
        return {name: losses[name].item() for name in self.optimizers}

    @torch.no_grad()
    def act(self, seen):
        return self.actor(TensorDict({"observation": seen}, [len(seen)]))["action"]


def record(seen, action, following, reward):
    count = len(seen)
    never = torch.zeros(count, 1, dtype=torch.bool)
    after = {
        "observation": following,
        "reward": reward,
        "done": never,
        "terminated": never,
    }
    data = {"observation": seen, "action": action, "next": TensorDict(after, [count])}
    return TensorDict(data, [count])


def train(agent, cranes, buffer, steps, quiet=30):
    seen, earned, done_updates, turn = cranes.reset(), [], 0, 0
    while done_updates < steps:
        random = turn < quiet
        action = 2 * torch.rand(CRANES, 1) - 1 if random else agent.act(seen)
        following, reward, over = cranes.step(action)
        buffer.extend(record(seen, action, following, reward))
        earned.append(reward.mean().item())
        seen = cranes.reset() if over else following
        turn += 1
        if random:
            continue
        losses = agent.update(buffer.sample())
        done_updates += 1
        if done_updates % 25 == 0:
            text = " ".join(f"{name[5:]} {x:.4f}" for name, x in losses.items())
            mean = sum(earned[-25:]) / 25
            print(f"step {done_updates} {text} reward {mean:.4f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seed", type=int, default=10)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    storage = LazyTensorStorage(4000)
    buffer = TensorDictReplayBuffer(storage=storage, batch_size=BATCH)
    agent = Agent()
    train(agent, Cranes(args.seed), buffer, args.steps)
    cranes = Cranes(args.seed + 1)
    seen, total, over = cranes.reset(), 0.0, False
    while not over:
        seen, reward, over = cranes.step(agent.act(seen))
        total += reward.mean().item()
    print(f"return of a new episode: {total:.3f}")


if __name__ == "__main__":
    main()
