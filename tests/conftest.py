"""What every level shares."""

pytest_plugins = ["cluster_fixtures"]
