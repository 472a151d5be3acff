"""Pages end when they are large, and every item is on exactly one of them."""

from __future__ import annotations

from typing import Any

import pytest

from evenbeat import every
from evenbeat.web import paging
from tests.web.site import Site


@pytest.mark.parametrize("path", ["runs", "schedules"])
def test_a_page_of_large_payloads_ends_before_the_limit(
    site: Site, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr(paging, "LARGEST_PAGE", 100_000)
    for at in range(70):
        payload = {"text": "x" * (10_000 if at % 2 else 10)}
        site.app.enqueue("other", payload, id=f"n{at}")
        site.app.schedules.add(f"n{at}", every("1h"), "other", payload)
    found: list[str] = []
    params: dict[str, Any] = {"limit": 500}
    sizes = []
    while True:
        page = site.request("GET", path, params=params, role="viewer")
        assert len(page.content) < 400_000
        items = page.json()["items"]
        found += [item.get("name") or item["id"] for item in items]
        sizes.append(len(items))
        if page.json()["cursor"] is None:
            break
        params["cursor"] = page.json()["cursor"]
    assert sorted(found) == sorted(f"n{at}" for at in range(70))
    assert len(sizes) > 2


def test_a_page_has_as_many_small_items_as_asked_for(site: Site) -> None:
    for at in range(70):
        site.app.enqueue("other", id=f"n{at}")
        site.app.schedules.add(f"n{at}", every("1h"), "other")
    for path in ("runs", "schedules"):
        for limit in (1, 19, 20, 21, 69):
            page = site.get(path, params={"limit": limit})
            assert len(page["items"]) == limit
            assert page["cursor"] is not None
        assert site.get(path, params={"limit": 70})["cursor"] is None
    assert site.get("schedules", params={"limit": 1})["matched"] == 70
