"""Samples through which no gradient reaches what they were drawn from.

Normal.sample() has no gradient, rsample() has. A sample without one is right where the
likelihood of what was drawn is trained (log_prob): then that has the gradient. Looked
at is what a model draws in its training forward; actions that are tried out are drawn
elsewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from _traincheck.observing import observe

if TYPE_CHECKING:
    from typing import Any

    from traincheck_core import Args, Kwargs

    from _traincheck.awake import Awake
    from _traincheck.watch import Watch

# Name of the scalar of an optimizer.
NAME = "opt.samples_without_gradient"


class BlindSamples:
    def __init__(self, awake: Awake) -> None:
        self._awake = awake
        self._in_forward = False
        self._sampled = False  # with a mean that needs a gradient
        self._asked = False  # was a sample with a gradient, or a likelihood, ever?

    def forward_begins(self) -> None:
        """Called at outermost ones that train."""
        self._in_forward = True

    def forward_ended(self) -> None:
        self._in_forward = False

    def samples(self, distribution: Any) -> None:
        if not self._in_forward or not torch.is_grad_enabled():
            return
        mean = getattr(distribution, "loc", None)
        if isinstance(mean, torch.Tensor):
            self._sampled = self._sampled or mean.requires_grad
            self._awake.add(NAME)

    def asked(self) -> None:
        self._asked = True
        self._awake.add(NAME)

    def optimizer_steps(self) -> float | None:
        """1: samples had no gradient, and nothing else has one; None: none were drawn
        of a trained distribution."""
        if not self._sampled:
            return 0.0 if self._asked else None
        return float(not self._asked)


def install(watch: Watch) -> None:
    def samples(distribution: Any, args: Args, kwargs: Kwargs) -> None:
        watch.blind_samples.samples(distribution)

    def asked(distribution: Any, args: Args, kwargs: Kwargs) -> None:
        watch.blind_samples.asked()

    normal = torch.distributions.Normal
    observe(watch, normal, "sample", before=samples)
    observe(watch, normal, "rsample", before=asked)
    observe(watch, normal, "log_prob", before=asked)
