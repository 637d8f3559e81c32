"""What every level shares. The trainer's environment, which runs tests/trainer, has no libraries of the test bed."""

from importlib.util import find_spec

pytest_plugins = ["cluster_fixtures"] if find_spec("cryptography") and find_spec("yaml") else []
