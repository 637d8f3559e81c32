"""How hypothesis works here."""

from hypothesis import settings

settings.register_profile("same everywhere", deadline=None, derandomize=True, database=None)
settings.load_profile("same everywhere")
"""The same examples in each run and on each machine. A busy one is slow at times; no property here is about speed."""
