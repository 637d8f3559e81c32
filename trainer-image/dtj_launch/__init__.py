"""`dtj-launch`: starts the program of one task, and starts it again in its place when a peer was lost.

Stands between a container's runtime and its program, as process 1 or below a shim: start gate, signals, exit codes,
stacks on demand, restart in place. Fits any image that has Python 3.9 or later: `pip install dtj-launch`,
or copy this folder there and run `python3 FOLDER [options] -- COMMAND...`. Therefore the standard library alone, and
nothing of this project from outside this folder. `progress` shows the training of such an image to the operator.
"""

__all__ = ["__version__"]

__version__ = "0.1.0"
