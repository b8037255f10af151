# Hindsight experience replay on the bit flipping game.
# Converted from my notebook, cells are kept in order.
import argparse
import random
from collections import deque

import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=300)
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--prove", action="store_true")
args = parser.parse_args()

random.seed(1)
np.random.seed(1)
torch.manual_seed(1)

num_bits = 8
batch_size = 64
new_goals = 4
gamma = 0.95
sync_every = 10


class Env:
    def __init__(self, n):
        self.n = n

    def reset(self):
        self.done = False
        self.num_steps = 0
        self.state = np.random.randint(2, size=self.n).astype(np.float32)
        self.target = np.random.randint(2, size=self.n).astype(np.float32)
        return self.state.copy(), self.target.copy()

    def step(self, action):
        self.state[action] = 1 - self.state[action]
        self.num_steps += 1
        solved = np.array_equal(self.state, self.target)
        self.done = solved or self.num_steps > self.n
        return self.state.copy(), (0.0 if solved else -1.0), self.done


class Model(nn.Module):
    def __init__(self, num_inputs, num_outputs, hidden=128):
        super().__init__()
        self.linear1 = nn.Linear(num_inputs, hidden)
        self.linear2 = nn.Linear(hidden, num_outputs)

    def forward(self, state, goal):
        x = torch.cat([state, goal], 1)
        return self.linear2(torch.relu(self.linear1(x)))


class ReplayBuffer:
    def __init__(self, capacity):
        self.buffer = deque(maxlen=capacity)

    def push(self, *transition):
        self.buffer.append(transition)

    def sample(self, n):
        s, a, r, s2, d, g = zip(*random.sample(self.buffer, n))
        return (
            torch.from_numpy(np.stack(s)),
            torch.tensor(a),
            torch.tensor(r),
            torch.from_numpy(np.stack(s2)),
            torch.tensor(d, dtype=torch.float32),
            torch.from_numpy(np.stack(g)),
        )


def update_target(current_model, target_model):
    target_model.load_state_dict(current_model.state_dict())


env = Env(num_bits)
model = Model(2 * num_bits, num_bits)
target_model = Model(2 * num_bits, num_bits)
update_target(model, target_model)
start_target = {k: v.clone() for k, v in target_model.state_dict().items()}

optimizer = optim.Adam(model.parameters(), lr=1e-3)
replay_buffer = ReplayBuffer(10000)


def get_action(m, state, goal, epsilon):
    if random.random() < epsilon:
        return random.randrange(num_bits)
    with torch.no_grad():
        q = m(torch.from_numpy(state)[None], torch.from_numpy(goal)[None])
    return int(q.argmax(1))


def compute_td_error(n):
    state, action, reward, next_state, done, goal = replay_buffer.sample(n)
    q_value = model(state, goal).gather(1, action[:, None]).squeeze(1)
    with torch.no_grad():
        next_q = target_model(next_state, goal).max(1)[0]
    expected = reward + gamma * next_q * (1 - done)
    loss = (q_value - expected).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


step = 0
wins = deque(maxlen=50)
while step < args.steps:
    # play one episode
    state, goal = env.reset()
    episode, done = [], False
    while not done:
        action = get_action(model, state, goal, epsilon=max(0.1, 1 - step / 150))
        next_state, reward, done = env.step(action)
        episode.append((state, reward, done, next_state, goal, action))
        state = next_state
    wins.append(float(reward == 0.0))

    # store the episode plus relabelled goals from its own future
    for i, (s, r, d, s2, g, a) in enumerate(episode):
        replay_buffer.push(s, a, r, s2, d, g)
        for _ in range(new_goals):
            future = episode[random.randint(i, len(episode) - 1)][3]
            hit = np.array_equal(future, s2)
            replay_buffer.push(s, a, 0.0 if hit else -1.0, s2, bool(hit), future)

    if len(replay_buffer.buffer) < 4 * batch_size:
        continue
    loss = compute_td_error(batch_size)
    if step % 30 == 0:
        print("step %d  td loss %.4f  win rate %.2f" % (step, loss, np.mean(wins)))
    step += 1
    if args.fixed and step % sync_every == 0:
        update_target(model, target_model)

print("last win rate %.2f" % np.mean(wins))
if args.prove:
    moved_target = sum(
        (target_model.state_dict()[k] - v).abs().sum().item()
        for k, v in start_target.items()
    )
    moved_model = sum(
        (model.state_dict()[k] - v).abs().sum().item() for k, v in start_target.items()
    )
    print(
        "distance from the start: model %.3f, target %.3f" % (moved_model, moved_target)
    )
    print("fault shows:", "yes" if moved_target == 0 and moved_model > 0 else "no")
