import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

IGNORE_INDEX = -100
PAD, SEP, END = 0, 1, 2
FIRST = 3
N_WORDS = 20
VOCAB = FIRST + N_WORDS


class GRULM(nn.Module):
    """Small recurrent policy."""

    def __init__(self, dim=64):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, dim, padding_idx=PAD)
        self.rnn = nn.GRU(dim, dim, num_layers=1, batch_first=True)
        self.out = nn.Linear(dim, VOCAB)

    def forward(self, ids):
        return self.out(self.rnn(self.embed(ids))[0])


class PreferenceData:
    """Prompt: a word and a count.  Chosen: the word and its successors, `count` of them.
    Rejected: the same with some positions replaced."""

    def __init__(self, seed):
        self.g = torch.Generator().manual_seed(seed)

    def _rand(self, hi):
        return int(torch.randint(hi, (1,), generator=self.g))

    def pair(self):
        start, count = self._rand(N_WORDS), 3 + self._rand(8)
        good = [(start + 3 * i) % N_WORDS for i in range(count)]
        bad = [
            w if torch.rand(1, generator=self.g) > 0.4 else self._rand(N_WORDS)
            for w in good
        ]
        if bad == good:
            bad[-1] = (bad[-1] + 1) % N_WORDS
        prompt = [FIRST + start, FIRST + count, SEP]
        wrap = lambda ws: [FIRST + w for w in ws] + [END]
        return prompt, wrap(good), wrap(bad)

    def batch(self, n):
        rows = [self.pair() for _ in range(n)]
        seqs = [(p, c) for p, c, _ in rows] + [(p, r) for p, _, r in rows]
        width = max(len(p) + len(c) for p, c in seqs)
        ids = torch.full((2 * n, width), PAD)
        labels = torch.full((2 * n, width), IGNORE_INDEX)
        for i, (p, c) in enumerate(seqs):
            ids[i, : len(p) + len(c)] = torch.tensor(p + c)
            labels[i, len(p) : len(p) + len(c)] = torch.tensor(c)
        return {"input_ids": ids, "labels": labels}


def get_batch_logps(logits, labels):
    labels = labels[:, 1:].clone()
    logits = logits[:, :-1]
    mask = labels != IGNORE_INDEX
    labels[~mask] = 0
    token = logits.log_softmax(-1).gather(2, labels.unsqueeze(2)).squeeze(2)
    return (token * mask).sum(-1), mask.sum(-1)


class PreferenceTrainer:
    def __init__(self, model, args):
        self.model = model
        self.args = args
        self.loss_type = args.loss_type
        self.beta, self.gamma, self.ftx_gamma = (
            args.beta,
            args.simpo_gamma,
            args.ftx_gamma,
        )

    def concatenated_forward(self, batch):
        logits = self.model(batch["input_ids"])
        all_logps, valid_length = get_batch_logps(logits, batch["labels"])
        averaged = self.loss_type in ("ipo", "orpo", "simpo")
        if averaged:
            all_logps = all_logps / valid_length
        n = len(all_logps) // 2
        chosen, rejected = all_logps.split(n)
        length = valid_length[:n]
        if averaged and self.args.fixed:
            return chosen, rejected, chosen
        return chosen, rejected, chosen / length

    def preference_loss(self, chosen, rejected):
        if self.loss_type == "simpo":
            return -F.logsigmoid(self.beta * (chosen - rejected) - self.gamma)
        if self.loss_type == "orpo":
            log_odds = (chosen - rejected) - (
                torch.log1p(-chosen.exp().clamp(max=0.9999))
                - torch.log1p(-rejected.exp().clamp(max=0.9999))
            )
            return -chosen - self.beta * F.logsigmoid(log_odds)
        if self.loss_type == "ipo":
            return (chosen - rejected - 1 / (2 * self.beta)) ** 2
        return -F.logsigmoid(self.beta * (chosen - rejected))

    def compute_loss(self, batch):
        chosen, rejected, chosen_avg = self.concatenated_forward(batch)
        losses = self.preference_loss(chosen, rejected)
        sft_loss = -chosen_avg
        if self.ftx_gamma > 1e-6:
            losses = losses + self.ftx_gamma * sft_loss
        metrics = {
            "pref_acc": (chosen > rejected).float().mean().item(),
            "margin": (chosen - rejected).mean().item(),
            "sft": sft_loss.mean().item(),
        }
        return losses.mean(), metrics

    def fit(self, data, steps):
        params = list(self.model.parameters())
        opt = torch.optim.AdamW(params, lr=self.args.lr)
        for step in range(steps):
            for group in opt.param_groups:
                group["lr"] = self.args.lr * min(1.0, (step + 1) / 10)
            loss, m = self.compute_loss(data.batch(self.args.batch_size))
            opt.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(params, 1.0)
            opt.step()
            if (step + 1) % 25 == 0 or step == 0:
                print(
                    f"{step + 1:4d}/{steps} loss={loss.item():.4f} "
                    + " ".join(f"{k}={v:.3f}" for k, v in m.items())
                )


@torch.no_grad()
def evaluate(model, data, n=128):
    model.eval()
    batch = data.batch(n)
    sums, lengths = get_batch_logps(model(batch["input_ids"]), batch["labels"])
    nll = -(sums[:n].sum() / lengths[:n].sum()).item()
    acc = (sums[:n] / lengths[:n] > sums[n:] / lengths[n:]).float().mean().item()
    right = 0
    for i in range(24):
        prompt, good, _ = data.pair()
        ids = list(prompt)
        for _ in range(len(good)):
            ids.append(model(torch.tensor([ids]))[0, -1].argmax().item())
        right += ids[len(prompt) :] == good
    model.train()
    return nll, acc, right / 24


def prove(trainer, data):
    with torch.no_grad():
        batch = data.batch(128)
        _, _, avg = trainer.concatenated_forward(batch)
        n = len(avg)
        logits = trainer.model(batch["input_ids"][:n])
        per_token = F.cross_entropy(
            logits[:, :-1].transpose(1, 2),
            batch["labels"][:n, 1:],
            ignore_index=IGNORE_INDEX,
            reduction="none",
        )
        count = (batch["labels"][:n, 1:] != IGNORE_INDEX).sum(1)
        want = (per_token.sum(1) / count).mean().item()
        used = -avg.mean().item()
    print(
        f"sft term used {used:.5f}, mean cross entropy per token {want:.5f}, ratio {used / want:.3f}"
    )
    print("fault shows:", "yes" if abs(used / want - 1) > 0.02 else "no")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=160)
    parser.add_argument("--batch-size", type=int, default=24)
    parser.add_argument(
        "--loss-type", choices=["dpo", "ipo", "orpo", "simpo"], default="simpo"
    )
    parser.add_argument("--beta", type=float, default=2.0)
    parser.add_argument("--simpo-gamma", type=float, default=0.5)
    parser.add_argument("--ftx-gamma", type=float, default=1.0)
    parser.add_argument("--lr", type=float, default=5e-3)
    parser.add_argument("--seed", type=int, default=17)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    opts = parser.parse_args()

    torch.manual_seed(opts.seed)
    policy = GRULM()
    trainer = PreferenceTrainer(policy, opts)
    trainer.fit(PreferenceData(opts.seed), opts.steps)
    test = PreferenceData(opts.seed + 1)
    nll, acc, exact = evaluate(policy, test)
    print(
        f"test: chosen nll/token {nll:.4f}  preference accuracy {acc:.3f}  exact generations {exact:.3f}"
    )
    if opts.prove:
        prove(trainer, test)
