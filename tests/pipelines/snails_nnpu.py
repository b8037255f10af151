"""Which pond snails carry flukes (MLP): learnt from positive and unlabelled ones.

Dissection confirms carriers, nothing confirms a clean snail; the share of carriers is
known. Where the estimate of the negative risk falls below zero, the step goes up on it
(`-GAMMA * r_neg`) and leaves the rest alone. Positive ones are drawn with replacement,
two endless loaders with batches of unlike size; early stopping by an error that needs
no labels of the catch, best weights put back.
"""

import argparse
import copy
import itertools

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, RandomSampler, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=200)
STEPS = parser.parse_args().steps

PRIOR = 0.35
BETA, GAMMA = 0.0, 0.5
rs = np.random.RandomState(404)
torch.manual_seed(404)


def catch(n_carrier, n_clean):
    """Shell measurements: carriers are a two-lobed cloud that wraps the clean ones."""
    side = rs.choice([-1.0, 1.0], n_carrier)
    t = rs.uniform(-1.2, 1.2, n_carrier)
    a = np.stack([side * (2.6 - 0.8 * t**2), t * 1.5], 1)
    b = rs.randn(n_clean, 2) * [0.5, 0.8]
    z = np.concatenate([a + 0.25 * rs.randn(n_carrier, 2), b])
    extra = 0.5 * rs.randn(len(z), 4)  # girth, spire, colour: uninformative
    x = np.concatenate([z, extra], 1).astype(np.float32)
    y = np.r_[np.ones(n_carrier), np.zeros(n_clean)].astype(np.int64)
    order = rs.permutation(len(x))
    return torch.from_numpy(x[order]), torch.from_numpy(y[order])


n_u, n_uv, n_t = 2400, 600, 1000
pos, _ = catch(260, 0)
pos_val, _ = catch(90, 0)
unl, _ = catch(int(PRIOR * n_u), n_u - int(PRIOR * n_u))
unl_val, _ = catch(int(PRIOR * n_uv), n_uv - int(PRIOR * n_uv))
test_x, test_y = catch(int(PRIOR * n_t), n_t - int(PRIOR * n_t))

mu, sd = unl.mean(0), unl.std(0)  # the catch is the population
pos, pos_val, test_x = [(v - mu) / sd for v in (pos, pos_val, test_x)]
unl, unl_val = [(v - mu) / sd for v in (unl, unl_val)]

g = torch.Generator().manual_seed(1)
# P is small: it is drawn with replacement and never "runs out" before U does.
p_loader = DataLoader(
    TensorDataset(pos),
    batch_size=64,
    sampler=RandomSampler(pos, replacement=True, num_samples=64 * 50, generator=g),
)
u_loader = DataLoader(
    TensorDataset(unl),
    batch_size=256,
    shuffle=True,
    drop_last=True,
    generator=torch.Generator().manual_seed(2),
)


def forever(loader):
    while True:  # itertools.cycle would replay the first epoch's order
        for (x,) in loader:
            yield x


def surrogate(score, sign):
    return F.softplus(-sign * score).mean()  # the logistic loss


def pu_parts(score_p, score_u):
    r_pos = PRIOR * surrogate(score_p, +1)
    r_neg = surrogate(score_u, -1) - PRIOR * surrogate(score_p, -1)
    return r_pos, r_neg


@torch.no_grad()
def pu_error(net):
    """Zero-one PU risk on the held-out P and U: needs no label of the catch."""
    net.eval()
    miss = (net(pos_val) <= 0).float().mean()
    called = (net(unl_val) > 0).float().mean()
    called_p = (net(pos_val) > 0).float().mean()
    net.train()
    return (PRIOR * miss + (called - PRIOR * called_p).clamp(min=0)).item()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)
        )

    def forward(self, x):
        return self.body(x).squeeze(-1)


net = Net()
opt = torch.optim.Adam(net.parameters(), lr=5e-3, weight_decay=1e-3)

best, best_state, best_step, patience = 9.0, net.state_dict(), 0, 6
waited, corrected, window = 0, 0, []
both = zip(forever(p_loader), forever(u_loader))
for step, (xp, xu) in enumerate(itertools.islice(both, STEPS), 1):
    # one forward pass for both kinds, split again by position
    score = net(torch.cat([xp, xu]))
    r_pos, r_neg = pu_parts(score[: len(xp)], score[len(xp) :])
    opt.zero_grad()
    if r_neg.item() < -BETA:
        # the estimate of the negative risk has gone below zero, which no true risk can:
        # the net overfits P: up on that part by a discounted step, r_pos left alone
        (-GAMMA * r_neg).backward()
        corrected += 1
    else:
        (r_pos + r_neg).backward()
    opt.step()

    window.append((r_pos + r_neg.clamp(min=0)).item())
    if step % 10 == 0:
        err = pu_error(net)
        mean = float(np.mean(window[-10:]))
        print(
            f"step {step:3d}  risk {mean:.4f}  held-out PU error {err:.4f}  "
            f"corrections {corrected}"
        )
        if err < best - 1e-4:
            best, best_step, waited = err, step, 0
            best_state = copy.deepcopy(net.state_dict())
        else:
            waited += 1
            if waited >= patience:
                print("no better for a while, stopping")
                break

net.load_state_dict(best_state)
net.eval()
with torch.no_grad():
    called = (net(test_x) > 0).long()
acc = (called == test_y).float().mean().item()
bal = np.mean([(called[test_y == k] == k).float().mean().item() for k in (0, 1)])
print(f"weights of step {best_step}: test accuracy {acc:.3f}, balanced {bal:.3f}")
