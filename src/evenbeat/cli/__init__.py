"""The ``evenbeat`` command."""


def main() -> None:
    """Placeholder until the command lands."""
