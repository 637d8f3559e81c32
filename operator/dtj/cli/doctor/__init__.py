"""``dtj doctor``: whether jobs can run on this cluster."""
