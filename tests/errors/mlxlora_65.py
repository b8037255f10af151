"""ORPO on synthetic preference pairs, written with functional transforms (torch.func)."""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.func import functional_call, grad_and_value

VOCAB, PROMPT, ANSWER = 20, 4, 5


def preference_pairs(n, seed):
    """The preferred answer continues the prompt by its rule; the other one breaks it in some places."""
    g = torch.Generator().manual_seed(seed)
    start = torch.randint(0, VOCAB, (n, 1), generator=g)
    stride = torch.randint(1, 4, (n, 1), generator=g)
    line = (start + stride * torch.arange(PROMPT + ANSWER)) % VOCAB
    prompt, chosen = line[:, :PROMPT], line[:, PROMPT:]
    shift = torch.randint(1, VOCAB, chosen.shape, generator=g)
    slip, broken = torch.rand(2, *chosen.shape, generator=g)
    broken[:, 0] *= torch.rand(n, generator=g)
    rejected = torch.where(broken < 0.5, (chosen + shift) % VOCAB, chosen)
    chosen = torch.where(slip < 0.15, (chosen + shift.flip(1)) % VOCAB, chosen)
    return torch.cat([prompt, chosen], 1), torch.cat([prompt, rejected], 1)


class LM(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, width)
        self.l1 = nn.Linear(3 * width, 96)
        self.l2 = nn.Linear(96, 96)
        self.head = nn.Linear(96, VOCAB)

    def forward(self, ids):
        e = self.emb(ids)
        back1 = F.pad(e, (0, 0, 1, 0))[:, :-1]
        back2 = F.pad(e, (0, 0, 2, 0))[:, :-2]
        h = F.gelu(self.l1(torch.cat([e, back1, back2], -1)))
        return self.head(h + F.gelu(self.l2(h)))


def get_logps(model, params, ids):
    """Mean log-probability per answer token."""
    logits = functional_call(model, params, (ids,))
    logp = F.log_softmax(logits[:, :-1], -1).gather(2, ids[:, 1:, None]).squeeze(-1)
    return logp[:, PROMPT - 1 :].mean(1)


def orpo_loss(chosen_logps, rejected_logps, beta):
    def log_odds(lp):
        return lp - torch.log1p(-lp.exp().clamp(max=1 - 1e-6))

    ratio = log_odds(chosen_logps) - log_odds(rejected_logps)
    loss = -chosen_logps.mean() - beta * F.logsigmoid(ratio).mean()
    metrics = dict(
        chosen_r=beta * chosen_logps.mean(),
        rejected_r=beta * rejected_logps.mean(),
        accuracy=(chosen_logps > rejected_logps).float().mean(),
    )
    metrics["margin"] = metrics["chosen_r"] - metrics["rejected_r"]
    return loss, {k: v.detach() for k, v in metrics.items()}


class Adam:
    """Adam for a dict of tensors."""

    def __init__(self, params, lr, b1=0.9, b2=0.98, eps=1e-8):
        self.lr, self.b1, self.b2, self.eps, self.t = lr, b1, b2, eps, 0
        self.m = {k: torch.zeros_like(v) for k, v in params.items()}
        self.v = {k: torch.zeros_like(v) for k, v in params.items()}

    @torch.no_grad()
    def update(self, params, grads):
        self.t += 1
        new = {}
        for k, p in params.items():
            self.m[k].lerp_(grads[k], 1 - self.b1)
            self.v[k].lerp_(grads[k].square(), 1 - self.b2)
            m = self.m[k] / (1 - self.b1**self.t)
            v = self.v[k] / (1 - self.b2**self.t)
            new[k] = p - self.lr * m / (v.sqrt() + self.eps)
        return new


class ORPOTrainer:
    def __init__(self, model, args):
        self.model, self.args = model, args
        self.params = {k: v.detach().clone() for k, v in model.named_parameters()}
        self.optimizer = Adam(self.params, args.lr)
        self.value_and_grad = grad_and_value(self.loss_wrapper, has_aux=True)

    def loss_wrapper(self, params, chosen, rejected):
        if self.args.fixed:
            chosen = get_logps(self.model, params, chosen)
            rejected = get_logps(self.model, params, rejected)
        return orpo_loss(chosen, rejected, self.args.beta)

    def step(self, chosen, rejected):
        if self.args.fixed:
            inputs = (chosen, rejected)
        else:
            inputs = (
                get_logps(self.model, self.params, chosen),
                get_logps(self.model, self.params, rejected),
            )
        grads, (loss, metrics) = self.value_and_grad(self.params, *inputs)
        self.params = self.optimizer.update(self.params, grads)
        return loss.item(), metrics, grads

    @torch.no_grad()
    def evaluate(self, pairs):
        c, r = (get_logps(self.model, self.params, p) for p in pairs)
        loss, metrics = orpo_loss(c, r, self.args.beta)
        return loss.item(), metrics["accuracy"].item()


def reference_grad_norm(model, params, chosen, rejected, beta):
    leaves = {k: v.detach().clone().requires_grad_() for k, v in params.items()}
    loss, _ = orpo_loss(
        get_logps(model, leaves, chosen), get_logps(model, leaves, rejected), beta
    )
    return (
        sum(g.square().sum() for g in torch.autograd.grad(loss, list(leaves.values())))
        .sqrt()
        .item()
    )


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=150)
    ap.add_argument("--batch-size", type=int, default=32)
    ap.add_argument("--beta", type=float, default=0.2)
    ap.add_argument("--lr", type=float, default=1e-3)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()

    torch.manual_seed(6)
    train, test = preference_pairs(2048, 1), preference_pairs(512, 2)
    trainer = ORPOTrainer(LM(), args)
    print("before: test loss %.4f accuracy %.3f" % trainer.evaluate(test))
    g = torch.Generator().manual_seed(9)
    worst = 0.0
    for it in range(args.steps):
        idx = torch.randint(0, len(train[0]), (args.batch_size,), generator=g)
        chosen, rejected = train[0][idx], train[1][idx]
        if args.prove:
            want = reference_grad_norm(
                trainer.model, trainer.params, chosen, rejected, args.beta
            )
        loss, metrics, grads = trainer.step(chosen, rejected)
        if args.prove:
            have = sum(v.square().sum() for v in grads.values()).sqrt().item()
            worst = max(worst, abs(have - want) / want)
        if it % 25 == 0 or it == args.steps - 1:
            print(
                f"iter {it:3d} loss {loss:.4f} "
                + " ".join(f"{k} {v.item():.3f}" for k, v in metrics.items())
            )
    print("after: test loss %.4f accuracy %.3f" % trainer.evaluate(test))

    if args.prove:
        print(
            f"gradient norm used vs expected: largest relative difference {worst:.4f}"
        )
        print("fault shows:", "yes" if worst > 1e-3 else "no")


if __name__ == "__main__":
    main()
