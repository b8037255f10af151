"""What an observer has found, by the names of its scalars."""

from __future__ import annotations


class Findings(dict[str, float]):
    """1: a mistake was made; 0: it could have been; left out: it could not, or it is
    not known. Of several answers the greatest counts."""

    def add(self, name: str, value: float | None) -> None:
        if value is not None:
            self[name] = max(self.get(name, 0.0), float(value))

    def without(self, *names: str) -> Findings:
        return Findings({name: one for name, one in self.items() if name not in names})
