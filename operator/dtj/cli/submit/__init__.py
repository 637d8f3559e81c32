"""``dtj submit``: creates jobs on a cluster."""
