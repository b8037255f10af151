"""Dataset condensation by gradient matching, on noisy postage-stamp emblems.

What is optimised here is not a network: it is 3 tiny pictures per class. Networks are
drawn afresh in every outer round and thrown away. The pictures are moved so that the
gradient they cause in such a network points the same way as the gradient of real data.
They are judged by training new networks on the pictures alone.
"""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

SIDE, CLASSES, PER_CLASS = 12, 5, 3


def emblems():
    t = torch.zeros(CLASSES, SIDE, SIDE)
    t[0, 5:7, 2:10] = 1
    t[0, 2:10, 5:7] = 1  # cross
    t[1, 2:10, 2:10] = 1
    t[1, 4:8, 4:8] = 0  # frame
    for i in range(2, 10):
        t[2, i, i] = t[2, i, min(i + 1, 9)] = 1  # falling diagonal
        t[3, i, 11 - i] = t[3, i, max(10 - i, 2)] = 1  # rising diagonal
    t[4, 2:10, 2:4] = 1
    t[4, 2:10, 8:10] = 1  # two posts
    return t


def print_stamps(n, gen):
    """n stamps: an emblem, shifted by up to a pixel each way, with its own contrast and much grain."""
    base = emblems()
    labels = torch.arange(n) % CLASSES
    labels = labels[torch.randperm(n, generator=gen)]
    shift = torch.randint(-1, 2, (n, 2), generator=gen)
    contrast = 0.7 + 0.6 * torch.rand(n, 1, 1, generator=gen)
    pics = torch.stack(
        [
            torch.roll(base[c], (int(a), int(b)), (0, 1))
            for c, (a, b) in zip(labels.tolist(), shift.tolist())
        ]
    )
    pics = pics * contrast + 0.4 * torch.randn(n, SIDE, SIDE, generator=gen)
    return pics.unsqueeze(1), labels


def fresh_net():
    width = 16
    return nn.Sequential(
        nn.Conv2d(1, width, 3, padding=1),
        nn.GroupNorm(width, width),
        nn.ReLU(),
        nn.AvgPool2d(2),
        nn.Conv2d(width, width, 3, padding=1),
        nn.GroupNorm(width, width),
        nn.ReLU(),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(width * (SIDE // 4) ** 2, CLASSES),
    )


def gradient_distance(ours, theirs):
    """Sum of (1 - cosine) over output units of every weight; vectors (biases, norms) are left out."""
    total = ours[0].new_zeros(())
    for a, b in zip(ours, theirs):
        if a.dim() < 2:
            continue
        total = (
            total
            + (
                1 - F.cosine_similarity(a.flatten(1), b.flatten(1), dim=1, eps=1e-6)
            ).sum()
        )
    return total


def judge(pictures, labels, test, nets=2, steps=60):
    """Mean test accuracy of new networks that have seen nothing but `pictures`."""
    scores = []
    for _ in range(nets):
        net = fresh_net()
        opt = torch.optim.SGD(
            net.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4
        )
        for _ in range(steps):
            # the pictures are few: every step takes them all, jittered by a pixel
            a, b = torch.randint(-1, 2, (2,)).tolist()
            loss = F.cross_entropy(net(torch.roll(pictures, (a, b), (2, 3))), labels)
            opt.zero_grad()
            loss.backward()
            opt.step()
        net.eval()
        with torch.no_grad():
            scores.append((net(test[0]).argmax(1) == test[1]).float().mean().item())
    return sum(scores) / len(scores)


# size: the whole run in one place, read from top to bottom
def main():
    ap = argparse.ArgumentParser()
    ap.add_argument(
        "--steps", type=int, default=24, help="outer rounds, each with a new network"
    )
    ap.add_argument(
        "--inner", type=int, default=4, help="picture updates within a round"
    )
    args = ap.parse_args()
    torch.manual_seed(7)
    gen = torch.Generator().manual_seed(70)
    real_x, real_y = print_stamps(1500, gen)
    test = print_stamps(600, gen)
    by_class = [real_x[real_y == c] for c in range(CLASSES)]

    pictures = (0.3 * torch.randn(CLASSES * PER_CLASS, 1, SIDE, SIDE)).requires_grad_()
    labels = torch.arange(CLASSES).repeat_interleave(PER_CLASS)
    before = judge(pictures.detach(), labels, test)
    picture_opt = torch.optim.SGD([pictures], lr=0.5, momentum=0.5)

    history = []
    for rnd in range(args.steps):
        net = fresh_net()
        weights = list(net.parameters())
        net_opt = torch.optim.SGD(weights, lr=0.02)
        round_loss = 0.0
        for t in range(args.inner):
            loss = pictures.new_zeros(())
            for c in range(CLASSES):
                rows = torch.randint(len(by_class[c]), (48,))
                target = torch.full((48,), c)
                real_grad = torch.autograd.grad(
                    F.cross_entropy(net(by_class[c][rows]), target), weights
                )
                mine = slice(c * PER_CLASS, (c + 1) * PER_CLASS)
                syn_grad = torch.autograd.grad(
                    F.cross_entropy(net(pictures[mine]), labels[mine]),
                    weights,
                    create_graph=True,
                )
                loss = loss + gradient_distance(
                    syn_grad, [g.detach() for g in real_grad]
                )
            picture_opt.zero_grad()
            loss.backward(
                inputs=[pictures]
            )  # second order; the network itself gets no .grad
            assert all(w.grad is None or not w.grad.any() for w in weights)
            picture_opt.step()
            round_loss += loss.item() / args.inner

            # carry the throw-away network a little further, on the pictures as they are now
            for _ in range(3):
                net_opt.zero_grad()
                F.cross_entropy(net(pictures.detach()), labels).backward()
                net_opt.step()
            net_opt.zero_grad()
        history.append(round_loss)
        if rnd % 4 == 0 or rnd == args.steps - 1:
            print(f"round {rnd:3d}  gradient distance {round_loss:8.3f}")

    after = judge(pictures.detach(), labels, test)
    print(
        f"test accuracy of nets trained on {len(labels)} pictures: {before:.3f} -> {after:.3f}"
    )
    assert torch.isfinite(pictures).all()
    if args.steps >= 24:
        assert sum(history[-4:]) < 0.9 * sum(history[:4]), history
        assert after > before + 0.3 and after > 0.7, (before, after)


if __name__ == "__main__":
    main()
