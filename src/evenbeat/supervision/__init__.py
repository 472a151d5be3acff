"""``evenbeat run``: the supervisor, and the node processes that it starts."""
