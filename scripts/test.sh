#!/usr/bin/env bash
# Run levels of tests, one after the other; say at the end what passed and where the time went.
#   usage: scripts/test.sh NAME...     (gate, all, for-change, or names of tests/levels.toml)
# More arguments for pytest: PYTEST_ARGS="-k planner -x"
set -euo pipefail
cd "$(dirname "$0")/.."
make --no-print-directory operator
exec .venv/bin/python scripts/levels.py "$@"
