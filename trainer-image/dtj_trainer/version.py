"""The version of the trainer."""

__version__ = "0.1.0"
