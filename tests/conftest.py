"""What every level shares. The trainer's environment, which runs tests/trainer, has no libraries of the test bed."""

from importlib.util import find_spec

pytest_plugins = ["report"]
if find_spec("cryptography") and find_spec("yaml"):
    pytest_plugins.append("cluster_fixtures")
