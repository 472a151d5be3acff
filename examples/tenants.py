"""Tenants: one store, and schedules and runs of several owners that do not mix.

python examples/tenants.py
"""

from __future__ import annotations

from evenbeat import RunContext, RunNotFound, Scheduler, every
from evenbeat.testing import virtual

app = Scheduler("sqlite:///shop.db")  # not touched: the example runs in virtual time


@app.task
def report(run: RunContext) -> str:
    return f"report for {run.tenant}"


def main() -> None:
    with virtual(app) as scheduler:
        for tenant in ("acme", "globex"):
            app.schedules.add("nightly", every("1d"), report, tenant=tenant)  # the same name, two schedules
        runs = scheduler.travel("1d")  # nodes serve all tenants
        assert sorted(run.result for run in runs) == ["report for acme", "report for globex"]

        app.schedules.pause("nightly", tenant="acme")
        assert [run.tenant for run in scheduler.travel("1d")] == ["globex"]

        assert app.schedules.list() == []  # those of the tenant "default"
        assert len(app.schedules.list(all_tenants=True)) == 2

        (of_acme,) = app.runs.list(tenant="acme")
        assert app.runs.get(of_acme.id, tenant="acme").tenant == "acme"
        try:
            app.runs.get(of_acme.id, tenant="globex")
        except RunNotFound as error:
            print(f"globex: {error}")
        else:
            raise AssertionError("a tenant saw a run of another one")


if __name__ == "__main__":
    main()
