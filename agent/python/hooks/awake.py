"""Observers that have something to say at steps.

Most wait for what an ordinary training never does. They sleep: whoever asks observers
reads this set, and touches none of those that are not in it.
"""

from __future__ import annotations

# Observers by the names of their scalars.
Awake = set[str]

# Of those that wait for a backward after a pass over data has begun.
NEW_DATA = "new data"
