"""``evenbeat run``: the process that supervises, and the node process that it starts."""
