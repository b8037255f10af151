"""The user's lines at which something goes wrong that shows at a later step.

Gradients are cleared, clipped or kept by a call, and the rule is judged as an optimizer
steps. An observer that stands in the call keeps its line here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from _traincheck.identity_map import WeakIdentityMap

if TYPE_CHECKING:
    from typing import Any

    import torch
    from traincheck_core import Core, Scalars

    _Sites = dict[str, int]  # by the names of scalars


class StepLines:
    def __init__(self, core: Core) -> None:
        self._core = core
        self._of_all: _Sites = {}
        self._of_one: WeakIdentityMap[Any, _Sites] = WeakIdentityMap()

    def here(self, name: str, about: torch.optim.Optimizer | None = None) -> None:
        """Called within the call that goes wrong, or may; the last one counts. about:
        the optimizer that it concerns; None: any."""
        self.at(name, self._core.site_here(), about)

    def at(
        self, name: str, site: int, about: torch.optim.Optimizer | None = None
    ) -> None:
        sites = self._of_all if about is None else self._of_one.get(about)
        if sites is None:
            sites = {}
            self._of_one.set(about, sites)
        sites[name] = site

    def of(self, optimizer: torch.optim.Optimizer, scalars: Scalars) -> Scalars:
        """Scalars with the lines of those that are wrong."""
        sites = self._of_all | (self._of_one.get(optimizer) or {})
        return {
            (f"{name}.site", 0): float(site)
            for name, site in sites.items()
            if site and scalars.get((name, 0)) == 1.0
        }
