"""A node of a future version: it reads and writes rows of the next format. Arguments as for ``node``."""

from __future__ import annotations

import importlib.machinery
import sys
from collections.abc import Sequence
from types import CodeType, ModuleType

FORMAT = 2


class _Loader(importlib.machinery.SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType:
        source = self.get_source(fullname)
        assert source is not None
        assert "\nFORMAT = 1\n" in source
        return compile(source.replace("\nFORMAT = 1\n", f"\nFORMAT = {FORMAT}\n"), self.path, "exec")


class _Finder:
    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != "evenbeat.core.records":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        assert spec is not None
        assert spec.origin is not None
        spec.loader = _Loader(name, spec.origin)
        return spec


if __name__ == "__main__":
    sys.meta_path.insert(0, _Finder)
    from tests.faults import node

    node.main()
