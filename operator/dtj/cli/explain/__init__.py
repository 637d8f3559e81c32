"""``dtj explain``: what a cluster would be asked for, simulated with the operator's own planner."""
