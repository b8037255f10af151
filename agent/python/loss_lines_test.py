"""Lines of the user's code that findings about the graph of a loss name."""

import importlib
import itertools
import pathlib
import sys
import tempfile
import textwrap
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import CORE, WATCH, HooksCase, said
from _traincheck import reached_calls, reached_code
from _traincheck.call_kinds import SEARCHES
from _traincheck.findings import Findings
from _traincheck.loss_lines import Cause

BEGIN = """
    import numpy as np
    import torch
    import torch.nn.functional as F
    from torch import nn
    from torch.nn.functional import softmax as normalise
    from torch.utils.data import DataLoader, Dataset

    class Data(Dataset):
        def __len__(self):
            return 8

        def __getitem__(self, index):
            x = torch.arange(6.0) + index
            {data}
            return x, index % 3

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(6, 3)
            self.shares = nn.Parameter(torch.zeros(8))
            {init}

        def forward(self, x):
            x = self.layer(x)
            {forward}
            return x

    class Mean:
        def __init__(self, dim):
            self.dim = dim

        def __call__(self, x):
            {method}
            return x

    def by_table(x):
        {table}
        return x

    def nobody_calls_this(x):
        return x.softmax(1).mean()

    @torch.no_grad()
    def evaluate(model, x):
        {evaluate}

    TABLE = dict(one=by_table)

    def train():
        model = Net()
        mean = Mean(1)
        {first}
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for x, y in DataLoader(Data(), batch_size=4):
            x = TABLE["one"](model(x))
            loss = {loss}
            optimizer.zero_grad()
            loss.backward()
            {loop}
            optimizer.step()
            evaluate(model, x)
        {end}
"""
REGISTERED = """
FUNCTIONS = {}

def register(function):
    return FUNCTIONS.setdefault(function.__name__, function)

@register
def shares(x):
    return x.softmax(1)
"""
NUMBERS = itertools.count()
NAMES = (
    *("data", "init", "forward", "method", "table", "evaluate", "first"),
    *("loop", "end"),
)
ENTROPY = "F.cross_entropy(mean(x), y)"
TWICE = "loss.normalised_twice"


class ProgramCase(HooksCase):
    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        for path in (self.folder, self.folder / "site-packages"):
            sys.path.insert(0, str(path))
            self.addCleanup(sys.path.remove, str(path))
        # This file, and what it imports, is nobody's training.
        for module in (reached_calls, reached_code):
            patch = mock.patch.object(module, "is_of_user", self.is_of_user)
            patch.start()
            self.addCleanup(patch.stop)

    def is_of_user(self, path):
        return pathlib.Path(path).parent == self.folder

    def train(self, loss=ENTROPY, before="", **lines):
        """Runs the program with these lines in it; its source."""
        HooksCase.setUp(self)
        places = {name: lines.get(name, "pass") for name in NAMES}
        source = before + textwrap.dedent(BEGIN).format(loss=loss, **places)
        name = f"training_of_causes_{next(NUMBERS)}"
        path = self.folder / f"{name}.py"
        path.write_text(source)
        importlib.invalidate_caches()
        program = importlib.import_module(name)
        program.look = lambda finding: self.look(finding)
        program.train()
        del sys.modules[name]
        return source.splitlines()

    def look(self, finding):
        """As if that had been found of a loss."""
        (kind, *_) = SEARCHES[finding].kinds
        cause = {finding: Cause(kind, None)}
        WATCH.loss_lines.record(Findings({finding: 1.0}), cause)

    def line(self, name, **lines):
        """What stands where the finding is said to be; None: it names no line."""
        source = self.train(**lines)
        self.assertIn(1.0, said(name), lines)
        sites = set(said(f"{name}.site"))
        if not sites:
            return None
        ((file, number, _),) = CORE.sites_at
        self.assertEqual((sites, pathlib.Path(file).parent), ({1.0}, self.folder))
        return source[number - 1].strip()


class LinesOfLossesTest(ProgramCase):
    def test_the_one_call_that_fits(self):
        for wanted, lines in (
            ("x = F.softmax(x, dim=1)", {"forward": "x = F.softmax(x, dim=1)"}),
            ("x = x.softmax(-1)", {"method": "x = x.softmax(-1)"}),
            ("x = normalise(x, 1)", {"table": "x = normalise(x, 1)"}),
            (
                "x = torch.softmax(x, self.dim)",
                {"method": "x = torch.softmax(x, self.dim)"},
            ),
        ):
            self.assertEqual(self.line(TWICE, **lines), wanted)

    def test_modules(self):
        module = "self.last = nn.Softmax(dim=1)"
        called = "x = self.last(x)"
        self.assertEqual(self.line(TWICE, init=module, forward=called), called)
        # The call of a list's module does not say which one it is.
        made = "self.layer = nn.Sequential(self.layer, nn.Softmax(dim=1))"
        self.assertEqual(self.line(TWICE, init=made), made)
        made = (
            "last = nn.Softmax(1); model.register_forward_hook(lambda m, i, o: last(o))"
        )
        self.assertEqual(self.line(TWICE, first=made), made)

    def test_several_calls(self):
        again = "x = F.softmax(x, dim=1)"
        for lines in (
            {"method": again},
            {"table": again},
            {"first": "self = nn.Softmax(1)"},
            {"evaluate": "pass", "loop": "x.softmax(1).sum()"},
            {"before": "share = lambda x: torch.softmax(x, 1)\n", "loop": "share(x)"},
            {"before": "import torch\nshare = torch.nn.Softmax(1)\n"},
            # Whoever has it in a table may call it.
            {"before": REGISTERED},
        ):
            lines = {"forward": again, **lines}
            self.assertIsNone(self.line(TWICE, **lines), lines)

    def test_calls_that_leave_nothing_in_the_graph(self):
        once = "x = F.softmax(x, dim=1)"
        for lines in (
            {"data": "x.softmax(0)"},
            {"evaluate": "return x.softmax(1)"},
            {"loop": "with torch.no_grad(): x.softmax(1)"},
            {"end": "x.softmax(1)"},
            {"loop": "nn.Dropout(0.5)(x)"},
            # Over another dimension.
            {"first": "model.shares.softmax(0)"},
        ):
            self.assertEqual(self.line(TWICE, forward=once, **lines), once, lines)

    def test_settings_of_objects(self):
        both = "x = F.softmax(x, dim=1) if self.fixed else x.softmax(1)"
        for value, wanted in (("True", both), ("False", both), ("0", None)):
            lines = {"init": f"self.fixed = {value}", "forward": both}
            self.assertEqual(self.line(TWICE, **lines), wanted)

    def test_packages(self):
        folder = self.folder / "site-packages"
        folder.mkdir()
        once = "x = F.softmax(x, dim=1)"
        for number, (body, wanted) in enumerate(
            (("x.softmax(1)", None), ("x.sigmoid()", once))
        ):
            (folder / f"package_{number}.py").write_text(
                "import torch\nclass Head(torch.nn.Linear):\n"
                f" def forward(self, x):\n  {body}\n  return super().forward(x)\n"
            )
            before = f"from package_{number} import Head\n"
            found = self.line(
                TWICE, before=before, init="self.layer = Head(6, 3)", forward=once
            )
            self.assertEqual(found, wanted)
            del sys.modules[f"package_{number}"]

    def test_it_is_looked_for_once(self):
        self.train(forward="x = F.softmax(x, dim=1)")
        self.assertEqual(said(TWICE), [1.0, 1.0])
        self.assertEqual(said(f"{TWICE}.site"), [1.0, 1.0])
        self.assertEqual(len(CORE.sites_at), 1)
        self.train()
        self.assertEqual((said(TWICE), CORE.sites_at), ([0.0, 0.0], []))

    def test_a_source_that_cannot_be_read(self):
        self.folder.joinpath("unread.py").write_text("x = 1\n")
        importlib.import_module("unread")
        self.addCleanup(sys.modules.pop, "unread")
        self.folder.joinpath("unread.py").write_text("x =\n")
        self.assertIsNone(self.line(TWICE, forward="x = F.softmax(x, dim=1)"))


class LinesOfOtherFindingsTest(ProgramCase):
    def test_where_modules_are_made(self):
        made = "criterion = nn.NLLLoss()"
        wrong = {"first": made, "loss": "criterion(x, y)"}
        self.assertEqual(self.line("loss.no_logarithms", **wrong), made)
        low = {"first": "criterion = nn.CrossEntropyLoss()"}
        self.assertIsNone(
            self.line("loss.in_low_precision", loss="criterion(x.bfloat16(), y)", **low)
        )
        loss = "F.cross_entropy(x.bfloat16(), y)"
        self.assertEqual(
            self.line("loss.in_low_precision", loss=loss), f"loss = {loss}"
        )

    def test_dimensions(self):
        name, weighed = "loss.weighs_over_samples", "x = x.softmax(0) * x"
        for other, wanted in (
            ("x = x.softmax(1) + x", weighed),
            ("x = F.softmax(x, dim=-1) + x", weighed),
            ("x = x.softmax(dim=self.dim) + x", None),
            ("x = x.softmax(0) + x", None),
        ):
            found = self.line(name, forward=weighed, method=other)
            self.assertEqual(found, wanted, other)

    def found(self, name, **lines):
        return self.line(name, loop=f"look({name!r})", **lines)

    def test_masks(self):
        """Where a function hands on the mask that it is given, its caller is wrong."""
        called = "x = F.scaled_dot_product_attention(x, x, x{})"
        for given, is_named in (
            ("", True),
            (", attn_mask=x[:, :1] > 0", True),
            (", attn_mask=self.mask", True),
            (", attn_mask=x.new_ones(4, 4)", True),
            (", attn_mask=x", False),
            (", x", False),
        ):
            line = called.format(given)
            lines = {"method": f"return x; {line}"}
            wanted = lines["method"] if is_named else None
            self.assertEqual(self.found("loss.mask_inverted", **lines), wanted, given)

    def test_layers_of_attention(self):
        name = "loss.sees_targets"
        made = "self.a = nn.TransformerEncoderLayer(3, 1); self.b = {}"
        stack = made.format("nn.TransformerEncoder(self.a, 2)")
        called = "x = x if True else self.b(x)"
        self.assertEqual(self.found(name, init=stack, forward=called), called)
        two = made.format("nn.MultiheadAttention(3, 1)")
        self.assertIsNone(self.found(name, init=two, forward=called))
        # Not a hand-written one: its mask is not among its arguments.
        self.assertIsNone(self.found(name, forward="x = x if True else x.softmax(1)"))
        self.assertEqual(self.found("loss.samples_as_steps", init=two), None)
        self.assertEqual(
            self.found("loss.samples_as_steps", init="self.a = nn.LSTM(3, 3)"),
            "self.a = nn.LSTM(3, 3)",
        )

    def test_weights_that_are_computed_there(self):
        name, made = "loss.weighs_by_frequency", "nn.CrossEntropyLoss({})"
        for given, is_named in (
            ("weight=torch.tensor([1.0, 2.0])", True),
            ("weight=weights", False),
            ("", False),
        ):
            # The program's own is not one of a module.
            line = f"weights = torch.ones(3); loss = {made.format(given)}"
            lines = {"first": line, "loss": "x.sum()"}
            wanted = line if is_named else None
            self.assertEqual(self.found(name, **lines), wanted, given)

    def test_names_of_findings(self):
        """Each is one that an observer has."""
        folder = pathlib.Path(reached_code.__file__).parent
        own = "call_kinds.py"
        sources = [p.read_text() for p in folder.glob("*.py") if p.name != own]
        for name in SEARCHES:
            self.assertTrue(any(f'"{name}"' in text for text in sources), name)


class LinesOfLateFindingsTest(ProgramCase):
    """Of values that come from a device some time later."""

    ON_DEVICE = True

    def test_the_one_call_that_fits(self):
        once = "x = F.softmax(x, dim=1)"
        self.assertEqual(self.line(TWICE, forward=once), once)


if __name__ == "__main__":
    unittest.main()
