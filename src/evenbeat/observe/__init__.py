"""Events, logs and health: what a node reports about its work. Loops call it, stores never do."""
