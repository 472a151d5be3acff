"""``python -m tests.simulator --seed 123``: replay a seed, or search for one that fails."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import tempfile
from pathlib import Path

from tests.isolation import own_place
from tests.simulator.backends import MemoryBackend, server_backend, sqlite_backend
from tests.simulator.simulation import (
    DEFAULT,
    WITH_DRIVER,
    Report,
    simulate,
    with_backfills,
    with_code_only,
    with_flows,
    with_reuse,
)
from tests.simulator.trace import Trace
from tests.simulator.violation import SimulationFailed


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulator", description=__doc__)
    parser.add_argument("--seed", type=int, required=True, help="the first seed")
    parser.add_argument("--seeds", type=int, default=1, help="how many, one after the other")
    parser.add_argument("--store", default="memory", help="memory, sqlite, or the URL of a server")
    parser.add_argument("--product", action="store_true", help="nodes are the product's own loops")
    parser.add_argument("--limits", action="store_true", help="users set limits, too")
    parser.add_argument("--dependencies", action="store_true", help="schedules depend on others, too")
    parser.add_argument("--calendars", action="store_true", help="schedules have calendars, which change")
    parser.add_argument("--flows", action="store_true", help="schedules and users start flows")
    parser.add_argument("--backfills", action="store_true", help="the same, and schedules are backfilled")
    parser.add_argument("--reuse", action="store_true", help="ids of flows come again after a purge")
    parser.add_argument("--code-only", action="store_true", help="schedules without rows, retention rules")
    parser.add_argument("-v", "--verbose", action="store_true", help="print what happens as it happens")
    chosen = parser.parse_args(arguments)
    # Warnings of lost workers are normal here.
    logging.getLogger("evenbeat").setLevel(logging.CRITICAL)
    failed = 0
    for seed in range(chosen.seed, chosen.seed + chosen.seeds):
        trace = Trace(_write if chosen.verbose else None)
        try:
            report = run_seed(
                seed,
                chosen.store,
                trace,
                product=chosen.product,
                limits=chosen.limits,
                dependencies=chosen.dependencies,
                calendars=chosen.calendars,
                flows=chosen.flows,
                backfills=chosen.backfills,
                reuse=chosen.reuse,
                code_only=chosen.code_only,
            )
        except SimulationFailed as failure:
            _write(str(failure))
            failed += 1
        else:
            seconds = report.virtual_ms / 1000
            _write(
                f"seed {seed}: kept, {report.steps} steps, {report.runs} runs, {report.faults} faults, "
                f"{seconds:.0f} virtual seconds"
            )
    return 1 if failed else 0


def run_seed(
    seed: int,
    store: str,
    trace: Trace,
    *,
    product: bool = False,
    limits: bool = False,
    dependencies: bool = False,
    calendars: bool = False,
    flows: bool = False,
    backfills: bool = False,
    reuse: bool = False,
    code_only: bool = False,
) -> Report:
    chosen = DEFAULT if store == "memory" else WITH_DRIVER
    settings = chosen._replace(product=product, limits=limits, dependencies=dependencies, calendars=calendars)
    if reuse:
        settings = with_reuse(settings, seed)
    elif backfills:
        settings = with_backfills(settings, seed)
    elif flows:
        settings = with_flows(settings, seed)
    if code_only:
        settings = with_code_only(settings)
    if store == "memory":
        return simulate(seed, MemoryBackend, settings, trace=trace, store=store)
    if store != "sqlite":
        with own_place(store) as url:
            return simulate(seed, server_backend(url), settings, trace=trace, store=store)
    shared_memory = Path("/dev/shm")  # noqa: S108 - a directory of our own is made in it
    is_usable = shared_memory.is_dir() and os.access(shared_memory, os.W_OK)
    with tempfile.TemporaryDirectory(dir=shared_memory if is_usable else None) as folder:
        backend = sqlite_backend(Path(folder) / "evenbeat.db")
        return simulate(seed, backend, settings, trace=trace, store=store)


def _write(text: str) -> None:
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    sys.exit(main())
