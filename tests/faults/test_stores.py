"""Every scene on every store that it concerns: no tick is lost or doubled, no schedule stands still.

The short form; ``make faults`` is the full one. Real time, because real signals and leases are the subject.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import pytest

from evenbeat.stores.base import RunQuery
from tests.faults.fleet import check, drain, fleet, opened, prepare, wait_until
from tests.faults.grounds import Grounds
from tests.faults.scene import SCHEDULES, STORES, Ground, Mutant, Scene
from tests.faults.scenes import all_mutants, all_scenes
from tests.lengths import LONG, some
from tests.missing import skipped_without

if TYPE_CHECKING:
    from _pytest.mark import ParameterSet

# What ``make test`` plays: a few on each store. ``make test-all`` plays all of them.
IN_TEST = {
    "sqlite": ("kills", "unfenced"),
    "postgres": ("outage",),
    "valkey": ("server",),
    "mongo": ("takeovers",),
}


def played(scene: Scene | Mutant, store: str) -> ParameterSet:
    marks = () if scene.name in IN_TEST[store] else LONG
    return pytest.param(scene, store, id=f"{scene.name}-{store}", marks=marks)


# Two of each policy. The nodes send as many commands for them as for twenty, which are due at the same time.
FEW = 6

QUICK = [scene for scene in all_scenes() if scene.quick]
PLAYS = [played(scene, store) for store in STORES for scene in QUICK if store in scene.stores]
MUTANTS = [played(mutant, store) for store in STORES for mutant in all_mutants() if store in mutant.quick]

MakeGround: TypeAlias = Callable[[str, Scene | Mutant | None], Ground]


@pytest.fixture(scope="session")
def grounds() -> Iterator[Grounds]:
    """Servers for scenes. They stay until the end, because tests of other modules run in between."""
    made = Grounds()
    yield made
    made.close()


@pytest.fixture
def place(grounds: Grounds, tmp_path: Path) -> Iterator[MakeGround]:
    with ExitStack() as stack:

        def make(store: str, for_scene: Scene | Mutant | None = None) -> Ground:
            missing = store
            if for_scene is not None and for_scene.ground is not None:
                missing = f"{store} for {for_scene.name}"
            with skipped_without(missing):
                return stack.enter_context(grounds.ground(store, tmp_path, for_scene))

        yield make


@pytest.mark.parametrize(("scene", "store"), PLAYS)
def test_a_scene_breaks_no_promise(place: MakeGround, scene: Scene, store: str) -> None:
    outcome = scene.play(place(store, scene)._replace(schedules=FEW), scene.quick)
    assert outcome.account.completions > 0


@pytest.mark.parametrize(("mutant", "store"), MUTANTS)
def test_a_store_that_is_broken_on_purpose_is_caught(place: MakeGround, mutant: Mutant, store: str) -> None:
    caught = mutant.play(place(store, mutant))
    assert caught is not None
    assert re.search(mutant.says, caught)


@pytest.mark.parametrize("store", some(STORES, "sqlite"))
def test_a_run_that_vanishes_is_noticed(place: MakeGround, store: str) -> None:
    ground = place(store, None)
    prepare(ground.url, SCHEDULES)
    with fleet(ground.url, ground.folder) as nodes:
        nodes.start()
        nodes.await_ready()
        wait_until(lambda: len(nodes.reports()) > 100, "nothing happened")
        drain(ground.url)
        nodes.stop()
    assert check(ground.url, nodes.reports()).runs > 0
    with opened(ground.url) as store_of_ground:
        oldest = store_of_ground.find_runs(RunQuery(limit=10_000)).items[-1]
        assert oldest.finished_at is not None
        while store_of_ground.purge(oldest.finished_at + 1, 1).deleted:
            pass
    with pytest.raises(AssertionError, match="lost"):
        check(ground.url, nodes.reports())
