"""The line of the user's code that makes what is wrong in the graph of a loss.

A node of the graph does not know its line. Its name says which calls make such nodes,
and the source has them: where exactly one may have run, it is the line. Where there are
several, or where an installed package has some as well, nothing is said.
"""

from __future__ import annotations

import ast
from typing import NamedTuple, TYPE_CHECKING

from _traincheck.call_kinds import SEARCHES
from _traincheck.call_shapes import Shape
from _traincheck.graph_nodes import walk
from _traincheck.module_content import modules_in
from _traincheck.reached_calls import ReachedCalls
from _traincheck.reached_code import ReachedCode
from _traincheck.sources import site_of
from _traincheck.wrapping import quietly

if TYPE_CHECKING:
    import torch
    from torch.autograd.graph import Node
    from traincheck_core import Core

    from _traincheck.call_kinds import Kind, Search
    from _traincheck.findings import Findings
    from _traincheck.models import Models
    from _traincheck.reached_calls import Use

_MOST_NODES = 64  # between what was looked at and what is its cause


class Cause(NamedTuple):
    """What is known of a node, without the node."""

    kind: Kind
    shape: Shape | None


def causes_of(found: Findings) -> dict[str, Cause]:
    """What the findings that are wrong are about, as far as a line may be had."""
    causes = {}
    for name, value in found.items():
        search = SEARCHES.get(name)
        cause = _cause(search, found.causes.get(name)) if search and value else None
        if cause is not None:
            causes[name] = cause
    return causes


def _cause(search: Search, at: Node | None) -> Cause | None:
    for node in walk([at], _MOST_NODES) if at is not None else ():
        for kind in search.kinds:
            if kind.nodes and node.name().startswith(kind.nodes):
                return Cause(kind, Shape.of(node))
    return Cause(search.kinds[0], None) if len(search.kinds) == 1 else None


class LossLines:
    def __init__(self, core: Core, models: Models) -> None:
        self._core = core
        self._models = models
        # Sites that were looked for, by the names of scalars; 0: there is none.
        self._sites: dict[str, int] = {}

    def record(self, found: Findings, causes: dict[str, Cause]) -> None:
        """Writes what was found of a loss, and the lines of what is wrong."""
        core = self._core
        for name, value in found.items():
            core.record_scalar(0, core.POINT_BACKWARD_END, 0, name, value)
        for name, cause in causes.items():
            # Looked for the first time that it is wrong, and not again.
            if name not in self._sites:
                self._sites[name] = 0
                quietly(core, self._look, name, cause)
            site = float(self._sites[name])
            if site:
                core.record_scalar(0, core.POINT_BACKWARD_END, 0, f"{name}.site", site)

    def _look(self, name: str, cause: Cause) -> None:
        use = self._use(SEARCHES[name], cause)
        if use is not None:
            line = use.call.lineno
            self._sites[name] = site_of(self._core, use.code.names, line)

    def _use(self, search: Search, cause: Cause) -> Use | None:
        """The call that is the cause; None: it is not known."""
        roots = [model.root() for model in self._models.all()]
        modules = [
            part for root in roots if root is not None for part in modules_in(root)
        ]
        code = ReachedCode(modules)
        if not code.is_whole:
            return None
        calls = ReachedCalls(self._core, code, modules, cause.kind, cause.shape)
        use = None if calls.are_in_packages() else _only_one(search, calls)
        if use is None or use.name in search.hidden or _hands_mask_on(use):
            return None
        if search.given and not _is_given(use.call, search.given):
            return None
        return use


def _only_one(search: Search, calls: ReachedCalls) -> Use | None:
    """The one call that may have done it; None: there are several, or none."""
    if calls.functions:
        is_alone = len(calls.functions) == 1 and not calls.made and not calls.called
        return calls.functions[0] if is_alone else None
    if len(calls.made) > 1:
        return None
    shown = calls.called if search.called else []
    if not shown and search.made:
        shown = calls.made
    return shown[0] if len(shown) == 1 else None


def _is_given(call: ast.Call, names: frozenset[str]) -> bool:
    """Is one of these arguments computed in the call?"""
    return any(
        word.arg in names and not isinstance(word.value, (ast.Attribute, ast.Name))
        for word in call.keywords
    )


def _hands_mask_on(use: Use) -> bool:
    """Is a mask given that the function was given itself? Its caller has made it."""
    parameters = use.code.parameters()
    masks = [word.value for word in use.call.keywords if "mask" in (word.arg or "")]
    if use.name == "scaled_dot_product_attention":
        masks += use.call.args[3:4]
    return any(isinstance(one, ast.Name) and one.id in parameters for one in masks)
