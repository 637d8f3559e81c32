"""``dtj run``: jobs on this machine or on a cluster, shown until they end."""
