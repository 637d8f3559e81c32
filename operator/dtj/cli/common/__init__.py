"""What several commands share: the connection, exit codes, formatting, output, the terminal."""
