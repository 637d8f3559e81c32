"""The process that a task runs in: its environment, signals, exit codes, start and end."""
