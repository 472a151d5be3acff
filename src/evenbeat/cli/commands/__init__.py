"""One module per command; the group calls its ``command``."""
