"""What every level shares. The trainer's environment, which runs tests/trainer, has no libraries of the test bed."""

import signal
from importlib.util import find_spec

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # So a shell starts what it puts into the background, and what tests start would not hear their Ctrl-C either.
    signal.signal(signal.SIGINT, signal.default_int_handler)

pytest_plugins = ["report"]
if find_spec("cryptography") and find_spec("yaml"):
    pytest_plugins.append("cluster_fixtures")
