"""Benchmarks, with the peers in the same run: ``make bench``."""
