"""The operating-system side of our own processes: pipes, signals, forks, imports."""
