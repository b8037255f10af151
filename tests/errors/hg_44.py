"""HG-44: the validation runs in training mode, and its batches enter the statistics.

Source: princeton-vl/pytorch_stacked_hourglass#44. One function makes the steps of
both phases and calls train() for both. Without gradients nothing is learned from the
validation, but the batch normalisation averages its images into the running numbers,
and the score is made with the statistics of the validation's own batches. --fixed
calls eval() in the validation.
"""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def conv_bn(cin, cout, stride=1):
    conv = nn.Conv2d(cin, cout, 3, padding=1, stride=stride, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(cout), nn.ReLU())


class Hourglass(nn.Module):
    """Heat maps of key points: down, up, and a path around."""

    def __init__(self, width=8, points=2):
        super().__init__()
        self.pre = conv_bn(1, width)
        self.down = conv_bn(width, 2 * width, stride=2)
        self.middle = conv_bn(2 * width, width)
        self.up = nn.Upsample(scale_factor=2)
        self.out = nn.Conv2d(width, points, 1)

    def forward(self, image):
        x = self.pre(image)
        return self.out(self.up(self.middle(self.down(x))) + x)


class Pose:
    def __init__(self, eval_in_validation):
        self.net = Hourglass()
        self.optimizer = torch.optim.RMSprop(self.net.parameters(), lr=2e-3)
        self.eval_in_validation = eval_in_validation

    def make_network(self, phase, images, heat):
        if phase == "valid" and self.eval_in_validation:
            self.net.eval()
        else:
            self.net.train()
        with torch.set_grad_enabled(phase == "train"):
            loss = nn.functional.mse_loss(self.net(images), heat)
        if phase == "train":
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        return loss.item()

    def statistics(self):
        buffers = [b.detach().float().flatten() for b in self.net.buffers()]
        return torch.cat(buffers).clone()


def people(count, light, seed):
    g = torch.Generator().manual_seed(seed)
    grid = torch.arange(16.0)
    at = 3 + 10 * torch.rand(count, 2, 2, 1, 1, generator=g)
    distance = (grid - at[:, :, 0]) ** 2 + (grid[:, None] - at[:, :, 1]) ** 2
    heat = torch.exp(-distance / 4)
    image = light * (heat[:, :1] - 0.6 * heat[:, 1:])
    image = image + 0.2 * torch.randn(image.shape, generator=g)
    return TensorDataset(image, heat)


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=24)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    loaders = {
        "train": DataLoader(people(128, 1.0, 1), batch_size=16, shuffle=True),
        "valid": DataLoader(people(48, 1.6, 2), batch_size=16),
    }
    pose = Pose(eval_in_validation=options.fixed)
    entered = False
    step = 0
    while step < options.steps:
        for batch in loaders["train"]:
            if step == options.steps:
                break
            loss = pose.make_network("train", *batch)
            print(f"step {step} loss {loss:.4f}", flush=True)
            step += 1
        before = pose.statistics()
        losses = [pose.make_network("valid", *batch) for batch in loaders["valid"]]
        entered = entered or not torch.equal(before, pose.statistics())
        print(f"validation {sum(losses) / len(losses):.4f}", flush=True)
    if options.prove:
        print("fault shows:", "yes" if entered else "no")


if __name__ == "__main__":
    main()
