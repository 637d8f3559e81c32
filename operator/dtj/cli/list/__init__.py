"""``dtj list``: the jobs of a namespace, a line each."""
