"""The training loops and their parts: weight updates, random numbers, evaluation, the end of a run."""
