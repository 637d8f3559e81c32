"""What every start of a task imports, to be imported once by the launcher, which forks each start from there.

It runs no operation: what TensorFlow starts with the first one (threads, devices, a gRPC server) does not survive a
fork. Measured: from the loss of a process to its checkpoint restored 1.4 s, and 6 s if each start imports again.
"""

import os

from dtj_trainer.process import environment

environment.prepare(os.environ)
environment.configure()

import numpy.random  # noqa: E402, F401 - which NumPy itself puts off until it is used

import dtj_trainer.distribution.strategies  # noqa: E402
import dtj_trainer.process.start_gate  # noqa: E402
import dtj_trainer.training.synchronous  # noqa: E402, F401
