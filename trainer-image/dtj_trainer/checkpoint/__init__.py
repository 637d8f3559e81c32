"""Checkpoints in a directory: how they are written, which of them are valid, and which process may write."""
