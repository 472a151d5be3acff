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


@pytest.mark.parametrize(
    ("length", "asked", "items"),
    [
        # As many are read as fit, if they are like those before; at least one, if none would fit.
        (10, [20, 80], 100),
        (49, [20, 1], 21),
        (100, [20], 20),
    ],
)
def test_no_more_is_read_than_a_page_takes(
    monkeypatch: pytest.MonkeyPatch, length: int, asked: list[int], items: int
) -> None:
    monkeypatch.setattr(paging, "LARGEST_PAGE", 1000)
    reads: list[tuple[int, str | None]] = []

    def read(most: int, cursor: str | None) -> paging.Part:
        reads.append((most, cursor))
        return paging.Part(["x" * (length - 2)] * most, f"after {len(reads)}")

    page = paging.bounded(read, 500, "start")
    assert [most for most, _ in reads] == asked
    assert [cursor for _, cursor in reads] == ["start", "after 1"][: len(asked)]
    assert (len(page["items"]), page["cursor"]) == (items, f"after {len(asked)}")


def test_parts_without_items_are_passed_over() -> None:
    """A search may look at many rows and find none."""
    parts = [paging.Part([], "a"), paging.Part([], "b"), paging.Part([1, 2], None)]
    asked: list[int] = []

    def read(most: int, cursor: str | None) -> paging.Part:
        asked.append(most)
        return parts.pop(0)

    page = paging.bounded(read, 30, None)
    assert (len(page["items"]), page["cursor"], asked) == (2, None, [20, 20, 20])
