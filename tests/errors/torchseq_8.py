import argparse
import json
import random

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence

PAD, BOS, EOS = 0, 1, 2


class Seq2Seq(nn.Module):
    def __init__(self, config):
        super().__init__()
        d = config["embedding_dim"]
        self.embed = nn.Embedding(config["vocab"], d, padding_idx=PAD)
        self.encoder = nn.GRU(d, d, batch_first=True, bidirectional=True)
        self.bridge = nn.Linear(2 * d, d)
        self.decoder = nn.GRU(d, d, batch_first=True)
        self.attn = nn.Linear(d, 2 * d)
        self.out = nn.Linear(3 * d, config["vocab"])

    def forward(self, src, tgt_in):
        enc, h = self.encoder(self.embed(src))
        h0 = torch.tanh(self.bridge(torch.cat([h[0], h[1]], -1)))[None]
        dec, _ = self.decoder(self.embed(tgt_in), h0)
        scores = self.attn(dec) @ enc.transpose(1, 2)
        scores = scores.masked_fill((src == PAD)[:, None], -1e9)
        ctx = scores.softmax(-1) @ enc
        return self.out(torch.cat([dec, ctx], -1))


class ParaphraseData:
    """Each 'sentence' is rewritten by swapping neighbours and mapping words to synonyms."""

    def __init__(self, n, seed, vocab):
        rnd = random.Random(seed)
        self.rows = []
        for i in range(n):
            s = [rnd.randrange(3, vocab) for _ in range(rnd.randint(4, 9))]
            t = s[:]
            for k in range(0, len(t) - 1, 2):
                t[k], t[k + 1] = t[k + 1], t[k]
            t = [w + 1 if w % 2 and w + 1 < vocab else w for w in t]
            self.rows.append((torch.tensor(s), torch.tensor([BOS] + t + [EOS])))

    def batches(self, size, rnd=None):
        order = list(range(len(self.rows)))
        if rnd is not None:
            rnd.shuffle(order)
        for k in range(0, len(order), size):
            pick = [self.rows[i] for i in order[k : k + size]]
            yield (
                order[k : k + size],
                pad_sequence([p[0] for p in pick], True, PAD),
                pad_sequence([p[1] for p in pick], True, PAD),
            )


class ModelAgent:
    def __init__(self, config):
        self.config = config
        torch.manual_seed(config["seed"])
        self.model = Seq2Seq(config)
        self.optimizer = torch.optim.Adam(
            self.model.parameters(), lr=config["lr"], betas=(0.9, 0.98)
        )
        self.train_data = ParaphraseData(config["train_size"], 1, config["vocab"])
        self.valid_data = ParaphraseData(200, 2, config["vocab"])
        self.rnd = random.Random(config["seed"])
        self.global_step = 0
        self.used, self.dropped = 0, 0

    def loss(self, batch):
        _, src, tgt = batch
        logits = self.model(src, tgt[:, :-1])
        return F.cross_entropy(logits.transpose(1, 2), tgt[:, 1:], ignore_index=PAD)

    def step(self):
        nn.utils.clip_grad_norm_(self.model.parameters(), self.config["clip_gradient"])
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.global_step += 1

    def train_one_epoch(self):
        c = self.config
        self.model.train()
        self.optimizer.zero_grad()
        steps_accum, running, n_batches = 0, 0.0, 0
        n_micro = -(-len(self.train_data.rows) // c["batch_size"])
        for batch_idx, batch in enumerate(
            self.train_data.batches(c["batch_size"], self.rnd)
        ):
            if self.global_step >= c["steps"]:
                steps_accum = 0
                break
            loss = self.loss(batch)
            (loss * len(batch[0]) / c["optim_batch_size"]).backward()
            steps_accum += len(batch[0])
            running, n_batches = running + loss.item(), n_batches + 1

            ready = steps_accum >= c["optim_batch_size"]
            if c["fixed"]:
                ready = ready or batch_idx == n_micro - 1
            if ready:
                self.step()
                self.used += steps_accum
                steps_accum = 0
        self.dropped += steps_accum
        return running / max(n_batches, 1)

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        losses = [self.loss(b).item() for b in self.valid_data.batches(50)]
        return sum(losses) / len(losses)

    def train(self):
        epoch = 0
        while self.global_step < self.config["steps"]:
            tr = self.train_one_epoch()
            print(
                json.dumps(
                    {
                        "epoch": epoch,
                        "step": self.global_step,
                        "train": round(tr, 4),
                        "dev": round(self.validate(), 4),
                    }
                )
            )
            epoch += 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description="torchseq style training of a small paraphraser"
    )
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    args = parser.parse_args()
    config = {
        "seed": 20,
        "vocab": 40,
        "embedding_dim": 64,
        "lr": 3e-3,
        "clip_gradient": 5.0,
        "batch_size": 16,
        "optim_batch_size": 128,
        "train_size": 600,
        "steps": args.steps,
        "fixed": args.fixed,
    }
    agent = ModelAgent(config)
    agent.train()
    if args.prove:
        print("fault shows:", "yes" if agent.dropped > 0 else "no")
