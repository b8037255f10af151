"""What programs make of functions with torch's tracers: uses as those of api_uses."""

import copy
import pickle
import re

import torch
import torch.nn.functional as F
from api_uses import Net, use, values
from torch import nn


@use
def scripts():
    @torch.jit.script
    def function(x, n: int):
        for _ in range(n):
            x = torch.relu(x) + F.relu(x).add(1)
        return torch.cat([x, torch.nn.functional.softmax(x, dim=0)])

    class Scripted(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 3)
            self.drop = nn.Dropout(0.5)

        def helper(self, x, k: int = 2):
            return self.layer(x) * k

        def forward(self, x):
            return self.drop(torch.tanh(self.helper(x)))

    module = torch.jit.script(Scripted())
    traced = torch.jit.trace(Net(), values())
    return [
        function(values(), 2),
        str(function.code),
        module(values()),
        module.code,
        traced(values()),
        str(traced.graph).count("aten::"),
    ]


@use
def traces_of_what_was_trained():
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        F.mse_loss(net(values()), values()).backward()
        optimizer.step()
    out = []
    # A copy is new to those who look at models: twice the same, or the trace fails.
    for traced in (net, copy.deepcopy(net)):
        graph = torch.jit.trace(traced, values(), check_trace=True).inlined_graph
        out.append(re.sub(r" #.*|___torch_mangle_\d+\.", "", str(graph)))
    net.requires_grad_(False)
    loss = torch.jit.trace(lambda x: F.mse_loss(net(x), x), values())
    return [*out, str(loss.graph).count("aten::")]


@use
def symbolic_traces():
    traced = torch.fx.symbolic_trace(Net())
    again = pickle.loads(pickle.dumps(traced))

    def function(x):
        return torch.relu(x).add(1).matmul(F.gelu(x).t()) + torch.fft.fft(x).real.sum()

    second = torch.fx.symbolic_trace(function)
    targets = [
        str(node.target) if node.op != "call_function" else node.target.__name__
        for node in second.graph.nodes
    ]
    return [
        traced.code,
        traced(values()),
        again(values()),
        second.code,
        targets,
        second(values()),
    ]
