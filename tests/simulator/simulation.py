"""One simulation: nodes, users and faults of one seed, against one store."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from evenbeat.app.accounting import account_of
from evenbeat.errors import StoreUnavailable
from evenbeat.testing.clock import VirtualClock
from tests.simulator import nodes, product
from tests.simulator.backends import Backend, MakeBackend, MemoryBackend
from tests.simulator.fault_proxy import READS, Call, FaultProxy, Watcher
from tests.simulator.faults import CALM, draw_faults, draw_long_pauses
from tests.simulator.flow_oracle import FlowOracle, watched_flows
from tests.simulator.flow_plans import Catalogue, random_catalogue
from tests.simulator.flow_users import FlowUser, ReusingUser
from tests.simulator.interleaving import Crash, Interleaving, Strand
from tests.simulator.nodes import Machine, Node
from tests.simulator.oracle import Oracle
from tests.simulator.trace import Line, Trace
from tests.simulator.users import User
from tests.simulator.violation import SimulationFailed, Violation

SHOWN_LINES = 30
STILL = 30
"""After how many calls without a change all nodes have run."""
STILL_WITH_BACKFILLS = 120
"""The same if they look at backfills, which takes several calls each."""
LIVELY = 20
"""How many times ``patience`` work may take that changes something all the time."""


class Options(NamedTuple):
    """How long and how wide a simulation is."""

    machines: int = 3
    users: int = 2
    schedules: int = 5
    steps: int = 400
    """How many switches there are before the faults stop."""
    patience: int = 2_000
    """After how many calls without faults and without a change all work must be done."""
    product: bool = False
    """Whether nodes are Evenbeat's own loops instead of clients written for the simulation."""
    limits: bool = False
    """Whether users set and remove limits, and enqueue runs that they concern."""
    dependencies: bool = False
    """Whether users make schedules that depend on others."""
    calendars: bool = False
    """Whether schedules have calendars, which users change."""
    flows: bool = False
    """Whether schedules and users start flows, which users cancel and resume. Nodes are then the product's
    loops, and delete no history."""
    reuse: bool = False
    """Whether users also purge flows and runs, and start others with the same ids. Needs flows."""
    backfills: bool = False
    """Whether users also make and cancel backfills. Needs flows."""
    code_only: bool = False
    """Whether nodes plan schedules in memory, with retention rules. Nodes are then the product's loops, and
    stop for hours. There are no users."""
    accounts: bool = False
    """Whether the account of each schedule must add up in the end. Users then move no tick to the past, as
    ``app.schedules`` allows none. The store must keep all history."""


DEFAULT = Options()
# A call takes several commands there, and each is a step.
WITH_DRIVER = Options(steps=1_000)


def with_flows(options: Options, seed: int) -> Options:
    """Return the options of a simulation with flows: schedules of every second seed depend on others, too."""
    return options._replace(
        product=True, flows=True, dependencies=seed % 2 == 1, schedules=2, steps=2 * options.steps
    )


def with_backfills(options: Options, seed: int) -> Options:
    """Return the options of a simulation in which schedules that start flows are backfilled, too."""
    # A look at a backfill takes several calls.
    return with_flows(options, seed)._replace(backfills=True, patience=3 * options.patience)


def with_reuse(options: Options, seed: int) -> Options:
    """Return the options of a simulation in which ids of flows come again: fewer nodes remember more."""
    return with_flows(options, seed)._replace(reuse=True, machines=2, schedules=1, dependencies=False)


def with_code_only(options: Options) -> Options:
    """Return the options of a simulation with schedules that are in the code only."""
    return options._replace(product=True, code_only=True, steps=2 * options.steps)


class Report(NamedTuple):
    """The result of a simulation without a violation."""

    seed: int
    steps: int
    virtual_ms: int
    runs: int
    faults: int
    trace: tuple[Line, ...]


class Simulation(Watcher):
    """The simulation of one seed."""

    def __init__(self, seed: int, backend: MakeBackend, options: Options, trace: Trace) -> None:
        self.seed = seed
        self.options = options
        self.random = Random(seed)
        self.clock = VirtualClock()
        self.started = self.clock()
        self.interleaving = Interleaving(self.random, self.clock)
        self.interleaving.on_crash = self._restart
        self.trace = trace
        self.oracle = Oracle()
        self.quiet = False
        self.idle = self.random.choice((300, 1_500, 4_000))
        """The longest pause of a node between two steps."""
        self.leisure = self.random.choice((1_000, 6_000))
        """The longest pause of a user between two changes."""
        self.interleaving.pace = self.random.choice((50, 300, 900))
        self.faults = draw_faults(self.random)
        if options.code_only:
            # Drawn from the seed, so that the choices of other simulations stay as they are.
            self.faults = draw_long_pauses(Random(seed))
            self.idle = Random(seed).choice((30_000, 120_000))
        self.fault_count = 0
        self.calls = 0
        self.names = tuple(f"job-{number}" for number in range(self.random.randint(1, options.schedules)))
        # Drawn from the seed, so that its other choices stay as they are.
        self.catalogue = random_catalogue(Random(seed)) if options.flows else Catalogue()
        self.oracle.flows = FlowOracle(self.catalogue.plans)
        self._backend: Backend = backend(self.clock)
        self._backend.has_limits = options.limits
        self._backend.has_dependencies = options.dependencies
        self._backend.has_backfills = options.backfills
        self._programs: dict[str, tuple[str, int]] = {}
        self._nodes: dict[str, Node] = {}
        self._calls: dict[str, Call] = {}

    # Phases.

    def run(self) -> Report:
        with watched_flows((300_000, 300_000, 5_000)[self.seed % 3]):
            return self._run()

    def _run(self) -> Report:
        try:
            if self.options.code_only:
                self._set_rules()
            for number in range(self.random.randint(1, self.options.users)):
                if not self.options.code_only:
                    self._start(f"user{number}", 1)
            for number in range(self.options.machines):
                self._start(f"node{number}", 1)
            self.interleaving.run(lambda: self.interleaving.steps >= self.options.steps)
            self._calm_down()
            self.oracle.check_all(self.clock())
            if self.options.accounts:
                self._check_accounts()
        finally:
            self.interleaving.close()
            self._backend.close()
        return Report(
            self.seed,
            self.interleaving.steps,
            self.clock() - self.started,
            len(self.oracle.ever),
            self.fault_count,
            tuple(self.trace.lines),
        )

    def _set_rules(self) -> None:
        store = self._backend.connect(lambda _: None)
        store.open()
        for record in product.draw_rules(Random(self.seed)):
            store.put_record(record)
        store.close()

    def _calm_down(self) -> None:
        """Stop the faults, and let the nodes run until nothing is due any more."""
        self.quiet = True
        self.faults = CALM
        # Time stands still unless something waits for it: otherwise new ticks would become due without end.
        self.interleaving.pace = 0
        self.idle = 0
        for node in self._nodes.values():
            node.offset = 0
        for strand in self.interleaving.strands:
            strand.asleep_until = min(strand.asleep_until, self.clock())
        self._note("quiet")
        began, since, seen = self.calls, self.calls, self.oracle.changes
        while (due := self.oracle.unfinished(self.clock())) is not None:
            if self.oracle.changes != seen:
                since, seen = self.calls, self.oracle.changes
            patience = self.options.patience
            if self.calls - since > patience or self.calls - began > LIVELY * patience:
                raise Violation(f"left alone, the nodes do not come to an end: {due}")
            self._run_until_still()
            if self.oracle.unfinished(self.clock()) is not None:
                moment = self.oracle.next_change(self.clock())
                self.clock.now = self.clock.now if moment is None else moment

    def _check_accounts(self) -> None:
        store = self._backend.connect(lambda _: None)
        for row in self._backend.look().schedules.values():
            found = account_of(store, row)
            if not found.adds_up:
                raise Violation(f"the account of {row.name} does not add up: {found}")

    def _run_until_still(self) -> None:
        """Let the nodes run at one instant until nothing changes any more: each has run several times by
        then."""
        seen, since, began = -1, 0, self.calls
        most = LIVELY * self.options.patience
        enough = STILL_WITH_BACKFILLS if self.options.backfills else STILL

        def still() -> bool:
            nonlocal seen, since
            if self.oracle.changes != seen:
                seen, since = self.oracle.changes, self.calls
            if self.calls - since > enough or self.calls - began > most:
                return True
            return self.oracle.unfinished(self.clock()) is None

        self.interleaving.run(still)

    # Processes.

    def _start(self, name: str, incarnation: int, delay: int = 0) -> None:
        label = f"{name}.{incarnation}"
        node = Node(
            self,
            label,
            FaultProxy(self._backend.connect(self.hook), label, self),
            self.faults.offset(self.random),
        )
        self._programs[label] = (name, incarnation)
        self._nodes[label] = node
        if name.startswith("user"):
            kind = ReusingUser if self.options.reuse else FlowUser if self.options.flows else User
            program = kind(node, self.names).program
        else:
            program = Machine(
                node, product.roles(node) if self.options.product else nodes.roles(node)
            ).program

        def body() -> None:
            self._open(node)
            program()

        self.interleaving.spawn(label, body, delay)

    def _open(self, node: Node) -> None:
        while True:
            try:
                node.store.open()
            except StoreUnavailable:
                self.interleaving.sleep(200)
            else:
                return

    def _restart(self, strand: Strand) -> None:
        name, incarnation = self._programs.pop(strand.name)
        self._nodes.pop(strand.name)
        self._calls.pop(strand.name, None)
        delay = 0 if self.quiet else int(self.random.random() * 20_000)
        self._start(name, incarnation + 1, delay)

    # Reports of the fault proxy.

    def begin(self, call: Call) -> None:
        self._calls[call.node] = call
        if self.options.limits:
            self.oracle.begin(call)
        if self.options.dependencies:
            self.oracle.remember(call)
        if not self._backend.yields:
            self.hook(call.name)

    def answered(self, call: Call, answer: object) -> None:
        self.trace.add(self.clock(), call.node, call.name, call.argument, "->", answer)
        if not self._backend.yields and call.name not in READS:
            self._observe(call)
        if self.options.limits and self._backend.yields and call.name == "claim_runs":
            # It may have read once more after its last commit.
            self._observe(call)
        self.oracle.answered(call, answer, self.clock())
        if not self._backend.yields and call.name not in READS:
            self._yield(f"{call.name} reply")

    def end(self, call: Call) -> None:
        self.calls += 1
        self._calls.pop(call.node, None)

    def hook(self, command: str) -> None:
        """Handle a command that is about to reach the driver, or a commit."""
        strand = self.interleaving.current
        if strand is None or strand.ending:
            return
        call = self._calls.get(strand.name)
        if self._backend.yields:
            if command == "committed" and call is not None:
                self._observe(call)
            self.trace.add(self.clock(), strand.name, f"  {command}")
        elif call is not None and command != call.name:
            # A broken variant between two of its steps.
            self._observe(call)
            self.trace.add(self.clock(), strand.name, f"  {command}")
        self._yield(command)

    def _observe(self, call: Call) -> None:
        self.oracle.observe(self._backend.look(), call, self.clock())

    def _yield(self, command: str) -> None:
        strand = self.interleaving.current
        assert strand is not None
        if strand.ending:
            return
        if self.faults is not CALM:
            self._maybe_break(strand, command)
        elif self._backend.yields:
            return  # who is left alone finishes a transaction: nobody else meets its lock
        self.interleaving.switch()

    def _maybe_break(self, strand: Strand, command: str) -> None:
        faults, chance = self.faults, self.random.random()
        if chance < (edge := faults.crash):
            self._note("crash", strand, command)
            strand.ending = True
            raise Crash
        if chance < (edge := edge + faults.lost):
            self._note("lost", strand, command)
            raise StoreUnavailable(f"lost at {command}")
        if chance < (edge := edge + faults.pause):
            self._note("pause", strand, command)
            self.interleaving.sleep(int(self.random.random() * faults.longest_pause))
        elif chance < edge + faults.jump and faults.skew:
            self._note("clock jumps", strand, command)
            self._nodes[strand.name].offset = self.random.randint(-faults.skew, faults.skew)

    def _note(self, what: str, strand: Strand | None = None, command: str = "") -> None:
        self.fault_count += strand is not None
        self.trace.add(self.clock(), "" if strand is None else strand.name, f"*** {what}", command)


def simulate(
    seed: int,
    backend: MakeBackend = MemoryBackend,
    options: Options = DEFAULT,
    *,
    trace: Trace | None = None,
    store: str = "memory",
) -> Report:
    """Run one seed. Raises ``SimulationFailed`` if a guarantee was violated."""
    trace = Trace() if trace is None else trace
    try:
        return Simulation(seed, backend, options, trace).run()
    except Violation as violation:
        lines = trace.tail(SHOWN_LINES, violation.about)
        replay = f"python -m tests.simulator --seed {seed} --store {store} -v"
        if options.product:
            replay += " --product"
        if options.limits:
            replay += " --limits"
        if options.code_only:
            replay += " --code-only"
        if options.flows:
            replay += " --reuse" if options.reuse else " --backfills" if options.backfills else " --flows"
        elif options.dependencies:
            replay += " --dependencies"
        raise SimulationFailed(seed, violation.what, lines, replay) from violation
