# Small speech recogniser with a CTC head and an utterance level "rich" label,
# trained by a trainer that keeps the best checkpoint on disk.
import argparse
import os
import shutil
import tempfile

import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence

VOCAB = 14  # 0 is blank
FEAT = 16
EMOTIONS = 3


class UtteranceMaker:
    """Random token strings rendered as frames: one prototype per token, varying length and pitch."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.protos = self.rng.normal(size=(VOCAB, FEAT))
        self.colour = self.rng.normal(size=(EMOTIONS, FEAT)) * 0.5

    def one(self, noise):
        n = int(self.rng.integers(4, 9))
        toks = self.rng.integers(1, VOCAB, size=n)
        emo = int(self.rng.integers(0, EMOTIONS))
        frames = []
        for k in toks:
            for _ in range(int(self.rng.integers(2, 5))):
                frames.append(
                    self.protos[k]
                    + self.colour[emo]
                    + noise * self.rng.normal(size=FEAT)
                )
            if self.rng.random() < 0.4:
                frames.append(self.colour[emo] + noise * self.rng.normal(size=FEAT))
        return (
            torch.tensor(np.array(frames), dtype=torch.float32),
            torch.tensor(toks, dtype=torch.long),
            emo,
        )

    def many(self, n, noise):
        return [self.one(noise) for _ in range(n)]


def collate(items):
    feats = pad_sequence([f for f, _, _ in items], batch_first=True)
    flen = torch.tensor([len(f) for f, _, _ in items])
    toks = pad_sequence([t for _, t, _ in items], batch_first=True)
    tlen = torch.tensor([len(t) for _, t, _ in items])
    emo = torch.tensor([e for _, _, e in items])
    return feats, flen, toks, tlen, emo


def edit_distance(a, b):
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        prev, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            prev, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, prev + (x != y))
    return row[-1]


class SpeechModel(nn.Module):
    def __init__(self, fixed, width=48):
        super().__init__()
        self.front = nn.Conv1d(FEAT, width, 3, padding=1)
        self.rnn = nn.GRU(width, width, batch_first=True, bidirectional=True)
        self.ctc_out = nn.Linear(2 * width, VOCAB)
        self.rich_out = nn.Linear(2 * width, EMOTIONS)
        self.ctc = nn.CTCLoss(blank=0, zero_infinity=True)
        self.fixed = fixed

    def encode(self, feats):
        h = torch.relu(self.front(feats.transpose(1, 2))).transpose(1, 2)
        return self.rnn(h)[0]

    @torch.no_grad()
    def token_accuracy(self, logp, flen, toks, tlen):
        err = tot = 0
        for b in range(logp.shape[0]):
            path = torch.unique_consecutive(logp[b, : flen[b]].argmax(-1)).tolist()
            hyp = [k for k in path if k != 0]
            ref = toks[b, : tlen[b]].tolist()
            err += edit_distance(hyp, ref)
            tot += len(ref)
        return max(0.0, 1.0 - err / tot)

    def forward(self, feats, flen, toks, tlen, emo):
        h = self.encode(feats)
        logp = self.ctc_out(h).log_softmax(-1)
        loss_ctc = self.ctc(logp.transpose(0, 1), toks, flen, tlen)
        keep = (torch.arange(h.shape[1])[None] < flen[:, None]).float()[..., None]
        rich = self.rich_out((h * keep).sum(1) / keep.sum(1))
        loss_rich = nn.functional.cross_entropy(rich, emo)
        loss = loss_ctc + 0.5 * loss_rich
        stats = {
            "loss_ctc": loss_ctc.item(),
            "loss_rich": loss_rich.item(),
            "acc_rich": (rich.argmax(-1) == emo).float().mean().item(),
            "loss": loss.item(),
        }
        if self.fixed and not self.training:
            stats["acc"] = self.token_accuracy(logp, flen, toks, tlen)
        return loss, stats


class Trainer:
    def __init__(self, model, optimizer, out_dir):
        self.model, self.optim, self.out_dir = model, optimizer, out_dir
        self.val_acc = {}
        self.best_name = None

    def train_epoch(self, batches, epoch):
        self.model.train()
        tot = 0.0
        for i, batch in enumerate(batches):
            loss, stats = self.model(*batch)
            self.optim.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 5.0)
            self.optim.step()
            tot += stats["loss"]
        print(f"epoch {epoch}: train loss {tot / (i + 1):.3f}", end="  ")

    @torch.no_grad()
    def validate(self, batches):
        self.model.eval()
        sums = {"loss": 0.0, "acc": 0.0}
        for batch in batches:
            _, stats = self.model(*batch)
            for key in sums:
                if key in stats:
                    sums[key] += stats[key]
        return {k: v / len(batches) for k, v in sums.items()}

    def save(self, epoch, scores):
        name = f"model.pt.ep{epoch}"
        path = os.path.join(self.out_dir, name)
        torch.save(self.model.state_dict(), path)
        self.val_acc[name] = scores["acc"]
        if self.best_name is None or self.val_acc[name] >= self.val_acc[self.best_name]:
            self.best_name = name
            shutil.copyfile(path, os.path.join(self.out_dir, "model.pt.best"))
        print(f"val loss {scores['loss']:.3f}  best checkpoint {self.best_name}")


def token_score(model, batches):
    model.eval()
    accs = []
    with torch.no_grad():
        for feats, flen, toks, tlen, _ in batches:
            accs.append(
                model.token_accuracy(
                    model.ctc_out(model.encode(feats)), flen, toks, tlen
                )
            )
    return sum(accs) / len(accs)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=14)
    ap.add_argument("--batch", type=int, default=12)
    ap.add_argument("--lr", type=float, default=1.2e-2)
    ap.add_argument("--seed", type=int, default=3)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()

    torch.manual_seed(args.seed)
    maker = UtteranceMaker(args.seed)
    train = maker.many(84, 1.1)
    dev = maker.many(60, 1.1)
    order = np.random.default_rng(args.seed)
    dev_batches = [collate(dev[i : i + 20]) for i in range(0, len(dev), 20)]

    model = SpeechModel(fixed=args.fixed)
    optim = torch.optim.AdamW(model.parameters(), lr=args.lr)
    out_dir = tempfile.mkdtemp(prefix="asr_")
    trainer = Trainer(model, optim, out_dir)
    curve = {}
    for epoch in range(args.epochs):
        perm = order.permutation(len(train))
        batches = [
            collate([train[j] for j in perm[i : i + args.batch]])
            for i in range(0, len(train), args.batch)
        ]
        trainer.train_epoch(batches, epoch)
        trainer.save(epoch, trainer.validate(dev_batches))
        if args.prove:
            curve[f"model.pt.ep{epoch}"] = token_score(model, dev_batches)

    model.load_state_dict(torch.load(os.path.join(out_dir, "model.pt.best")))
    final = token_score(model, dev_batches)
    print(f"token accuracy of model.pt.best on dev: {final:.4f}")
    shutil.rmtree(out_dir)
    if args.prove:
        top = max(curve, key=curve.get)
        print("token accuracy by epoch:", " ".join(f"{v:.3f}" for v in curve.values()))
        print(
            f"accuracies the trainer ranked: {sorted(set(round(v, 3) for v in trainer.val_acc.values()))}"
        )
        print(f"highest: {top} {curve[top]:.4f}, kept: {trainer.best_name} {final:.4f}")
        print("fault shows:", "yes" if final < curve[top] - 1e-6 else "no")


if __name__ == "__main__":
    main()
