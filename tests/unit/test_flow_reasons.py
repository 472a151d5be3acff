"""Why a step of a flow did not run, in words."""

from __future__ import annotations

from evenbeat.testing import virtual


def test_a_step_that_would_have_run_after_a_failure_did_not_because_the_flow_was_cancelled() -> None:
    with virtual() as time:

        @time.task(retries=5, backoff="1h")
        def slow() -> None:
            raise ValueError("again")

        @time.task
        def work() -> None: ...

        @time.flow
        def flow() -> None:
            first = slow.step()
            work.step(step_name="next", after=[first])
            work.step(step_name="clean", run_if="always", after=[first])
            work.step(step_name="alarm", run_if="any_failed", after=[first])

        run = flow.enqueue()
        time.run_pending()
        cancelled = time.flows.cancel(run.id)

    assert {step.name: step.reason for step in cancelled.steps} == {
        "slow": None,
        "next": "slow was cancelled",
        "clean": "the flow was cancelled",
        "alarm": "the flow was cancelled",
    }
