import argparse
import copy
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

# helpers


def exists(val):
    return val is not None


def is_float_dtype(dtype):
    return dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16)


def cycle(dl):
    while True:
        for data in dl:
            yield data


# moving average of a model


class EMA(nn.Module):
    def __init__(
        self,
        model,
        beta=0.98,
        update_after_step=30,
        update_every=1,
        inv_gamma=1.0,
        power=2 / 3,
        min_value=0.0,
        fixed=False,
    ):
        super().__init__()
        self.beta = beta
        self.online_model = model
        self.ema_model = copy.deepcopy(model)
        self.ema_model.requires_grad_(False)

        self.parameter_names = {
            name
            for name, param in self.ema_model.named_parameters()
            if is_float_dtype(param.dtype)
        }
        self.buffer_names = {
            name
            for name, buffer in self.ema_model.named_buffers()
            if is_float_dtype(buffer.dtype)
        }

        self.update_every = update_every
        self.update_after_step = update_after_step
        self.inv_gamma = inv_gamma
        self.power = power
        self.min_value = min_value
        self.fixed = fixed

        self.register_buffer("initted", torch.tensor([False]))
        self.register_buffer("step", torch.tensor([0]))

    def get_params_iter(self, model):
        for name, param in model.named_parameters():
            if name not in self.parameter_names:
                continue
            yield name, param

    def get_buffers_iter(self, model):
        named = model.named_buffers() if self.fixed else model.named_parameters()
        for name, buffer in named:
            if name not in self.buffer_names:
                continue
            yield name, buffer

    def paired(self, iterator):
        yield from zip(iterator(self.ema_model), iterator(self.online_model))

    def copy_params_from_model_to_ema(self):
        for (_, ma_params), (_, current_params) in self.paired(self.get_params_iter):
            ma_params.data.copy_(current_params.data)

        for (_, ma_buffers), (_, current) in self.paired(self.get_buffers_iter):
            ma_buffers.data.copy_(current.data)

    def get_current_decay(self):
        epoch = max(self.step.item() - self.update_after_step - 1, 0)
        value = 1 - (1 + epoch / self.inv_gamma) ** -self.power
        return min(max(value, self.min_value), self.beta) if epoch > 0 else 0.0

    def update(self):
        step = self.step.item()
        self.step += 1

        if (step % self.update_every) != 0:
            return

        if step <= self.update_after_step:
            self.copy_params_from_model_to_ema()
            return

        if not self.initted.item():
            self.copy_params_from_model_to_ema()
            self.initted.data.copy_(torch.tensor([True]))

        self.update_moving_average()

    @torch.no_grad()
    def update_moving_average(self):
        weight = 1.0 - self.get_current_decay()

        for (_, ma_params), (_, current_params) in self.paired(self.get_params_iter):
            ma_params.lerp_(current_params, weight)

        for (_, ma_buffer), (_, current) in self.paired(self.get_buffers_iter):
            ma_buffer.lerp_(current, weight)

    def forward(self, *args, **kwargs):
        return self.ema_model(*args, **kwargs)


# data: textured patches, the class is the direction and period of the texture


class Textures(Dataset):
    def __init__(self, count, size=20, classes=6, seed=0):
        g = torch.Generator().manual_seed(seed)
        grid = torch.arange(size).float()
        yy, xx = torch.meshgrid(grid, grid, indexing="ij")
        self.labels = torch.randint(classes, (count,), generator=g)
        angle = (self.labels % 3).float() * torch.pi / 3
        period = torch.where(self.labels < 3, 4.0, 7.0)
        phase = torch.rand(count, generator=g) * 6.28
        along = (
            angle.cos()[:, None, None] * xx + angle.sin()[:, None, None] * yy
        ) / period[:, None, None]
        wave = torch.sin(6.28 * along + phase[:, None, None])
        colour = torch.rand(count, 3, 1, 1, generator=g) * 0.5 + 0.5
        noise = torch.randn(count, 3, size, size, generator=g)
        self.images = 3.0 + 1.2 * colour * wave[:, None] + 1.3 * noise

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, ind):
        return self.images[ind], self.labels[ind]


# model


class Residual(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(dim, dim, 3, padding=1, bias=False),
            nn.BatchNorm2d(dim),
            nn.SiLU(),
            nn.Conv2d(dim, dim, 1, bias=False),
            nn.BatchNorm2d(dim),
        )

    def forward(self, x):
        return F.silu(x + self.net(x))


def Classifier(dim=20, classes=6):
    return nn.Sequential(
        nn.Conv2d(3, dim, 5, stride=2, padding=2, bias=False),
        nn.BatchNorm2d(dim),
        nn.SiLU(),
        Residual(dim),
        nn.MaxPool2d(2),
        Residual(dim),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(dim, classes),
    )


# trainer


class Trainer:
    def __init__(
        self, folder, *, steps, batch_size, lr, eval_every, seed, fixed, ema_decay=0.98
    ):
        self.model = Classifier()
        self.ema = EMA(self.model, beta=ema_decay, fixed=fixed)
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=lr, weight_decay=1e-2)
        g = torch.Generator().manual_seed(seed)
        dl = DataLoader(Textures(768, seed=seed), batch_size, shuffle=True, generator=g)
        self.dl = cycle(dl)
        self.valid = DataLoader(Textures(240, seed=seed + 1), 120)
        self.steps, self.eval_every = steps, eval_every
        self.folder = Path(folder)

    def save(self, milestone):
        pkg = dict(model=self.model.state_dict(), ema=self.ema.state_dict())
        torch.save(pkg, str(self.folder / f"model-{milestone}.pt"))

    @torch.no_grad()
    def accuracy(self, net):
        net.eval()
        hits, losses = [], []
        for images, labels in self.valid:
            logits = net(images)
            hits.append((logits.argmax(-1) == labels).float())
            losses.append(F.cross_entropy(logits, labels, reduction="none"))
        return torch.cat(hits).mean().item(), torch.cat(losses).mean().item()

    def train(self):
        running, start = 0.0, time.time()
        for step in range(1, self.steps + 1):
            self.model.train()
            images, labels = next(self.dl)
            loss = F.cross_entropy(self.model(images), labels)
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.opt.step()
            self.opt.zero_grad()
            self.ema.update()
            running += loss.item()
            if step % self.eval_every == 0:
                online, online_loss = self.accuracy(self.model)
                average, average_loss = self.accuracy(self.ema)
                print(
                    f"{step}: loss {running / self.eval_every:.4f} "
                    f"online acc {online:.4f} ({online_loss:.3f}) "
                    f"ema acc {average:.4f} ({average_loss:.3f})"
                )
                running = 0.0
                self.save(step // self.eval_every)
        print(f"done, ema decay {self.ema.get_current_decay():.3f}")
        return time.time() - start


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=144)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--eval-every", type=int, default=24)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    with TemporaryDirectory() as folder:
        Trainer(folder, **vars(args)).train()
