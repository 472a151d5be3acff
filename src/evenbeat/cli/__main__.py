"""``python -m evenbeat.cli``: the command without its script."""

from evenbeat.cli import main

main()
