"""Two optimizers that step unequally often."""

import torch
from torch import nn

torch.manual_seed(0)
generator = nn.Linear(3, 4)
critic = nn.Sequential(nn.Linear(4, 8), nn.LeakyReLU(), nn.Linear(8, 1))
generator_optimizer = torch.optim.Adam(generator.parameters(), lr=1e-3)
critic_optimizer = torch.optim.RMSprop(critic.parameters(), lr=1e-3)
for _ in range(15):
    for _ in range(2):
        critic_optimizer.zero_grad()
        fake = generator(torch.randn(8, 3)).detach()
        (critic(torch.randn(8, 4)).mean() - critic(fake).mean()).backward()
        critic_optimizer.step()
    generator_optimizer.zero_grad()
    (-critic(generator(torch.randn(8, 3))).mean()).backward()
    generator_optimizer.step()
