"""``dtj validate``: checks manifests without a cluster."""
