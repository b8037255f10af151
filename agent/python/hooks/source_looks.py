"""What the source of a training shows, looked at once: where an optimizer steps for the
first time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from _traincheck import dropped_results, source_files, unread_arguments
from _traincheck.running_sources import RunningSources, with_callees

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from _traincheck.models import Models
    from traincheck_core import Core


class SourceLooks:
    def __init__(self, core: Core, models: Models) -> None:
        self._sources = RunningSources(models)
        self._dropped = dropped_results.DroppedResults(core)
        self._unread = unread_arguments.UnreadArguments(core)
        self.are_over = False  # each training is looked at once

    def pass_begins(self, loader: Any) -> None:
        if not self.are_over:
            self._sources.pass_begins(loader)

    def look(self) -> Iterator[tuple[str, float | None]]:
        """Scalars of an optimizer; None: nothing is known."""
        if not self.are_over:
            self.are_over = True
            own = self._sources.take()
            running = list(with_callees([source for source, _ in own]))
            self._dropped.look(own, running)
            self._unread.look(own, running)
            if source_files.are_cut():
                # What was not read is not known to be in order.
                self._dropped.said = self._dropped.said or None
                self._unread.said = self._unread.said or None
            source_files.forget()
        yield dropped_results.NAME, self._dropped.said
        yield f"{dropped_results.NAME}.site", float(self._dropped.site) or None
        yield unread_arguments.NAME, self._unread.said
        yield f"{unread_arguments.NAME}.site", float(self._unread.site) or None
