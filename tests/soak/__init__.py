"""A fleet at a steady rate for a while: does anything grow? See ``python -m tests.soak --help``."""
