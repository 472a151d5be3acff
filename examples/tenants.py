"""Tenants: one store, and schedules and runs of several owners that do not mix. They take turns, have quotas,
and can be deleted with everything that they have.

python examples/tenants.py
"""

from __future__ import annotations

from evenbeat import QuotaExceeded, RunContext, RunNotFound, Scheduler, every
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

        # A flood of one tenant does not delay the others: they take turns.
        app.enqueue_many([report] * 300, tenant="acme")
        app.enqueue(report, tenant="globex")
        order = [run.tenant for run in scheduler.run_pending()]
        print(f"globex was number {order.index('globex') + 1} of {len(order)}")
        assert order.index("globex") <= 1

        app.tenants.set_quota("acme", queued_runs=100)
        try:
            app.enqueue_many([report] * 300, tenant="acme")  # none of them is added
        except QuotaExceeded as error:
            print(error)
        else:
            raise AssertionError("more than the quota was queued")
        assert app.tenants.get("acme").due == 0

        # A customer leaves: nothing of it fires again, and the others keep what they have.
        counted = app.tenants.purge("acme", dry_run=True)
        done = app.tenants.purge("acme")
        assert counted.runs == done.runs == 301
        assert done.is_complete
        assert [tenant.name for tenant in app.tenants.list()] == ["globex"]
        assert {run.tenant for run in scheduler.travel("3d")} == {"globex"}


if __name__ == "__main__":
    main()
