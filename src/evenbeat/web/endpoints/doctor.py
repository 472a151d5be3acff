"""Checks of the store, and of the nodes that work on it."""

from __future__ import annotations

from typing import Any

from evenbeat.core.clocks import wall_clock
from evenbeat.doctor.diagnosis import diagnose
from evenbeat.doctor.findings import Finding
from evenbeat.doctor.settings import safety_findings
from evenbeat.web.bodies import body_of, list_of
from evenbeat.web.endpoint import Call, endpoint

FINDINGS = list_of("Findings", body_of(Finding), ok=bool)


@endpoint("GET", "/doctor", role="admin", scope="store", answer=FINDINGS)
def doctor(call: Call[Any, Any]) -> object:
    """Check the store, and whether nodes work on it; each finding says what to do.

    `ok` is false if a check failed; warnings alone leave it true. Reads up to 100,000 runs, so it is not for
    probes: these should use `/readyz`.
    """
    store = call.app.store
    findings = [*safety_findings(store.server()), *diagnose(store, wall_clock())]
    return {"ok": all(each.level != "fail" for each in findings), "items": findings}
