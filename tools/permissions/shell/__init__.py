"""What a shell command would run and touch, told from its text alone."""
