"""Parcels on photographs of any size: a centre-point detector with batches of one picture.

Gradients accumulate over eight pictures; of the empty places only the hardest count (three
per parcel). Training is cut off in the middle of an epoch and goes on from a file, with
random states and place in the epoch. The weights of the last checkpoints are averaged at
the end and saved as half-precision numpy arrays, read back for the final evaluation.
"""

import argparse
import os
import random
import tempfile
from collections import deque

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

STRIDE = 4


def photographs(n, seed):
    """Pictures of odd sizes with up to five parcels (rectangles with a tape), perhaps none."""
    rng = np.random.default_rng(seed)
    out = []
    for _ in range(n):
        h, w = rng.integers(9, 15, 2) * STRIDE
        image = 0.25 * rng.standard_normal((h, w)) + rng.uniform(-0.3, 0.3)
        boxes, used = [], np.zeros((h, w), dtype=bool)
        for _ in range(rng.integers(0, 6)):
            bh, bw = rng.integers(7, 15, 2)
            y, x = rng.integers(0, h - bh), rng.integers(0, w - bw)
            if used[y : y + bh, x : x + bw].any():
                continue
            used[max(0, y - 2) : y + bh + 2, max(0, x - 2) : x + bw + 2] = True
            image[y : y + bh, x : x + bw] += rng.uniform(0.8, 1.4)
            image[y + bh // 2, x : x + bw] -= 0.5
            boxes.append([x + bw / 2, y + bh / 2, bw, bh])
        image = torch.tensor(image[None, None], dtype=torch.float32)
        out.append((image, torch.tensor(boxes, dtype=torch.float32).reshape(-1, 4)))
    return out


class Detector(nn.Module):
    def __init__(self, width=24):
        super().__init__()

        def stage(i, o, stride=1, dilation=1):
            return nn.Sequential(
                nn.Conv2d(i, o, 3, stride, padding=dilation, dilation=dilation),
                nn.GroupNorm(4, o),  # batches of one
                nn.LeakyReLU(0.1),
            )

        self.body = nn.Sequential(
            stage(1, width, 2),
            stage(width, width, 2),
            stage(width, width, 1, 2),
            stage(width, width),
        )
        self.score = nn.Conv2d(width, 1, 1)
        self.box = nn.Conv2d(width, 4, 1)
        nn.init.constant_(self.score.bias, -3.0)

    def forward(self, x):
        x = self.body(x)
        return self.score(x)[0, 0], self.box(x)[0]


def detection_loss(score, box, target, ratio=3):
    """Summed over the cells that count, divided by the parcels by the caller."""
    cell = (target[:, :2] / STRIDE).long()
    positive = torch.zeros_like(score, dtype=torch.bool)
    positive[cell[:, 1], cell[:, 0]] = True
    losses = F.binary_cross_entropy_with_logits(
        score, positive.float(), reduction="none"
    )
    hardest = losses[~positive].topk(max(8, ratio * len(target))).values
    got = box[:, cell[:, 1], cell[:, 0]].T
    offset = target[:, :2] / STRIDE - cell - 0.5
    wanted = torch.cat([offset, (target[:, 2:] / 10).log()], 1)
    return losses[positive].sum() + hardest.sum(), F.smooth_l1_loss(
        got, wanted, reduction="sum"
    )


def mirror(image, target):
    if random.random() < 0.5:
        target = target.clone()
        target[:, 0] = image.size(-1) - target[:, 0]
        image = image.flip(-1)
    return image, target


class Training:
    accumulate = 8

    def __init__(self, data, lr, total):
        self.data, self.total = data, total
        self.model = Detector()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=lr)
        self.schedule = torch.optim.lr_scheduler.PolynomialLR(
            self.optimizer, total_iters=total, power=0.9
        )
        self.step = self.epoch = self.place = 0
        self.kept = deque(maxlen=4)

    def order(self):
        """The same for an epoch however often it is begun."""
        gen = torch.Generator().manual_seed(500 + self.epoch)
        return torch.randperm(len(self.data), generator=gen).tolist()

    def run(self, until):
        self.model.train()
        while self.step < until:
            order = self.order()
            while self.place < len(order) and self.step < until:
                group = order[self.place : self.place + self.accumulate]
                pictures = [mirror(*self.data[i]) for i in group]
                parcels = max(1, sum(len(t) for _, t in pictures))
                self.optimizer.zero_grad()
                shown = 0.0
                for image, target in pictures:
                    where, what = detection_loss(*self.model(image), target)
                    loss = (where + what) / parcels
                    loss.backward()
                    shown += loss.item()
                nn.utils.clip_grad_value_(self.model.parameters(), 1.0)
                self.optimizer.step()
                self.schedule.step()
                self.step += 1
                self.place += len(group)
                if self.step % 5 == 0:
                    print(f"epoch {self.epoch} step {self.step} loss {shown:.4f}")
                if self.step % 4 == 0:
                    state = self.model.state_dict()
                    self.kept.append({k: v.clone() for k, v in state.items()})
            if self.place >= len(order):
                self.epoch, self.place = self.epoch + 1, 0

    def save(self, path):
        state = {k: getattr(self, k) for k in ("step", "epoch", "place")}
        state["kept"] = list(self.kept)
        state["random"] = random.getstate()
        state["torch_random"] = torch.get_rng_state()
        for k in ("model", "optimizer", "schedule"):
            state[k] = getattr(self, k).state_dict()
        torch.save(state, path)

    def load(self, path):
        state = torch.load(path, weights_only=True)
        for k in ("step", "epoch", "place"):
            setattr(self, k, state[k])
        self.kept.extend(state["kept"])
        random.setstate(state["random"])
        torch.set_rng_state(state["torch_random"])
        for k in ("model", "optimizer", "schedule"):
            getattr(self, k).load_state_dict(state[k])

    def average(self):
        return {k: sum(s[k] for s in self.kept) / len(self.kept) for k in self.kept[0]}


@torch.inference_mode()
def f_measure(model, data):
    """A parcel is found if a peak lies in its cell or the next and the size is about right."""
    model.eval()
    found = peaks = parcels = 0
    for image, target in data:
        score, box = model(image)
        top = F.max_pool2d(score[None], 3, 1, 1)[0]
        y, x = ((score == top) & (score > 0)).nonzero().T
        xy = torch.stack([x, y], 1) + 0.5 + box[:2, y, x].T
        wh = 10 * box[2:, y, x].T.exp()
        near = (xy[:, None] * STRIDE - target[None, :, :2]).abs().amax(-1) < STRIDE
        near &= ((wh[:, None] / target[None, :, 2:]).log().abs() < 0.4).all(-1)
        found += near.any(0).sum().item()
        peaks += len(x)
        parcels += len(target)
    model.train()
    return 2 * found / max(1, peaks + parcels)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=80)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(6)
    random.seed(6)
    data, held_out = photographs(180, 1), photographs(80, 2)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "training.pt")
        first = Training(data, 3e-3, args.steps)
        first.run(until=args.steps * 9 // 20)
        first.save(path)
        print(f"cut off in epoch {first.epoch} after {first.place} pictures")
        del first

        training = Training(data, 3e-3, args.steps)
        training.load(path)
        print(f"goes on, F {f_measure(training.model, held_out):.3f}")
        training.run(until=args.steps)
        print(f"last weights, F {f_measure(training.model, held_out):.3f}")

        path = os.path.join(folder, "average.npz")
        average = training.average()
        np.savez(path, **{k: v.numpy().astype(np.float16) for k, v in average.items()})
        with np.load(path) as arrays:
            state = {k: torch.from_numpy(arrays[k]).float() for k in arrays.files}
        final = Detector()
        final.load_state_dict(state)
        print(
            f"average of the last {len(training.kept)}, F {f_measure(final, held_out):.3f}"
        )


if __name__ == "__main__":
    main()
