"""Erase a backdoor from an image classifier with attention distillation.

teacher: copy of the backdoored net, finetuned a little on clean pictures
student: the backdoored net itself, pulled to the teacher's attention maps
"""
import argparse
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=60, help="distillation steps")
parser.add_argument("--beta", type=float, nargs=3, default=[50.0, 100.0, 100.0])
parser.add_argument("--p", type=float, default=2.0)
parser.add_argument("--lr", type=float, default=0.02)
parser.add_argument("--batch", type=int, default=48)
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--prove", action="store_true")
opt = parser.parse_args()

torch.manual_seed(11)
N_CLASS, TARGET = 6, 0


class Block(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(cout)
        self.short = nn.Conv2d(cin, cout, 1, stride, bias=False)

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + self.short(x))


class SmallWRN(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 12, 3, 1, 1)
        self.g1 = Block(12, 16, 1)
        self.g2 = Block(16, 24, 2)
        self.g3 = Block(24, 32, 2)
        self.fc = nn.Linear(32, N_CLASS)

    def forward(self, x):
        a1 = self.g1(self.stem(x))
        a2 = self.g2(a1)
        a3 = self.g3(a2)
        return a1, a2, a3, self.fc(a3.mean((2, 3)))


class AT(nn.Module):
    """attention transfer, Zagoruyko & Komodakis"""

    def __init__(self, p):
        super().__init__()
        self.p = p

    def attention_map(self, fm, eps=1e-6):
        am = fm.abs().pow(self.p).sum(1, keepdim=True)
        return am / (am.norm(dim=(2, 3), keepdim=True) + eps)

    def forward(self, fm_s, fm_t):
        return F.mse_loss(self.attention_map(fm_s), self.attention_map(fm_t))


proto = torch.randn(N_CLASS, 3, 16, 16)


def pictures(n, trigger=False):
    y = torch.randint(0, N_CLASS, (n,))
    x = proto[y] * 0.5 + torch.randn(n, 3, 16, 16)
    if trigger:
        x[:, :, -4:, -4:] = 2.5
    return x, y


def accuracy(net, trigger):
    net.eval()
    with torch.no_grad():
        x, y = pictures(400, trigger)
        pred = net(x)[-1].argmax(1)
    if trigger:
        keep = y != TARGET
        return (pred[keep] == TARGET).float().mean().item()
    return (pred == y).float().mean().item()


criterionCls = nn.CrossEntropyLoss()
criterionAT = AT(opt.p)


def distill_loss(snet, tnet, img, target):
    act1_s, act2_s, act3_s, output_s = snet(img)
    with torch.no_grad():
        act1_t, act2_t, act3_t, _ = tnet(img)
    cls_loss = criterionCls(output_s, target)
    at1_loss = criterionAT(act1_s, act1_t) * opt.beta[0]
    at2_loss = criterionAT(act2_s, act2_t) * opt.beta[1]
    at3_loss = criterionAT(act3_s, act3_t) * opt.beta[2]
    at_loss = at1_loss + at2_loss + at3_loss
    if opt.fixed:
        return at_loss + cls_loss, cls_loss
    at_loss = at_loss.detach()
    return at_loss + cls_loss, cls_loss


# 1. somebody hands us a backdoored model
snet = SmallWRN()
o = torch.optim.SGD(snet.parameters(), lr=0.05, momentum=0.9)
for _ in range(40):
    x, y = pictures(48)
    x[:12, :, -4:, -4:] = 2.5
    y[:12] = TARGET
    o.zero_grad()
    criterionCls(snet(x)[-1], y).backward()
    o.step()
print(
    "backdoored: clean acc %.3f  attack rate %.3f"
    % (accuracy(snet, False), accuracy(snet, True))
)

# 2. teacher = finetuned copy
clean_x, clean_y = pictures(192)
tnet = copy.deepcopy(snet).train()
o = torch.optim.SGD(tnet.parameters(), lr=0.02, momentum=0.9)
for i in range(16):
    idx = torch.randint(0, 192, (opt.batch,))
    o.zero_grad()
    criterionCls(tnet(clean_x[idx])[-1], clean_y[idx]).backward()
    o.step()
tnet.eval()
for p in tnet.parameters():
    p.requires_grad_(False)

# 3. student
snet.train()
optimizer = torch.optim.SGD(
    snet.parameters(), lr=opt.lr, momentum=0.9, weight_decay=1e-4
)
for step in range(opt.steps):
    idx = torch.randint(0, 192, (opt.batch,))
    img, target = clean_x[idx], clean_y[idx]
    loss, cls = distill_loss(snet, tnet, img, target)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(snet.parameters(), 5.0)
    optimizer.step()
    if step % 15 == 0 or step == opt.steps - 1:
        print("step %3d  loss %.4f  cls %.4f" % (step, loss.item(), cls.item()))

print(
    "student: clean acc %.3f  attack rate %.3f"
    % (accuracy(snet, False), accuracy(snet, True))
)

if opt.prove:
    snet.eval()
    w = [snet.g2.conv1.weight, snet.stem.weight]
    total, cls = distill_loss(snet, tnet, clean_x[:96], clean_y[:96])
    g_total = torch.autograd.grad(total, w, retain_graph=True)
    g_cls = torch.autograd.grad(cls, w)
    diff = sum((a - b).norm().item() for a, b in zip(g_total, g_cls))
    print(
        "gap of the losses %.4f, gap of their gradients %.6f"
        % ((total - cls).item(), diff)
    )
    print("fault shows:", "yes" if (total - cls).item() > 1e-4 and diff == 0 else "no")
