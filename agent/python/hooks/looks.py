"""At which steps an observer looks that does not look at each."""

_FIRST = 4
_EVERY = 64  # afterwards one of so many


def looks_at(step: int) -> bool:
    """step: counted from 0."""
    return step < _FIRST or step % _EVERY == 0


def looks_at_two(step: int) -> bool:
    """At this one or the next one?"""
    return step < _FIRST or (step + 1) % _EVERY < 2
