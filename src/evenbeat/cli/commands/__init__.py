"""One module per command; its ``command`` is what the group calls."""
