"""``dtj init``: a manifest and a script to start from."""
