"""Statements that do nothing, in the code that trains, and what comes close to them."""

import importlib
import itertools
import pathlib
import sys
import tempfile
import textwrap
import unittest

import torch
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import CORE, HooksCase, said

BEGIN = """
    import types
    import numpy as np
    import torch
    import torch.nn.functional as F
    from torch import nn
    from torch.utils.data import DataLoader, Dataset

    class Adds(torch.autograd.Function):
        "Adds a loss to a gradient."

        @staticmethod
        def forward(ctx, x, loss):
            {function}
            ctx.save_for_backward(loss)
            return x.view_as(x)

        @staticmethod
        def backward(ctx, gradient):
            return gradient, torch.ones_like(ctx.saved_tensors[0])

    class Other:
        @classmethod
        def apply(cls, x, loss):
            pass

    class Data(Dataset):
        def __init__(self, mirrors=True):
            self.mirrors = mirrors
            self.how = types.SimpleNamespace(copies=False)

        def __len__(self):
            return 8

        def __getitem__(self, index):
            image = np.zeros((2, 3), dtype=np.float32)
            {data}
            return image.reshape(-1)

    class Base(nn.Module):
        def prepare(self, x):
            {base}
            return x

        def replaced(self, x):
            x.masked_fill(x > 0, 0)

    class Below(nn.Module):
        def __init__(self, fixed):
            super().__init__()
            self.fixed = fixed

        def forward(self, x):
            {below}
            return x

    class Net(Base):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(6, 2)
            self.how = types.SimpleNamespace(chained=True)
            self.fixed, self.count = True, 3
            self.below = Below(False)

        def replaced(self, x):
            return x

        def forward(self, x):
            {forward}
            return self.layer(self.below(x))

    def look(model):
        {called}
        return model

    def nobody_calls_this(x):
        x.masked_fill(x > 0, 0)

    def train():
        model = Net()
        {first}
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for x in DataLoader(Data(), batch_size=4):
            loss = look(model)(x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            {loop}
            optimizer.step()
"""


NUMBERS = itertools.count()
NAMES = ("base", "data", "below", "forward", "called", "first", "loop", "function")
ADDS = "Adds.apply(x, self.layer.weight.sum())"


def indented(lines):
    """Further lines of one that is put into a method or a function."""
    deep = {"called": 4, "first": 4}
    return {
        name: text.replace("\n", "\n" + " " * deep.get(name, 8))
        for name, text in lines.items()
    }


class Statements(HooksCase):
    READS_SOURCE = True

    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        sys.path.insert(0, folder.name)
        self.addCleanup(sys.path.remove, folder.name)

    def found(self, **lines):
        HooksCase.setUp(self)
        given = {name: "pass" for name in NAMES}
        name = f"script{next(NUMBERS)}"
        text = textwrap.dedent(BEGIN).format(**(given | lines))
        (self.folder / f"{name}.py").write_text(text)
        importlib.invalidate_caches()
        importlib.import_module(name).train()
        return said("opt.result_dropped")

    def test_results_that_are_dropped(self):
        for lines in (
            {"data": "np.fliplr(image)"},
            {"forward": "x.masked_fill(x > 0, 0)"},
            {"forward": "F.normalize(x, dim=-1)"},
            {"base": "x.clamp_min(0)"},
            {"called": "torch.clamp(model.layer.weight, -1, 1)"},
            {"loop": "torch.nan_to_num(loss)"},
            {"forward": "F.relu(x)"},
            {"forward": "F.dropout(x, 0.5, self.training)"},
            {"forward": "torch.cat([x, x], 1)"},
            {"forward": "x.clamp(min=0).unsqueeze(1)"},
            {"loop": "[p.grad.data.clamp(-1, 1) for p in model.parameters()]"},
            {"loop": "model.layer.weight.grad.mul(0.5)"},
            {"loop": "model.layer.weight.data.clamp(-1, 1)"},
        ):
            self.assertEqual(self.found(**lines), [1.0], lines)

    def test_methods_that_are_not_called(self):
        for lines in ({"called": "model.eval"}, {"loop": "optimizer.zero_grad"}):
            self.assertEqual(self.found(**lines), [1.0], lines)

    def test_what_does_something(self):
        for lines in (
            {"data": "image = np.fliplr(image).copy()"},
            {"data": "np.clip(image, 0, 1, out=image)"},
            {"forward": "x = x.masked_fill(x > 0, 0)"},
            {"forward": "x.masked_fill_(x > 0, 0)"},
            {"forward": "F.relu(x, True)"},
            {"forward": "self.clamp = nn.ReLU(inplace=True)\n        self.clamp(x)"},
            {"forward": "F.leaky_relu(x, 0.1, inplace=True)"},
            {"forward": "F.dropout(x, 0.5, True, True)"},
            {"data": "self.data = set()\n        self.data.add(1)"},
            {"loop": "[p.grad.data.clamp_(-1, 1) for p in model.parameters()]"},
            {"loop": "model.layer.weight.data.clamp_(-1, 1)"},
            {"called": "model.train()"},
            {"called": "model.layer.float()"},
            {"loop": "step = optimizer.step"},
            {"loop": "loss.detach()"},
        ):
            self.assertEqual(self.found(**lines), [0.0], lines)

    def test_branches_that_settings_rule_out(self):
        dropped = "x.masked_fill(x > 0, 0)"
        for lines in (
            {"forward": f"if not self.fixed: {dropped}"},
            {"forward": f"if x is not None and len(x):\n if not self.fixed: {dropped}"},
            {"forward": f"if self.fixed: x = x + 1\nelse: {dropped}"},
            {"forward": f"if self.fixed: return self.layer(x)\n{dropped}"},
            {"forward": f"with torch.no_grad():\n if not self.how.chained: {dropped}"},
            {"base": f"if not self.fixed: {dropped}"},
            {"below": f"if self.fixed: {dropped}"},
            {"data": "if not self.mirrors: np.fliplr(image)"},
            {"data": "if self.how.copies: np.fliplr(image)"},
        ):
            self.assertEqual(self.found(**indented(lines)), [0.0], lines)

    def test_branches_that_may_be_taken(self):
        dropped = "x.masked_fill(x > 0, 0)"
        for lines in (
            {"forward": f"if self.fixed: {dropped}"},
            {"forward": f"if not self.fixed: x = x + 1\nelse: {dropped}"},
            {"forward": f"if not self.fixed: return self.layer(x)\n{dropped}"},
            {"forward": f"if self.fixed: x = x + 1\n{dropped}"},
            {"forward": f"if self.training: x = x + 1\nelse: {dropped}"},
            {"forward": f"if self.count > 3: {dropped}"},
            {"forward": f"for _ in ():\n {dropped}"},
            {"forward": f"try: {dropped}\nfinally: pass"},
            {"below": f"if not self.fixed: {dropped}"},
            # Two of its class differ.
            {
                "first": "model.other = Below(True)",
                "below": f"if self.fixed: {dropped}",
            },
            {"data": "if self.mirrors: np.fliplr(image)"},
            {
                "first": "next(iter(DataLoader(Data(mirrors=False))))",
                "data": "if self.mirrors: np.fliplr(image)",
            },
            {"called": "if not model.fixed: torch.clamp(model.layer.weight, -1, 1)"},
        ):
            self.assertEqual(self.found(**indented(lines)), [1.0], lines)

    def test_where_the_statement_stands(self):
        line = "x.masked_fill(x > 0, 0)"
        self.assertEqual(self.found(forward=line), [1.0])
        ((file, number, _),) = CORE.sites_at
        self.assertEqual(pathlib.Path(file).parent, self.folder)
        lines = pathlib.Path(file).read_text().splitlines()
        self.assertEqual(lines[number - 1].strip(), line)
        self.assertEqual(said("opt.result_dropped.site"), [1.0])
        self.assertEqual(self.found(), [0.0])
        self.assertEqual((CORE.sites_at, said("opt.result_dropped.site")), ([], []))

    def test_functions_of_autograd(self):
        called = "Adds.apply(model.layer.weight, model.layer.bias.sum())"
        for lines in (
            {"forward": ADDS},
            {"forward": f"if self.training: {ADDS}"},
            {"forward": ADDS, "function": "ctx.size = max(1, len(x.flatten(0)))"},
            {"forward": ADDS, "function": "y = torch.ones(2).to(x)"},
            {"loop": "Adds.apply(x, loss)"},
        ):
            self.assertEqual(self.found(**lines), [1.0], lines)
        for lines in (
            {"forward": f"x = {ADDS}"},
            {"forward": f"with torch.no_grad(): {ADDS}"},
            {"forward": f"while False: {ADDS}"},
            {"forward": f"if not self.how.chained: {ADDS}"},
            {"forward": "Other.apply(x, x)"},
            {"called": called},  # what is called by name may measure time
        ):
            self.assertEqual(self.found(**lines), [0.0], lines)

    def test_functions_of_autograd_that_do_more(self):
        for function in (
            "x.add_(1)",
            "x += 1",
            "x[0] = 0",
            "ctx.mark_dirty(x)",
            "torch.add(x, 1, out=x)",
            "y = torch.add(x, 1, out=x)",
            "y = x.add_(1)",
            "Adds.calls = 1",
            "y = ctx.group.mul(x)",
            "y = look(x)",
            "y = torch.manual_seed(3)",
            "y = torch.distributed.get_rank()",
            "print(x.shape)",
            "Data.seen.append(1)",
            "for y in x: pass",
        ):
            lines = {"forward": f"if False: {ADDS}", "function": function}
            self.assertEqual(self.found(**lines), [0.0], lines)

    def test_code_that_has_no_source(self):
        names = {"torch": torch, "nn": nn}
        lines = (
            "model = nn.Linear(2, 2)",
            "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)",
            "model.eval",
            "model(torch.ones(1, 2)).sum().backward()",
            "optimizer.step()",
        )
        exec(compile("\n".join(lines), "<no file>", "exec"), names)
        self.assertEqual(said("opt.result_dropped"), [0.0])


if __name__ == "__main__":
    unittest.main()
