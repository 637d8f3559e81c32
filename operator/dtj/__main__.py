"""``python -m dtj`` is ``dtj``."""

from dtj.cli.main import main

main()
