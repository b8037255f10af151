# Gated sequence recommender with BPR loss, trained on made-up listening sessions.
import argparse
import logging
import time

import numpy as np
import torch
import torch.nn as nn

logging.basicConfig(level=logging.INFO, format="%(message)s")
log = logging.getLogger("hgn")

p = argparse.ArgumentParser()
p.add_argument("--steps", type=int, default=200)
p.add_argument("--L", type=int, default=5)  # items in a window
p.add_argument("--T", type=int, default=3)  # targets after the window
p.add_argument("--d", type=int, default=32)
p.add_argument("--batch_size", type=int, default=256)
p.add_argument("--neg_sets", type=int, default=4)  # sets of negatives drawn in one go
p.add_argument("--learning_rate", type=float, default=5e-3)
p.add_argument("--l2", type=float, default=1e-5)
p.add_argument("--fixed", action="store_true")
p.add_argument("--prove", action="store_true")
config = p.parse_args()

N_USERS, N_ITEMS, N_GROUPS = 300, 240, 12


def make_interactions(seed):
    """Every user listens to two of twelve genres; within a genre tracks tend to follow each other."""
    rng = np.random.RandomState(seed)
    per = N_ITEMS // N_GROUPS
    users = []
    for _ in range(N_USERS):
        genres = rng.choice(N_GROUPS, 2, replace=False)
        seq, g = [], genres[0]
        item = rng.randint(per)
        for _ in range(48):
            if rng.rand() < 0.15:
                g = genres[rng.randint(2)]
            item = (item + rng.randint(1, 4)) % per
            seq.append(1 + g * per + item)  # 0 is padding
        users.append(seq)
    return users


def sliding_windows(users, L, T):
    seqs, targets, uids = [], [], []
    for u, seq in enumerate(users):
        train = seq[:-6]
        for i in range(0, len(train) - L - T + 1, 2):
            seqs.append(train[i : i + L])
            targets.append(train[i + L : i + L + T])
            uids.append(u)
    return np.array(seqs), np.array(targets), np.array(uids)


def negatives_for_user(seen, n, rng):
    """n items the user has not listened to"""
    out = []
    while len(out) < n:
        cand = rng.randint(1, N_ITEMS + 1, size=n)
        out.extend(c for c in cand if c not in seen)
    return out[:n]


def generate_negative_samples(user_sets, num_neg, num_sets, rng):
    """returns [num_sets, n_user, num_neg]"""
    neg_samples = []
    for seen in user_sets:
        neg_samples.append(negatives_for_user(seen, num_neg * num_sets, rng))
    neg_samples = np.asarray(neg_samples)
    if config.fixed:
        return neg_samples.reshape(len(user_sets), num_sets, num_neg).transpose(1, 0, 2)
    return neg_samples.reshape(num_sets, len(user_sets), num_neg)


class HGN(nn.Module):
    def __init__(self, n_users, n_items, d, L):
        super().__init__()
        self.user = nn.Embedding(n_users, d)
        self.item = nn.Embedding(n_items + 1, d, padding_idx=0)
        self.gate_item = nn.Linear(d, d)
        self.gate_user = nn.Linear(d, d)
        self.inst_item = nn.Parameter(torch.zeros(d, 1))
        self.inst_user = nn.Parameter(torch.zeros(d, L))
        self.W2 = nn.Embedding(n_items + 1, d, padding_idx=0)
        self.b2 = nn.Embedding(n_items + 1, 1, padding_idx=0)
        for e in (self.user, self.item, self.W2):
            nn.init.normal_(e.weight, 0, 1.0 / d)
        nn.init.zeros_(self.b2.weight)
        nn.init.xavier_uniform_(self.inst_item)
        nn.init.xavier_uniform_(self.inst_user)

    def forward(self, seq, uid, items):
        e, u = self.item(seq), self.user(uid)
        gate = torch.sigmoid(self.gate_item(e) + self.gate_user(u).unsqueeze(1))
        gated = e * gate
        inst = torch.sigmoid((gated @ self.inst_item).squeeze(2) + u @ self.inst_user)
        union = (gated * inst.unsqueeze(2)).sum(1) / inst.sum(1, keepdim=True)
        w, b = self.W2(items), self.b2(items).squeeze(-1)
        score = b + (w @ u.unsqueeze(2)).squeeze(2)
        score = score + (w @ union.unsqueeze(2)).squeeze(2)
        score = score + (w @ e.sum(1).unsqueeze(2)).squeeze(2)
        return score


def recall_at_10(model, users, L):
    model.eval()
    with torch.no_grad():
        seq = torch.tensor([s[-6 - L : -6] for s in users])
        uid = torch.arange(len(users))
        items = torch.arange(1, N_ITEMS + 1).expand(len(users), -1)
        top = model(seq, uid, items).topk(10, dim=1).indices + 1
    hits = [
        len(set(t.tolist()) & set(s[-6:])) / len(set(s[-6:]))
        for t, s in zip(top, users)
    ]
    model.train()
    return float(np.mean(hits))


users = make_interactions(5)
seqs, targets, uids = sliding_windows(users, config.L, config.T)
user_sets = [set(s[:-6]) for s in users]
rng = np.random.RandomState(7)
torch.manual_seed(7)
model = HGN(N_USERS, N_ITEMS, config.d, config.L)
optimizer = torch.optim.Adam(
    model.parameters(), lr=config.learning_rate, weight_decay=config.l2
)
log.info("%d windows, %d users, %d items", len(seqs), N_USERS, N_ITEMS)

step, epoch, known, drawn = 0, 0, 0, 0
while step < config.steps:
    t0, losses = time.time(), []
    order = rng.permutation(len(seqs))
    n_batch = len(order) // config.batch_size
    for b in range(n_batch):
        if b % config.neg_sets == 0:
            neg_sets = generate_negative_samples(
                user_sets, config.T, config.neg_sets, rng
            )
        idx = order[b * config.batch_size : (b + 1) * config.batch_size]
        negs = neg_sets[b % config.neg_sets][uids[idx]]
        known += sum(i in user_sets[u] for u, row in zip(uids[idx], negs) for i in row)
        drawn += negs.size
        items = torch.from_numpy(np.concatenate([targets[idx], negs], axis=1))
        scores = model(torch.from_numpy(seqs[idx]), torch.from_numpy(uids[idx]), items)
        pos, neg = scores.split([config.T, config.T], dim=1)
        loss = -torch.log(torch.sigmoid(pos - neg) + 1e-8).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        step += 1
        if step >= config.steps:
            break
    epoch += 1
    log.info("epoch %d step %d loss %.4f", epoch, step, np.mean(losses))

log.info("recall@10 %.4f", recall_at_10(model, users, config.L))
if config.prove:
    log.info(
        "share of drawn negatives that the user has listened to: %.4f", known / drawn
    )
    log.info("fault shows: %s", "yes" if known > 0 else "no")
