"""The clock of a server, from what its replies say."""

from __future__ import annotations

import pytest

from evenbeat.stores import server_clock
from evenbeat.stores.server_clock import ServerClock


class World:
    """A server's clock and this machine's steady one, with replies that take their time."""

    def __init__(self) -> None:
        self.steady = 1_000.0
        self.server = 5_000_000
        self.there, self.back = 0, 0
        self.asked = 0
        self.clock = ServerClock(self.ask, lambda: self.steady)

    def pass_(self, ms: int) -> None:
        self.steady += ms
        self.server += ms

    def ask(self) -> int:
        self.asked += 1
        self.pass_(self.there)
        instant = self.server
        self.pass_(self.back)
        return instant

    def reply(self) -> None:
        sent = self.clock.mark()
        instant = self.ask()
        self.clock.update(instant, sent)


def test_it_asks_once_and_goes_on_by_itself() -> None:
    world = World()
    assert world.clock.now() == world.server
    world.pass_(59_000)
    assert world.clock.now() == world.server
    assert world.asked == 1
    world.pass_(2_000)
    assert world.clock.now() == world.server
    assert world.asked == 2


def test_it_is_behind_by_no_more_than_a_reply_takes_and_never_ahead() -> None:
    world = World()
    for world.there, world.back in ((0, 40), (30, 3), (500, 0), (0, 500), (7, 7)):
        world.reply()
        assert world.server - 40 <= world.clock.now() <= world.server


def test_a_quick_reply_corrects_a_slow_one_and_not_the_other_way_round() -> None:
    world = World()
    world.there, world.back = 0, 300
    world.reply()
    assert world.clock.now() == world.server - 300
    world.there, world.back = 1, 1
    world.reply()
    assert world.clock.now() == world.server - 1
    world.there, world.back = 0, 900
    world.reply()
    assert world.clock.now() == world.server - 1


def test_a_server_whose_clock_is_set_is_followed_at_its_next_reply() -> None:
    world = World()
    world.reply()
    for jump in (3_600_000, -60_000):
        world.server += jump
        world.there, world.back = 2, 3
        world.reply()
        assert world.server - 5 <= world.clock.now() <= world.server + 5
    # A server tells whole milliseconds: its clock may be almost one ahead of what it says.
    world.server -= 60_000
    world.there, world.back = 0, 0
    world.reply()
    assert world.clock.now() == world.server + 1


def test_another_server_is_asked_for_its_own_time() -> None:
    world = World()
    world.reply()
    world.clock.forget()
    world.server += 5_000
    assert world.clock.now() == world.server
    assert world.asked == 2


def test_it_goes_on_by_the_steady_clock_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = 7.0
    monkeypatch.setattr(server_clock, "steady_clock", lambda: seconds)
    clock = ServerClock(lambda: 5_000_000)
    assert clock.now() == 5_000_000
    seconds = 17.5
    assert clock.now() == 5_010_500
