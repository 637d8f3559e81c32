"""``dtj logs``: what the pods of a job wrote."""
