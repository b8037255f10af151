"""The core while torch.jit.trace follows what runs."""

import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from records_for_testing import TORCH_PRELUDE, CoreCase  # noqa: E402


class Tracing(CoreCase):
    PRELUDE = TORCH_PRELUDE

    def test_nothing_is_asked_while_torch_traces(self):
        self.record(
            "import torch.nn.functional as F\n"
            "asked = []\n"
            "def before(args, kwargs):\n"
            "    assert torch._C._get_tracing_state() is None\n"
            "    asked.append(args[0])\n"
            # Were it asked in the first of two traces alone, they would differ.
            "    if len(asked) == 1: [p.shape for p in net.parameters()]\n"
            "nn.Module.__call__ = core.wrap_module_call(nn.Module.__call__, before)\n"
            "F.relu = core.wrap(F.relu, 'torch.nn.functional.relu', 'other', (), before)\n"
            "net = nn.Sequential(nn.Linear(2, 2), nn.ReLU())\n"
            "traced = torch.jit.trace(net, torch.ones(1, 2), check_trace=True)\n"
            "assert 'size' not in str(traced.inlined_graph), traced.inlined_graph\n"
            "asked.clear()\n"
            "net(torch.ones(1, 2))\n"
            "assert asked[0] is net and len(asked) == 2, asked\n"
        )


if __name__ == "__main__":
    unittest.main()
