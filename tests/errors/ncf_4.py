# Neural collaborative filtering on made-up implicit feedback (leave-one-out, HR@10 / NDCG@10)
import argparse
import time

import numpy as np
import torch
import torch.nn as nn
import torch.utils.data as data

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--prove", action="store_true")
parser.add_argument("--lr", type=float, default=0.004)
parser.add_argument("--dropout", type=float, default=0.0)
parser.add_argument("--batch_size", type=int, default=256)
parser.add_argument("--factor_num", type=int, default=16)
parser.add_argument(
    "--num_ng", type=int, default=4, help="sampled negatives per positive"
)
parser.add_argument("--top_k", type=int, default=10)
args = parser.parse_args()
np.random.seed(2019)
torch.manual_seed(2019)


def load_all(user_num=150, item_num=200, per_user=11):
    """users like items that lie near them in a hidden taste space"""
    u = np.random.randn(user_num, 4)
    i = np.random.randn(item_num, 4)
    score = u @ i.T + 0.7 * np.random.randn(user_num, item_num)
    train, test, seen = [], [], set()
    for user in range(user_num):
        liked = np.argsort(-score[user])[:per_user]
        np.random.shuffle(liked)
        for it in liked[:-1]:
            train.append([user, int(it)])
            seen.add((user, int(it)))
        others = [x for x in np.random.permutation(item_num) if x not in liked][:99]
        test.append((user, [int(liked[-1])] + [int(o) for o in others]))
    return train, test, seen, user_num, item_num


class NCFData(data.Dataset):
    def __init__(self, features, num_item, train_set, num_ng):
        self.features_ps, self.num_item = features, num_item
        self.train_set, self.num_ng = train_set, num_ng
        self.features_fill, self.labels_fill = [], []

    def ng_sample(self):
        negatives = []
        for user, _ in self.features_ps:
            for _ in range(self.num_ng):
                j = np.random.randint(self.num_item)
                while (user, j) in self.train_set:
                    j = np.random.randint(self.num_item)
                negatives.append([user, j])
        self.features_fill = self.features_ps + negatives
        self.labels_fill = [1.0] * len(self.features_ps) + [0.0] * len(negatives)

    def __len__(self):
        return (self.num_ng + 1) * len(self.features_ps)

    def __getitem__(self, idx):
        user, item = self.features_fill[idx]
        return user, item, self.labels_fill[idx]


class NCF(nn.Module):
    def __init__(self, user_num, item_num, f, dropout):
        super().__init__()
        self.user_gmf, self.item_gmf = nn.Embedding(user_num, f), nn.Embedding(
            item_num, f
        )
        self.user_mlp, self.item_mlp = nn.Embedding(user_num, 2 * f), nn.Embedding(
            item_num, 2 * f
        )
        self.mlp = nn.Sequential(
            nn.Dropout(dropout),
            nn.Linear(4 * f, 2 * f),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(2 * f, f),
            nn.ReLU(),
        )
        self.predict = nn.Linear(2 * f, 1)
        for m in self.modules():
            if isinstance(m, nn.Embedding):
                nn.init.normal_(m.weight, std=0.05)

    def forward(self, user, item):
        gmf = self.user_gmf(user) * self.item_gmf(item)
        mlp = self.mlp(torch.cat([self.user_mlp(user), self.item_mlp(item)], -1))
        return self.predict(torch.cat([gmf, mlp], -1)).view(-1)


@torch.no_grad()
def metrics(model, test):
    hr, ndcg = [], []
    for user, items in test:
        pred = model(torch.full((len(items),), user), torch.tensor(items))
        top = pred.topk(args.top_k).indices.tolist()
        hr.append(float(0 in top))
        ndcg.append(1 / np.log2(top.index(0) + 2) if 0 in top else 0.0)
    return np.mean(hr), np.mean(ndcg)


train_data, test_data, train_set, user_num, item_num = load_all()
train_dataset = NCFData(train_data, item_num, train_set, args.num_ng)
train_dataset.ng_sample()
train_loader = data.DataLoader(train_dataset, batch_size=args.batch_size, shuffle=True)

model = NCF(user_num, item_num, args.factor_num, args.dropout)
loss_function = nn.BCEWithLogitsLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)

count, epoch, drawn = 0, 0, []
while count < args.steps:
    model.train()
    start, total = time.time(), 0.0
    if args.fixed:
        if epoch > 0:
            train_dataset.ng_sample()
    for user, item, label in train_loader:
        model.zero_grad()
        loss = loss_function(model(user, item), label.float())
        loss.backward()
        optimizer.step()
        count += 1
        total += loss.item()
        if args.prove:
            drawn += [(int(u), int(i)) for u, i, l in zip(user, item, label) if l == 0]
        if count >= args.steps:
            break
    model.eval()
    HR, NDCG = metrics(model, test_data)
    print(
        "epoch %02d  loss %.4f  HR %.3f  NDCG %.3f"
        % (epoch, total / len(train_loader), HR, NDCG)
    )
    epoch += 1

if args.prove:
    size = args.num_ng * len(train_data)  # negatives used in one epoch
    print(
        "different pairs among %d negatives: %d (one epoch draws %d)"
        % (len(drawn), len(set(drawn)), size)
    )
    print(
        "fault shows:", "yes" if len(drawn) > size and len(set(drawn)) <= size else "no"
    )
