"""Our own processes: pipes, signals, forks, file descriptors, and the import of users' modules."""
