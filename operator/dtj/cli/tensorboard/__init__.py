"""``dtj tensorboard``: the curves of a job or a run in a browser."""
