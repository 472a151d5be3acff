"""A node: one process's share of the work, one module for each duty."""
