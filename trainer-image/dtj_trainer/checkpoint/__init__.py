"""Checkpoints in a directory: how they are written, which of them can be trusted, and who may write."""
