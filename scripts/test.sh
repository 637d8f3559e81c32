#!/usr/bin/env bash
# Run test levels, side by side if there are several; say at the end what passed, what was left out and where the time went.
#   usage: scripts/test.sh LEVEL...     (lint, unit, browser, trainer, local, api, neighbours, campaigns, e2e)
# More arguments for pytest: PYTEST_ARGS="-k planner -x"
set -euo pipefail
cd "$(dirname "$0")/.."
make --no-print-directory operator
exec .venv/bin/python scripts/levels.py "$@"
