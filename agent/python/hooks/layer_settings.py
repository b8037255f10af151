"""Numbers of layers that mean the opposite elsewhere.

torch's momentum of BatchNorm is the share of the new batch (others give that of the
old statistics, 0.9 to 0.99), and its p of dropout the share that is dropped (others
give the share that is kept).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from _traincheck.findings import Findings
from _traincheck.module_content import modules_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from _traincheck.models import Models

_FORGETS = 0.9
_DROPS_MOST = 0.8


class LayerSettings:
    def __init__(self, models: Models) -> None:
        self._models = models

    def look(self) -> Findings:
        """1: a layer in training mode has such a number, 0: none of some layers."""
        found = Findings()
        for module in self._modules():
            if isinstance(module, _BatchNorm) and module.track_running_stats:
                # 1 is meant: the statistics of the last batch.
                share = module.momentum
                forgets = share is not None and _FORGETS <= share < 1
                found.add("opt.forgets_statistics", forgets)
            elif isinstance(module, _DropoutNd):
                found.add("opt.drops_most", _DROPS_MOST <= module.p < 1)
        return found

    def _modules(self) -> Iterator[torch.nn.Module]:
        for model in self._models.all():
            root = model.root()
            for module in modules_in(root) if root is not None else ():
                if module.training:
                    yield module
