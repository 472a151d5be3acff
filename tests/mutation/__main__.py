"""Run mutants, or show their results.

    python -m tests.mutation                            all suites; continues where the last run ended
    python -m tests.mutation rules --sample 100         a sample of each module of a suite, by a fixed seed
    python -m tests.mutation rules/firing.py --again    the survivors of a module, against the tests of today
    python -m tests.mutation --list                     the survivors that are not accepted, and stale entries
    python -m tests.mutation --write docs/mutants.md    the scores, and the accepted survivors

Everything happens in copies of the tree, under build/mutants; results are kept there, in results.jsonl.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests import servers
from tests.mutation.mutants import Mutant, find_mutants, read_source
from tests.mutation.report import read_accepted, stale, survivors, write_page
from tests.mutation.runner import ROOT, Results, run
from tests.mutation.suites import SUITES, Suite


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutation", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("wanted", nargs="*", help="suites, modules or places in them; all if none is named")
    parser.add_argument("--sample", type=int, help="try this many mutants of each module")
    parser.add_argument(
        "--functions", action="store_true", help="leave out constants: each takes every test, twice"
    )
    parser.add_argument("--seed", type=int, default=1, help="which sample (1)")
    parser.add_argument("--workers", type=int, choices=(1, 2), default=1, help="processes at a time (1)")
    parser.add_argument("--again", action="store_true", help="retry survivors that are not accepted")
    parser.add_argument("--fresh", action="store_true", help="retry all")
    parser.add_argument(
        "--list", action="store_true", help="show survivors that are not accepted, and run nothing"
    )
    parser.add_argument("--write", type=Path, metavar="PAGE", help="write the scores and run nothing")
    options = parser.parse_args()
    os.nice(5)
    servers.keep_data_in_memory()
    results = Results()
    chosen = list(_chosen(options.wanted))
    accepted = read_accepted()
    known = {mutant for reason in accepted for mutant in reason.mutants}
    if options.list or options.write:
        if options.write:
            before = options.write.read_text() if options.write.exists() else ""
            options.write.write_text(write_page(chosen, results, accepted, before))
        else:
            for mutant in survivors(chosen, results, accepted):
                print(f"{mutant.id} {mutant.module}:{mutant.line} {mutant.place}: {mutant.change}")
            if not options.wanted:
                for entry in stale(chosen, accepted):
                    print(f"stale: {entry}")
        return 0
    for suite, mutants in chosen:
        todo = [
            mutant
            for mutant in _sampled(mutants, options.sample, options.seed)
            if not (options.functions and mutant.imported and mutant.module.endswith(".py"))
            and (
                options.fresh
                or (found := results.get(mutant.id)) is None
                or (options.again and found.survived and mutant.id not in known)
            )
        ]
        if todo:
            run(suite, todo, results, options.workers)
    return 0


def _chosen(wanted: Sequence[str]) -> Iterable[tuple[Suite, list[Mutant]]]:
    known = {name for suite in SUITES for name in (suite.name, *suite.modules)}
    if unknown := [word for word in wanted if word not in known]:
        sys.exit(f"{unknown[0]} is not a suite or a module; these are: {', '.join(sorted(known))}")
    for suite in SUITES:
        modules = [m for m in suite.modules if not wanted or suite.name in wanted or m in wanted]
        mutants = [mutant for module in modules for mutant in find_mutants(module, read_source(ROOT, module))]
        if mutants:
            yield suite, mutants


def _sampled(mutants: list[Mutant], size: int | None, seed: int) -> list[Mutant]:
    """Return a sample: the same one each time, as long as the source is the same."""
    if size is None:
        return mutants
    found: list[Mutant] = []
    for module in dict.fromkeys(mutant.module for mutant in mutants):
        own = [mutant for mutant in mutants if mutant.module == module]
        found += random.Random(f"{seed} {module}").sample(own, min(size, len(own)))
    return found


if __name__ == "__main__":
    sys.exit(main())
