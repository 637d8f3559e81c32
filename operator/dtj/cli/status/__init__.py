"""``dtj status``: one job in detail."""
