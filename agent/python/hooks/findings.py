"""What an observer has found, by the names of its scalars."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any


class Findings(dict[str, float]):
    """1: a mistake was made; 0: it could have been; left out: it could not, or it is
    not known. Of several answers the greatest counts."""

    def __init__(self, *found: Any) -> None:
        super().__init__(*found)
        # What the observer looks at now, and what its greatest answers are about.
        self.at: Any = None
        self.causes: dict[str, Any] = {}

    def add(self, name: str, value: float | None) -> None:
        if value is None:
            return
        if value > self.get(name, 0.0):
            self.causes[name] = self.at
        self[name] = max(self.get(name, 0.0), float(value))

    def join(self, others: Findings) -> None:
        """Takes over what another observer has found."""
        self.update(others)
        self.causes.update(others.causes)

    def without(self, *names: str) -> Findings:
        left = Findings({name: one for name, one in self.items() if name not in names})
        left.causes = self.causes
        return left
