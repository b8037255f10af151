#!/usr/bin/env python
# Preference tuning (DPO) of a text-to-speech-token language model.
# Stage 1 trains on the chosen recordings, stage 2 continues with pairs and a frozen reference.
import argparse
import copy

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence

IGNORE_ID = -1
TEXT, SPEECH = 20, 30  # vocabulary sizes
SOS, TASK = 0, 1  # special input tokens
EOS = SPEECH  # last speech class


class SpeechLM(nn.Module):
    def __init__(self, dim=72):
        super().__init__()
        self.special = nn.Embedding(2, dim)
        self.text_emb = nn.Embedding(TEXT, dim)
        self.speech_emb = nn.Embedding(SPEECH + 1, dim)
        self.rnn = nn.GRU(dim, dim, num_layers=2, batch_first=True)
        self.decoder = nn.Linear(dim, SPEECH + 1)

    def forward(self, text, speech):
        """Lists of 1-d tensors -> logits [B, T, C] and targets [B, T] (prompt = IGNORE_ID)."""
        inputs, targets = [], []
        for t, s in zip(text, speech):
            head = torch.cat(
                [
                    self.special.weight[SOS : SOS + 1],
                    self.text_emb(t),
                    self.special.weight[TASK : TASK + 1],
                ]
            )
            inputs.append(torch.cat([head, self.speech_emb(s)]))
            targets.append(
                torch.cat(
                    [torch.full((len(t) + 1,), IGNORE_ID), s, torch.tensor([EOS])]
                )
            )
        x = pad_sequence(inputs, batch_first=True)
        y = pad_sequence(targets, batch_first=True, padding_value=IGNORE_ID)
        h, _ = self.rnn(x)
        return self.decoder(h), y


def make_pairs(n, seed):
    g = torch.Generator().manual_seed(seed)
    book = torch.randint(
        0, SPEECH, (TEXT, 2), generator=torch.Generator().manual_seed(99)
    )
    pairs = []
    for _ in range(n):
        text = torch.randint(
            0, TEXT, (int(torch.randint(3, 7, (1,), generator=g)),), generator=g
        )
        clean = book[text].reshape(-1)
        good = torch.where(
            torch.rand(len(clean), generator=g) < 0.12,
            torch.randint(0, SPEECH, clean.shape, generator=g),
            clean,
        )
        # the worse recording: some syllables are said with the shifted sound
        slip = torch.rand(len(clean), generator=g) < 0.4
        bad = torch.where(slip, (clean + 1) % SPEECH, clean)
        if int(torch.randint(0, 2, (1,), generator=g)):
            bad = bad[:-1]
        pairs.append((text, good, bad))
    return pairs


def sequence_logps(logits, target, mask):
    index = target.masked_fill(target == IGNORE_ID, 0).unsqueeze(-1)
    token_logps = logits.log_softmax(-1).gather(2, index).squeeze(-1)
    return (token_logps * mask).sum(-1) / mask.sum(-1).clamp(min=1)


def pair_logps(model, batch, fixed):
    text = [b[0] for b in batch]
    n = len(batch)
    logits, target = model(text + text, [b[1] for b in batch] + [b[2] for b in batch])
    mask = target != IGNORE_ID if fixed else target == IGNORE_ID
    logps = sequence_logps(logits, target, mask)
    ce = nn.functional.cross_entropy(
        logits[:n].transpose(1, 2), target[:n], ignore_index=IGNORE_ID
    )
    return logps[:n], logps[n:], ce


@torch.no_grad()
def answer_logps(model, text, speech):
    """Mean log-probability of one recording, token by token."""
    logits, _ = model([text], [speech])
    lp = logits[0, len(text) + 1 :].log_softmax(-1)
    want = torch.cat([speech, torch.tensor([EOS])])
    return torch.stack([lp[i, c] for i, c in enumerate(want.tolist())]).mean()


@torch.no_grad()
def preference(model, ref, pairs):
    """Share of held-out pairs where the policy moved to the chosen side, and mean margin."""
    gain = []
    for text, good, bad in pairs:
        gain.append(
            (answer_logps(model, text, good) - answer_logps(ref, text, good))
            - (answer_logps(model, text, bad) - answer_logps(ref, text, bad))
        )
    gain = torch.stack(gain)
    return (gain > 0).float().mean().item(), gain.mean().item()


def draw(data, size, g):
    return [data[i] for i in torch.randint(0, len(data), (size,), generator=g).tolist()]


def run(args):
    torch.manual_seed(7)
    torch.set_num_threads(1)
    train, held = make_pairs(1200, 1), make_pairs(80, 2)
    g = torch.Generator().manual_seed(3)
    model = SpeechLM()

    opt = torch.optim.Adam(model.parameters(), lr=4e-3)
    for step in range(args.sft_steps):
        batch = draw(train, args.batch, g)
        logits, target = model([b[0] for b in batch], [b[1] for b in batch])
        loss = nn.functional.cross_entropy(
            logits.transpose(1, 2), target, ignore_index=IGNORE_ID
        )
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        opt.step()
        if step % 15 == 0:
            print(f"[sft] {step:3d} loss {loss.item():.4f}")

    ref = copy.deepcopy(model).eval().requires_grad_(False)
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(args.steps):
        batch = draw(train, args.batch, g)
        chosen, rejected, ce = pair_logps(model, batch, args.fixed)
        with torch.no_grad():
            ref_chosen, ref_rejected, _ = pair_logps(ref, batch, args.fixed)
        margin = (chosen - rejected) - (ref_chosen - ref_rejected)
        dpo = -nn.functional.logsigmoid(args.beta * margin).mean()
        loss = dpo + args.sft_weight * ce
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        opt.step()
        if step % 15 == 0 or step == args.steps - 1:
            acc = (margin > 0).float().mean().item()
            print(
                f"[dpo] {step:3d} loss {loss.item():.4f} dpo {dpo.item():.4f} "
                f"ce {ce.item():.4f} acc {acc:.2f}"
            )

    acc, gain = preference(model, ref, held)
    print(f"held-out preference accuracy {acc:.3f}, margin {gain:+.3f}")
    if args.prove:
        batch = held[:16]
        with torch.no_grad():
            chosen, rejected, _ = pair_logps(model, batch, args.fixed)
        true_c = torch.stack([answer_logps(model, t, c) for t, c, _ in batch])
        true_r = torch.stack([answer_logps(model, t, r) for t, _, r in batch])
        gap = max(
            (chosen - true_c).abs().max().item(), (rejected - true_r).abs().max().item()
        )
        print(f"largest gap to the token-by-token log-probability: {gap:.5f}")
        print("fault shows:", "yes" if gap > 1e-3 else "no")


if __name__ == "__main__":
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--steps", type=int, default=75, help="preference steps")
    p.add_argument("--sft-steps", type=int, default=60)
    p.add_argument("--batch", type=int, default=24)
    p.add_argument("--beta", type=float, default=2.0)
    p.add_argument("--sft-weight", type=float, default=0.3)
    p.add_argument("--fixed", action="store_true")
    p.add_argument("--prove", action="store_true")
    run(p.parse_args())
