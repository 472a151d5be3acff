"""The graph of a flow: its steps, what they wait for, and where their arguments come from. Frozen values."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, Literal, TypeAlias

import msgspec

from evenbeat.core.records import NORMAL, Execution, Kind

RunIf: TypeAlias = Literal["all_succeeded", "any_failed", "always"]
MOST_STEPS = 10_000
MOST_ELEMENTS = 10_000
"""The elements of a map. They are added in one atomic step of the store."""
LONGEST_STEP = 64
STEP_PATTERN = "^[A-Za-z0-9_][A-Za-z0-9_.:-]{0,63}$"
"""No ~ and no @: ids of steps contain these."""


class Input(msgspec.Struct, frozen=True, array_like=True):
    """A value that is put into the payload of a step: a parameter of the flow, or the result of a step."""

    path: tuple[str | int, ...]
    """Where: the name of the argument, then keys and positions inside it."""
    source: Literal["parameter", "result"]
    name: str


class FlowStep(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A step of a flow: a task or another flow, with its arguments and what it waits for."""

    name: str
    task: str
    kind: Kind = "task"
    payload: str = "{}"
    """The arguments as JSON text; null where ``inputs`` are put."""
    inputs: tuple[Input, ...] = ()
    predecessors: tuple[int, ...] = ()
    """The steps that must have ended before, by their positions in the graph."""
    run_if: RunIf = "all_succeeded"
    element: str = ""
    """Of a map: the argument that gets the element. Empty: not a map."""
    over: Input | None = None
    """Of a map: where its elements come from."""
    elements: str = ""
    """Of a map over a list that the flow itself contains: this list, as JSON text."""
    queue: str = "default"
    priority: int = NORMAL
    execution: Execution = Execution()
    graph: str = ""
    """Of a flow: the key of its graph."""

    @property
    def is_map(self) -> bool:
        return self.element != ""


class FlowGraph(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, dict=True):
    """The steps of a flow, each after its predecessors."""

    name: str
    steps: tuple[FlowStep, ...]
    defaults: str = "{}"
    """The defaults of the flow's parameters, as JSON text."""
    result: str = ""
    """The step whose result is the flow's; empty: it has none."""

    @property
    def key(self) -> str:
        """A digest of its content: the key of the record that keeps it."""
        if "_key" not in self.__dict__:
            self.__dict__["_key"] = blake2b(encode_graph(self).encode(), digest_size=12).hexdigest()
        key: str = self.__dict__["_key"]
        return key

    @property
    def successors(self) -> Sequence[Sequence[int]]:
        """The steps that wait for each step."""
        if "_successors" not in self.__dict__:
            found: list[list[int]] = [[] for _ in self.steps]
            for at, step in enumerate(self.steps):
                for before in step.predecessors:
                    found[before].append(at)
            self.__dict__["_successors"] = found
        successors: Sequence[Sequence[int]] = self.__dict__["_successors"]
        return successors

    @property
    def positions(self) -> dict[str, int]:
        """The positions of the steps, by name."""
        if "_positions" not in self.__dict__:
            self.__dict__["_positions"] = {step.name: at for at, step in enumerate(self.steps)}
        positions: dict[str, int] = self.__dict__["_positions"]
        return positions

    @property
    def uses(self) -> frozenset[str]:
        """The steps whose results others get as arguments, or the flow returns."""
        if "_uses" not in self.__dict__:
            inputs = [each for step in self.steps for each in (*step.inputs, step.over) if each is not None]
            names = {each.name for each in inputs if each.source == "result"}
            self.__dict__["_uses"] = frozenset(names | {self.result})
        uses: frozenset[str] = self.__dict__["_uses"]
        return uses

    def after(self, step: int) -> set[int]:
        """Return the steps that come after a step, directly or not."""
        found: set[int] = set()
        left = [step]
        while left:
            for at in self.successors[left.pop()]:
                if at not in found:
                    found.add(at)
                    left.append(at)
        return found


_decoder = msgspec.json.Decoder(FlowGraph)
_encoder = msgspec.json.Encoder()


def encode_graph(graph: FlowGraph) -> str:
    return _encoder.encode(graph).decode()


def decode_graph(text: str) -> FlowGraph:
    return _decoder.decode(text)


def put(value: Any, path: Sequence[str | int], part: Any) -> None:
    """Put ``part`` into a JSON value at this path, which exists."""
    for key in path[:-1]:
        value = value[key]
    value[path[-1]] = part
