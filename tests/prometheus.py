"""Metrics as Prometheus reads them: by its own parser."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.parser import text_string_to_metric_families


class Scrape:
    """The samples of one answer."""

    def __init__(self, text: str) -> None:
        self.families = {family.name: family for family in text_string_to_metric_families(text)}
        self.samples: dict[str, list[tuple[dict[str, str], float]]] = {}
        for family in self.families.values():
            for sample in family.samples:
                self.samples.setdefault(sample.name, []).append((dict(sample.labels), sample.value))

    def matching(self, name: str, **labels: str) -> Iterator[float]:
        for found, value in self.samples.get(name, ()):
            if labels.items() <= found.items():
                yield value

    def value(self, name: str, **labels: str) -> float:
        """Return the only sample that has these labels, among others."""
        (value,) = self.matching(name, **labels)
        return value

    def total(self, name: str, **labels: str) -> float:
        """Return the sum of the samples that have these labels."""
        return sum(self.matching(name, **labels))

    def labels(self, name: str) -> set[frozenset[str]]:
        """Return the sets of label names that the samples have."""
        return {frozenset(found) for found, _ in self.samples.get(name, ())}

    def is_at_least(self, earlier: Scrape) -> bool:
        """Return whether no counter and no bucket is lower than before, or has disappeared."""
        now = {(name, *sorted(labels.items())): value for name, labels, value in self._growing()}
        return all(
            now.get((name, *sorted(labels.items())), -1) >= value
            for name, labels, value in earlier._growing()
        )

    def _growing(self) -> Iterator[tuple[str, dict[str, str], float]]:
        for family in self.families.values():
            if family.type in ("counter", "histogram"):
                for sample in family.samples:
                    yield sample.name, dict(sample.labels), sample.value
