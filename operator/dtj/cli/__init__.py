"""``dtj``, the command line: reads what a person wants, and shows what came of it. Decides nothing about jobs."""
