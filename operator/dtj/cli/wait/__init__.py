"""``dtj wait``: waits for a state of a job."""
