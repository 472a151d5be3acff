"""``python -m bench [suite …]``: measure, print, and write bench/results/, one file for each suite.

Writes docs/benchmarks.md from the last figures of each suite. Where some suites were never measured here, it
writes only the sections of the chosen ones, into the page as it is.
"""

from __future__ import annotations

import shutil
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from tests.servers import stop_shared

from bench import (
    burst,
    cron,
    documents,
    execution,
    fairness,
    firing,
    flows,
    forecast,
    limits,
    metrics,
    operations,
    planning,
    punctuality,
    purging,
    readme,
    rest,
    servers_execution,
    servers_punctuality,
    servers_rest,
    sqlite,
    startup,
    stores,
    timeline,
    web,
)
from bench.measure import Report, machine, versions
from bench.report import page, with_sections

SUITES = {
    "cron": cron.run,
    "planning": planning.run,
    "forecast": forecast.run,
    "timeline": timeline.run,
    "stores": stores.run,
    "sqlite": sqlite.run,
    "execution": execution.run,
    "punctuality": punctuality.run,
    "burst": burst.run,
    "rest": rest.run,
    "startup": startup.run,
    "firing": firing.run,
    "operations": operations.run,
    "servers_execution": servers_execution.run,
    "servers_punctuality": servers_punctuality.run,
    "servers_rest": servers_rest.run,
    "documents": documents.run,
    "web": web.run,
    "metrics": metrics.run,
    "limits": limits.run,
    "fairness": fairness.run,
    "purging": purging.run,
    "flows": flows.run,
}
PLOTS = (burst.PLOT, servers_execution.PLOT)
ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "bench" / "results"
PAGE = ROOT / "docs" / "benchmarks.md"
PACKAGES = (
    "evenbeat",
    "numpy",
    "cronsim",
    "croniter",
    "apscheduler",
    "celery",
    "dbos",
    "huey",
    "pgqueuer",
    "procrastinate",
    "psycopg",
    "redis",
    "pymongo",
    "sortedcontainers",
    "sqlalchemy",
)


def main(chosen: list[str]) -> int:
    unknown = [name for name in chosen if name not in SUITES]
    if unknown:
        print(f"no such suite: {', '.join(unknown)}; there are {', '.join(SUITES)}", file=sys.stderr)
        return 2
    RESULTS.mkdir(exist_ok=True)
    try:
        for name in chosen or SUITES:
            begin = time.perf_counter()
            print(f"{name} …", end=" ", flush=True)
            rows = SUITES[name]()
            report = Report(datetime.now(UTC).strftime("%Y-%m-%d"), machine(), versions(*PACKAGES), rows)
            _file(name).write_bytes(msgspec.json.format(msgspec.json.encode(report)) + b"\n")
            print(f"{time.perf_counter() - begin:.0f} s")
    finally:
        stop_shared()
    known = [name for name in SUITES if _file(name).exists()]
    reports = {name: msgspec.json.decode(_file(name).read_bytes(), type=Report) for name in known}
    print(page({name: reports[name] for name in chosen or known}))
    if len(known) < len(SUITES):
        PAGE.write_text(with_sections(PAGE.read_text(), {name: reports[name] for name in chosen}))
        missing = ", ".join(name for name in SUITES if name not in known)
        print(f"written to docs/benchmarks.md: {', '.join(chosen)}; not measured here: {missing}")
        return 0
    PAGE.write_text(page(reports))
    (ROOT / "docs" / "img").mkdir(exist_ok=True)
    for plot in PLOTS:
        shutil.copy(plot, ROOT / "docs" / "img" / plot.name)
    readme.write()
    print("written to docs/benchmarks.md, docs/img/ and README.md")
    return 0


def _file(suite: str) -> Path:
    """Return the last figures of a suite."""
    return RESULTS / f"{suite}.json"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
