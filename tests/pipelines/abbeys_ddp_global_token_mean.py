"""Two gloo ranks tag abbey chants of very different lengths; the loss is a mean over ALL tokens of a step.

DDP averages gradients over ranks, and accumulation would average over micro-batches, so a mean per micro-batch
would give short chants too much weight.  Here each rank sums its token losses, divides by the token count of the
whole step (all ranks, all micro-batches) and multiplies by the number of ranks to undo DDP's average.  All
micro-batches but the last run under no_sync.  A single process check proves equality with the plain mean.
"""
import argparse
import copy
import os
import socket
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

WORLD, MICRO, ACCUM = 2, 5, 2
NEUMES, TAGS, IGNORE = 20, 5, -100


def make_chants(n, seed):
    """A neume has the tag of its group, but one that follows a liquescent neume (every third sign) has tag 4."""
    g = torch.Generator().manual_seed(seed)
    chants = []
    for _ in range(n):
        length = int(
            3 + 40 * torch.rand(1, generator=g) ** 3
        )  # many short chants, few long ones
        neumes = torch.randint(1, NEUMES, (length,), generator=g)
        follows = torch.cat([torch.tensor([False]), neumes[:-1] % 3 == 0])
        tags = torch.where(follows, TAGS - 1, neumes % (TAGS - 1))
        chants.append((neumes, tags))
    return chants


def collate(chants):
    x = pad_sequence([c[0] for c in chants], batch_first=True)
    y = pad_sequence([c[1] for c in chants], batch_first=True, padding_value=IGNORE)
    return x, y, torch.tensor([len(c[0]) for c in chants])


class Tagger(nn.Module):
    def __init__(self, dim=24, hidden=32):
        super().__init__()
        self.embed = nn.Embedding(NEUMES, dim, padding_idx=0)
        self.rnn = nn.GRU(dim, hidden, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * hidden, TAGS)

    def forward(self, x, lengths):
        packed = pack_padded_sequence(
            self.embed(x), lengths, batch_first=True, enforce_sorted=False
        )
        h, _ = pad_packed_sequence(
            self.rnn(packed)[0], batch_first=True, total_length=x.shape[1]
        )
        return self.out(h)


def token_sum(logits, y):
    return F.cross_entropy(
        logits.flatten(0, 1), y.flatten(), ignore_index=IGNORE, reduction="sum"
    )


def step_indices(step, total, seed):
    """The same permutation on each rank; a rank takes its own part of it: no chant is seen twice in an epoch."""
    per_step = WORLD * MICRO * ACCUM
    steps_per_epoch = total // per_step
    epoch, at = divmod(step, steps_per_epoch)
    order = torch.randperm(
        total, generator=torch.Generator().manual_seed(seed * 1000 + epoch)
    )
    return order[at * per_step : (at + 1) * per_step].view(WORLD, ACCUM, MICRO)


def backward_step(ddp, micro_batches):
    counts = torch.tensor(
        float(sum((y != IGNORE).sum().item() for _, y, _ in micro_batches))
    )
    dist.all_reduce(counts)
    reported = torch.zeros(())
    for i, (x, y, lengths) in enumerate(micro_batches):

        def run():
            part = token_sum(ddp(x, lengths), y) / counts
            (part * WORLD).backward()
            return part.detach()

        if i < len(micro_batches) - 1:
            with ddp.no_sync():
                reported += run()
        else:
            reported += run()
    dist.all_reduce(reported)
    return reported.item(), int(counts)


def check_against_one_process(model, ddp, train, index, rank):
    """The synchronised gradient equals the gradient of the plain token mean over the whole step."""
    alone = copy.deepcopy(model)
    x, y, lengths = collate([train[i] for i in index.flatten().tolist()])
    F.cross_entropy(
        alone(x, lengths).flatten(0, 1), y.flatten(), ignore_index=IGNORE
    ).backward()
    backward_step(
        ddp, [collate([train[i] for i in part.tolist()]) for part in index[rank]]
    )
    for a, b in zip(alone.parameters(), model.parameters()):
        assert torch.allclose(a.grad, b.grad, atol=1e-6, rtol=1e-4), "gradients differ"
    ddp.zero_grad(set_to_none=True)


@torch.no_grad()
def evaluate(model, held, rank):
    """Strided shards of unequal size on the bare module; sums are reduced, so no chant is counted twice."""
    model.eval()
    mine = held[rank::WORLD]
    x, y, lengths = collate(mine)
    logits = model(x, lengths)
    valid = y != IGNORE
    sums = torch.tensor(
        [
            token_sum(logits, y).item(),
            ((logits.argmax(2) == y) & valid).sum().item(),
            valid.sum().item(),
            len(mine),
        ],
        dtype=torch.float64,
    )
    dist.all_reduce(sums)
    model.train()
    assert int(sums[3]) == len(held)
    return (sums[0] / sums[2]).item(), (sums[1] / sums[2]).item()


def worker(rank, port, args, folder):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=WORLD)
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    train, held = make_chants(720, 1), make_chants(151, 2)
    model = Tagger()
    ddp = DDP(model)
    check_against_one_process(
        model, ddp, train, step_indices(0, len(train), args.seed), rank
    )

    opt = torch.optim.AdamW(model.parameters(), lr=8e-3, weight_decay=1e-3)
    sched = torch.optim.lr_scheduler.LambdaLR(
        opt, lambda s: min(1, (s + 1) / 10) * max(0.05, 1 - s / args.steps)
    )
    start, losses = evaluate(model, held, rank), []
    for step in range(args.steps):
        index = step_indices(step, len(train), args.seed)
        loss, tokens = backward_step(
            ddp, [collate([train[i] for i in part.tolist()]) for part in index[rank]]
        )
        nn.utils.clip_grad_norm_(
            model.parameters(), 1.0
        )  # after the reduction: the same factor on both ranks
        opt.step()
        opt.zero_grad(set_to_none=True)
        sched.step()
        losses.append(loss)
        if rank == 0 and (step + 1) % 20 == 0:
            print(
                f"step {step + 1:4d} tokens {tokens:4d} loss per token {loss:.4f}",
                flush=True,
            )

    end = evaluate(model, held, rank)
    mine = torch.cat([p.detach().flatten() for p in model.parameters()])
    both = [torch.empty_like(mine) for _ in range(WORLD)]
    dist.all_gather(both, mine)
    assert torch.equal(both[0], both[1]), "replicas have drifted apart"

    path = os.path.join(folder, "tagger.pt")
    if rank == 0:
        torch.save(model.state_dict(), path)
    dist.barrier()
    fresh = Tagger()
    fresh.load_state_dict(torch.load(path, weights_only=True))
    assert evaluate(fresh, held, rank) == end
    if rank == 0:
        print(
            f"held-out loss {start[0]:.3f} -> {end[0]:.3f}, accuracy {start[1]:.3f} -> {end[1]:.3f}",
            flush=True,
        )
    if args.steps >= 70:
        assert sum(losses[-10:]) < 0.5 * sum(losses[:10]) and end[1] > start[1] + 0.3
    dist.barrier()
    dist.destroy_process_group()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=80)
    ap.add_argument("--seed", type=int, default=7)
    args = ap.parse_args()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(worker, args=(port, args, folder), nprocs=WORLD, join=True)


if __name__ == "__main__":
    main()
