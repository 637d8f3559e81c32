"""From what the API server and files hold to the values that the planner reads, for the operator and its clients."""
