# Telecom churn, MLP with embeddings for the categorical columns.
# (from my notebook "churn_v3", cells merged into a script)
import argparse
import copy

import numpy as np
import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=240)
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--prove", action="store_true")
args = parser.parse_args()

SEED = 7
BATCH = 64
EVAL_EVERY = 30
PATIENCE = 6
np.random.seed(SEED)
torch.manual_seed(SEED)

# ---------------------------------------------------------------- data
n = 4000
tenure = np.random.exponential(24, n).clip(1, 72)
monthly = np.random.normal(65, 20, n).clip(15, 130)
calls = np.random.poisson(1.5, n)
age = np.random.normal(45, 15, n).clip(18, 90)
contract = np.random.choice(3, n, p=[0.55, 0.25, 0.20])  # month, year, two years
internet = np.random.choice(3, n, p=[0.35, 0.45, 0.20])  # dsl, fiber, none
payment = np.random.choice(4, n)
region = np.random.choice(12, n)

region_effect = np.random.normal(0, 0.3, 12)
z = (
    -1.0
    - 0.04 * tenure
    + 0.02 * (monthly - 65)
    + 0.45 * calls
    + np.array([0.9, -0.6, -1.6])[contract]
    + np.array([-0.2, 0.6, -0.5])[internet]
    + np.array([0.4, 0.0, -0.1, -0.2])[payment]
    + region_effect[region]
    + 0.5 * (calls > 3) * (contract == 0)
)
churn = (np.random.rand(n) < 1 / (1 + np.exp(-z))).astype(np.float32)

num = np.stack([tenure, monthly, calls, age], 1).astype(np.float32)
cat = np.stack([contract, internet, payment, region], 1)
n_train = 3200
mu, sd = num[:n_train].mean(0), num[:n_train].std(0)
num = (num - mu) / sd

num_t, cat_t, y_t = (
    torch.from_numpy(num),
    torch.from_numpy(cat),
    torch.from_numpy(churn),
)
tr = slice(0, n_train)
va = slice(n_train, n)


# ---------------------------------------------------------------- model
class ChurnNet(nn.Module):
    def __init__(self, cards=(3, 3, 4, 12), n_num=4, hidden=64, p=0.3):
        super().__init__()
        self.embs = nn.ModuleList(
            [nn.Embedding(c, min(6, (c + 1) // 2 + 1)) for c in cards]
        )
        d = n_num + sum(e.embedding_dim for e in self.embs)
        self.net = nn.Sequential(
            nn.Linear(d, hidden),
            nn.BatchNorm1d(hidden),
            nn.ReLU(),
            nn.Dropout(p),
            nn.Linear(hidden, hidden),
            nn.BatchNorm1d(hidden),
            nn.ReLU(),
            nn.Dropout(p),
            nn.Linear(hidden, 1),
        )

    def forward(self, x_num, x_cat):
        e = [emb(x_cat[:, i]) for i, emb in enumerate(self.embs)]
        return self.net(torch.cat([x_num] + e, dim=1)).squeeze(1)


def auc(scores, labels):
    order = scores.argsort()
    ranks = torch.empty(len(scores))
    ranks[order] = torch.arange(1, len(scores) + 1, dtype=torch.float32)
    pos = labels.sum()
    neg = len(labels) - pos
    return ((ranks[labels == 1].sum() - pos * (pos + 1) / 2) / (pos * neg)).item()


def evaluate(model):
    model.eval()
    with torch.no_grad():
        logits = model(num_t[va], cat_t[va])
        loss = nn.functional.binary_cross_entropy_with_logits(logits, y_t[va])
    if args.fixed:
        model.train()
    return loss.item(), auc(logits, y_t[va])


# ---------------------------------------------------------------- training
model = ChurnNet()
criterion = nn.BCEWithLogitsLoss()
opt = torch.optim.Adam(model.parameters(), lr=2e-3)

best_auc, best_state, bad = 0.0, None, 0
step, running = 0, 0.0
stop = False
modes = []
model.train()
while step < args.steps and not stop:
    perm = torch.randperm(n_train)
    for i in range(0, n_train, BATCH):
        idx = perm[i : i + BATCH]
        modes.append(model.training)
        loss = criterion(model(num_t[tr][idx], cat_t[tr][idx]), y_t[tr][idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        step += 1
        running += loss.item()

        if step % EVAL_EVERY == 0:
            val_loss, val_auc = evaluate(model)
            print(
                f"step {step:4d}  train loss {running / EVAL_EVERY:.4f}  val loss {val_loss:.4f}  auc {val_auc:.4f}"
            )
            running = 0.0
            if val_auc > best_auc:
                best_auc, bad = val_auc, 0
                best_state = copy.deepcopy(model.state_dict())
            else:
                bad += 1
                if bad >= PATIENCE:
                    print("early stop")
                    stop = True
                    break
        if step >= args.steps:
            break

if best_state is not None:
    model.load_state_dict(best_state)
val_loss, val_auc = evaluate(model)
print(f"best model: val loss {val_loss:.4f} auc {val_auc:.4f}")

if args.prove:
    print(f"training steps with dropout active: {sum(modes)} of {len(modes)}")
    print("fault shows:", "yes" if sum(modes) < len(modes) else "no")
