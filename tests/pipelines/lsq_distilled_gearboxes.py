"""In which of five gears a box runs, from its vibration (conv1d): learnt step sizes.

A teacher is trained, then a student that starts as its copy learns in few bits. The
steps of its weights are parameters in a parametrization, with a rate and a gradient
scale of their own (LSQ), those of activations follow what is observed until the fourth
epoch; rounding passes the gradient straight through within the range. Bits fall from 8
over 6 to 4, and the loss jumps there. The student's BatchNorm stays in evaluation mode
throughout; the teacher answers in inference mode, at a temperature.
"""

import argparse

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrize

GEARS, ROWS, BATCH, TEMPERATURE = 5, 1024, 128, 3.0


class Round(torch.autograd.Function):
    @staticmethod
    def forward(ctx, values, low, high):
        ctx.save_for_backward((values >= low) & (values <= high))
        return values.round().clamp(low, high)

    @staticmethod
    def backward(ctx, gradient):
        (within,) = ctx.saved_tensors
        return gradient * within, None, None


class LearntStep(nn.Module):
    def __init__(self, weight, bits):
        super().__init__()
        self.set_bits(bits)
        self.step = nn.Parameter(2 * weight.detach().abs().mean() / self.high**0.5)

    def set_bits(self, bits):
        self.low, self.high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1

    @torch.no_grad()
    def go_to(self, bits):
        before = self.high
        self.set_bits(bits)
        self.step.mul_((before / self.high) ** 0.5)

    def forward(self, weight):
        scale = 1 / (weight.numel() * self.high) ** 0.5
        step = (self.step - self.step * scale).detach() + self.step * scale
        return Round.apply(weight / step, self.low, self.high) * step


class Activations(nn.Module):
    def __init__(self, bits=8):
        super().__init__()
        self.levels, self.observe = 2**bits - 1, True
        self.register_buffer("top", torch.tensor(-1.0))

    def forward(self, values):
        if self.training and self.observe:
            most = values.detach().amax()
            self.top.copy_(most if self.top < 0 else self.top * 0.9 + most * 0.1)
        step = self.top / self.levels
        return Round.apply(values / step, 0, self.levels) * step


def new_net(after_relu):
    return nn.Sequential(
        nn.Conv1d(3, 16, 5, padding=2), nn.BatchNorm1d(16),
        nn.Sequential(nn.ReLU(), after_relu()),
        nn.Conv1d(16, 24, 5, stride=2, padding=2), nn.BatchNorm1d(24),
        nn.Sequential(nn.ReLU(), after_relu()),
        nn.AdaptiveAvgPool1d(4), nn.Flatten(), nn.Linear(96, GEARS),
    )  # fmt: skip


def vibrations(count, seed):
    generator = torch.Generator().manual_seed(seed)
    gear = torch.randint(GEARS, (count,), generator=generator)
    speed = (gear + 1).float()[:, None, None]
    phase = torch.rand(count, 3, 1, generator=generator) * 6.28
    waves = torch.sin(speed * torch.linspace(0, 6.28, 32) + phase)
    return waves + 0.8 * torch.randn(count, 3, 32, generator=generator), gear


@torch.no_grad()
def accuracy(net, waves, gear):
    mode = net.training
    net.eval()
    right = (net(waves).argmax(1) == gear).float().mean().item()
    net.train(mode)
    return right


def trained_teacher(waves, gear):
    net = new_net(nn.Identity)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-2, total_steps=24)
    for _ in range(3):
        for rows in torch.randperm(ROWS).split(BATCH):
            optimizer.zero_grad()
            loss = F.cross_entropy(net(waves[rows]), gear[rows], label_smoothing=0.1)
            loss.backward()
            optimizer.step()
            schedule.step()
    return net.eval().requires_grad_(False)


def quantized_copy(teacher, waves):
    net = new_net(Activations)
    weights = {name: value.clone() for name, value in teacher.state_dict().items()}
    net.load_state_dict(weights, strict=False)
    for layer in list(net):
        if isinstance(layer, (nn.Conv1d, nn.Linear)):
            step = LearntStep(layer.weight, 8)
            parametrize.register_parametrization(layer, "weight", step, unsafe=True)
    net.eval()
    for module in net.modules():
        if isinstance(module, Activations):
            module.train()
    with torch.no_grad():
        net(waves[:256])  # ranges before the first step
    return net


def prepare(net, epoch):
    net.train()
    bits = (8, 6, 4)[min(epoch, 2)]
    for module in net.modules():
        if isinstance(module, nn.BatchNorm1d):
            module.eval()
        elif isinstance(module, LearntStep):
            module.go_to(bits)
        elif isinstance(module, Activations):
            module.observe = epoch < 3
    return bits


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5, help="of the student")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    (waves, gear), held_out = vibrations(ROWS, 1), vibrations(512, 2)
    teacher = trained_teacher(waves, gear)
    student = quantized_copy(teacher, waves)
    steps, rest = [], []
    for name, parameter in student.named_parameters():
        (steps if name.endswith(".step") else rest).append(parameter)
    groups = [{"params": rest}, {"params": steps, "lr": 2e-3}]
    optimizer = torch.optim.SGD(groups, lr=1e-2, momentum=0.9)
    for epoch in range(options.epochs):
        bits = prepare(student, epoch)
        for rows in torch.randperm(ROWS).split(BATCH):
            with torch.inference_mode():
                soft = teacher(waves[rows]).div(TEMPERATURE).log_softmax(-1)
            scores = student(waves[rows])
            distilled = F.kl_div(
                scores.div(TEMPERATURE).log_softmax(-1),
                soft.clone(),
                reduction="batchmean",
                log_target=True,
            )
            hard = F.cross_entropy(scores, gear[rows])
            loss = 0.7 * TEMPERATURE**2 * distilled + 0.3 * hard
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(
            f"epoch {epoch} bits {bits} loss {loss.item():.3f} "
            f"accuracy {accuracy(student, *held_out):.3f}"
        )
    print(f"teacher {accuracy(teacher, *held_out):.3f}")


if __name__ == "__main__":
    main()
