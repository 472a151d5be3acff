"""``python -m evenbeat``: the command without its script."""

from evenbeat.cli import main

main()
