# traffic signs, 24x24 RGB, kept as uint8 to save memory (course homework 3)
import argparse

import numpy as np
import torch
import torch.nn as nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=120)
parser.add_argument("--batch", type=int, default=32)
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--prove", action="store_true")
args = parser.parse_args()

np.random.seed(42)
torch.manual_seed(42)

# ---------------------------------------------------------------- data
COLOURS = np.array([[200, 30, 30], [30, 60, 200], [230, 200, 40]])
SHAPES = ["disc", "triangle", "square"]


def draw_sign(rng):
    c, s = rng.integers(3), rng.integers(3)
    yy, xx = np.mgrid[0:24, 0:24]
    cy, cx, r = rng.uniform(10, 14), rng.uniform(10, 14), rng.uniform(6, 9)
    if SHAPES[s] == "disc":
        m = (yy - cy) ** 2 + (xx - cx) ** 2 < r * r
    elif SHAPES[s] == "triangle":
        m = (yy < cy + r * 0.7) & (yy - (cy - r) > 1.6 * np.abs(xx - cx))
    else:
        m = (np.abs(yy - cy) < r * 0.85) & (np.abs(xx - cx) < r * 0.85)
    img = np.empty((24, 24, 3))
    img[:] = rng.uniform(90, 240, 3) * 0.3 + rng.uniform(60, 170)
    img[m] = COLOURS[c]
    img *= rng.uniform(0.5, 1.1)
    img += rng.normal(0, 8, img.shape)
    return np.clip(img, 0, 255).astype(np.uint8), c * 3 + s


def make_set(n, seed):
    rng = np.random.default_rng(seed)
    pairs = [draw_sign(rng) for _ in range(n)]
    return np.stack([p[0] for p in pairs]), np.array([p[1] for p in pairs])


x_train, y_train = make_set(1200, 1)
x_test, y_test = make_set(400, 2)
mean = x_train.mean((0, 1, 2)) / 255
std = x_train.std((0, 1, 2)) / 255


# ---------------------------------------------------------------- augmentation
def augment(images):
    """brightness shift per picture plus sensor noise"""
    shift = np.random.randint(-60, 61, size=(len(images), 1, 1, 1))
    noise = np.random.normal(0, 10, images.shape).astype(int)
    out = images.astype(int) + shift + noise
    if args.fixed:
        out = out.clip(0, 255)
    return out.astype(np.uint8)


def to_tensor(images):
    x = images.astype(np.float32) / 255
    x = (x - mean) / std
    return torch.from_numpy(x.astype(np.float32)).permute(0, 3, 1, 2)


# ---------------------------------------------------------------- model
net = nn.Sequential(
    nn.Conv2d(3, 16, 3, padding=1),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Conv2d(16, 32, 3, padding=1),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Flatten(),
    nn.Linear(32 * 6 * 6, 64),
    nn.ReLU(),
    nn.Dropout(0.2),
    nn.Linear(64, 9),
)
loss_fn = nn.CrossEntropyLoss()
opt = torch.optim.Adam(net.parameters(), lr=2e-3)


def test_accuracy():
    net.eval()
    with torch.no_grad():
        pred = net(to_tensor(x_test)).argmax(1).numpy()
    net.train()
    return (pred == y_test).mean()


# ---------------------------------------------------------------- training
step = 0
epoch = 0
while step < args.steps:
    order = np.random.permutation(len(x_train))
    losses = []
    for k in range(0, len(order), args.batch):
        idx = order[k : k + args.batch]
        xb = to_tensor(augment(x_train[idx]))
        yb = torch.from_numpy(y_train[idx])
        loss = loss_fn(net(xb), yb)
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.item())
        step += 1
        if step == args.steps:
            break
    epoch += 1
    print(
        "epoch",
        epoch,
        "loss",
        round(float(np.mean(losses)), 4),
        "test acc",
        round(float(test_accuracy()), 4),
    )

if args.prove:
    # shift is at most 60 and the noise small, so no pixel may move by more than ~130
    before = x_train[:200].astype(int)
    after = augment(x_train[:200]).astype(int)
    far = (np.abs(after - before) > 130).mean()
    print("fault shows:", "yes" if far > 1e-3 else "no")
