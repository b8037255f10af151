"""Train a GRU on chord progressions (next-chord prediction), variable length songs with padding."""
import argparse
import json
import os
import random
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

CHORDS = ["<pad>", "<s>", "</s>", "C", "Dm", "Em", "F", "G", "G7", "Am", "Bdim"]
INDEX = {c: i for i, c in enumerate(CHORDS)}
FOLLOWS = {
    "<s>": ["C", "C", "Am"],
    "C": ["F", "G", "Am", "Dm"],
    "Dm": ["G", "G7", "G7"],
    "Em": ["Am", "F"],
    "F": ["G", "C", "Dm"],
    "G": ["C", "Am", "Em"],
    "G7": ["C", "C", "C", "Am"],
    "Am": ["F", "Dm", "Em"],
    "Bdim": ["C"],
}


class Songs(Dataset):
    def __init__(self, n, seed):
        rnd = random.Random(seed)
        self.rows = [self.compose(rnd) for _ in range(n)]

    @staticmethod
    def compose(rnd):
        length = rnd.randint(6, 22)
        song = ["<s>"]
        while len(song) < length:
            song.append(
                "Bdim" if rnd.random() < 0.04 else rnd.choice(FOLLOWS[song[-1]])
            )
        song.append("</s>")
        return [INDEX[c] for c in song]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return torch.tensor(self.rows[i])


def collate(rows):
    input_ids = pad_sequence(rows, batch_first=True, padding_value=INDEX["<pad>"])
    labels = input_ids.clone()
    labels[input_ids == INDEX["<pad>"]] = -100
    return {"input_ids": input_ids, "labels": labels}


class ChordModel(nn.Module):
    def __init__(self, shift, dim=32, hidden=64, dropout=0.3):
        super().__init__()
        self.shift = shift
        self.embed = nn.Embedding(len(CHORDS), dim, padding_idx=INDEX["<pad>"])
        self.drop = nn.Dropout(dropout)
        self.gru = nn.GRU(dim, hidden, batch_first=True)
        self.out = nn.Linear(hidden, len(CHORDS))

    def forward(self, input_ids, labels=None):
        h, _ = self.gru(self.drop(self.embed(input_ids)))
        logits = self.out(self.drop(h))
        if labels is None:
            return {"logits": logits}
        scores, targets = logits, labels
        if self.shift:
            scores, targets = logits[:, :-1], labels[:, 1:]
        loss = F.cross_entropy(
            scores.reshape(-1, len(CHORDS)), targets.reshape(-1), ignore_index=-100
        )
        return {"loss": loss, "logits": logits}


class SongTrainer:
    def __init__(self, args):
        torch.manual_seed(args.seed)
        self.args = args
        shift = False
        if args.fixed:
            shift = True
        self.model = ChordModel(shift)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=args.lr)
        self.train_loader = DataLoader(
            Songs(512, 1), args.batch_size, shuffle=True, collate_fn=collate
        )
        self.eval_loader = DataLoader(Songs(128, 2), 64, collate_fn=collate)
        self.history = []

    def evaluate(self):
        self.model.eval()
        with torch.no_grad():
            losses = [self.model(**b)["loss"].item() for b in self.eval_loader]
        self.model.train()
        return sum(losses) / len(losses)

    def train(self):
        done = 0
        self.model.train()
        while done < self.args.steps:
            for batch in self.train_loader:
                loss = self.model(**batch)["loss"]
                self.optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.model.parameters(), 5.0)
                self.optimizer.step()
                done += 1
                if done % 20 == 0:
                    row = {
                        "step": done,
                        "loss": round(loss.item(), 4),
                        "eval_loss": round(self.evaluate(), 4),
                    }
                    self.history.append(row)
                    print(json.dumps(row))
                if done >= self.args.steps:
                    break

    def save(self, folder):
        torch.save(self.model.state_dict(), os.path.join(folder, "model.pt"))
        with open(os.path.join(folder, "history.json"), "w") as f:
            json.dump(self.history, f)

    @torch.no_grad()
    def hit_rates(self):
        self.model.eval()
        same = nxt = total = 0
        for b in self.eval_loader:
            ids = b["input_ids"]
            pred = self.model(ids)["logits"].argmax(-1)[:, :-1]
            keep = ids[:, 1:] != INDEX["<pad>"]
            same += (pred == ids[:, :-1])[keep].sum().item()
            nxt += (pred == ids[:, 1:])[keep].sum().item()
            total += keep.sum().item()
        return same / total, nxt / total


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--steps", type=int, default=100)
    p.add_argument("--batch-size", type=int, default=32)
    p.add_argument("--lr", type=float, default=4e-3)
    p.add_argument("--seed", type=int, default=8)
    p.add_argument("--fixed", action="store_true")
    p.add_argument("--prove", action="store_true")
    args = p.parse_args()
    trainer = SongTrainer(args)
    trainer.train()
    with tempfile.TemporaryDirectory() as folder:
        trainer.save(folder)
    if args.prove:
        same, nxt = trainer.hit_rates()
        print(
            f"# prediction equals the chord just given: {same:.3f}, the chord that follows: {nxt:.3f}"
        )
        print("fault shows:", "yes" if same > nxt and same > 0.5 else "no")


if __name__ == "__main__":
    main()
