"""How hypothesis works here."""

from hypothesis import settings

settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")
"""A machine that others use too is slow at times; no property here is about speed."""
