"""What all tests share: the same examples on every run, and no limit on the time of a single one."""

from __future__ import annotations

from hypothesis import Phase, settings

# Phase.explain traces every line once an example fails, which takes longer than reading the example.
settings.register_profile(
    "evenbeat",
    derandomize=True,
    deadline=None,
    database=None,
    phases=[Phase.explicit, Phase.generate, Phase.target, Phase.shrink],
)
settings.load_profile("evenbeat")
