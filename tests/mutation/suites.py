"""Which tests should catch the mutants of which modules. Quick tests: they run for each mutant."""

from __future__ import annotations

from typing import NamedTuple


class Suite(NamedTuple):
    name: str
    modules: tuple[str, ...]
    """Files below src/evenbeat."""
    tests: tuple[str, ...]
    servers: tuple[str, ...] = ()
    """Started once, and shared by all mutants."""


_SEEDS = "tests/mutation/seeds.py"
_PAGES = "tests/stores/test_repair.py::test_pages_of_runs_continue_after_unreadable_ones"


def _shared(store: str) -> tuple[str, ...]:
    """The tests that all stores share over an adapter, for one store, with two kinds of damage each."""
    crashes = "tests/contract/test_crashes.py::test_a_crash_at_any_command_leaves_all_or_nothing"
    damage = "tests/contract/test_damage.py::test_an_unreadable"
    return (
        *(f"{crashes}[{store}-{action}]" for action in ("fire", "put", "take", "settle", "add")),
        f"{damage}_schedule_of_a_newer_format_is_left_alone[{store}]",
        *(
            f"{damage}_{case}[{store}-{number}]"
            for case in (
                "schedule_sleeps_and_its_neighbours_fire",
                "run_does_not_block_its_queue",
                "run_costs_its_neighbours_no_attempt",
                "running_run_ends_with_its_lease",
            )
            for number in (0, 1)
        ),
    )


SUITES = (
    Suite(
        "facade",
        (
            "app/scheduler.py",
            "app/scheduler_parts.py",
            "app/task_calls.py",
            "app/hook_calls.py",
            "app/report_calls.py",
            "app/forecast_calls.py",
            "app/lifecycle.py",
            "app/schedules/defining.py",
            "app/schedules/operating.py",
            "app/schedules/bulk.py",
            "app/schedules/reading.py",
            "app/schedules/history.py",
            "app/declarations.py",
            "app/rows.py",
            "app/runs.py",
            "app/session.py",
            "app/locks.py",
            "app/definitions.py",
            "app/enqueueing.py",
        ),
        (
            "tests/unit/test_scheduler.py",
            "tests/unit/test_scheduler_runs.py",
            "tests/unit/test_scheduler_tasks.py",
            "tests/unit/test_scheduler_life.py",
            "tests/unit/test_schedule_calls.py",
            "tests/unit/test_run_calls.py",
            "tests/unit/test_session.py",
            "tests/unit/test_listing.py",
            "tests/unit/test_hints.py",
            "tests/unit/test_within.py",
            "tests/unit/test_virtual.py",
            "tests/unit/test_node.py",
            "tests/contract/test_memory.py",
        ),
    ),
    Suite(
        "audit",
        (
            "core/masking.py",
            "rules/auditing.py",
            "app/audit.py",
            "app/bulk.py",
            "app/run_changes.py",
            "app/schedule_bulk.py",
            "app/schedule_search.py",
        ),
        (
            "tests/unit/test_masking.py",
            "tests/unit/test_audit.py",
            "tests/unit/test_schedule_bulk.py",
            "tests/unit/test_run_calls.py",
            "tests/unit/test_listing.py",
        ),
    ),
    Suite(
        "templates",
        ("rules/inheritance.py", "rules/templates.py", "app/templates.py", "app/inheriting.py"),
        ("tests/unit/test_templates.py", "tests/unit/test_template_triggers.py"),
    ),
    Suite(
        "deploys",
        (
            "rules/ownership.py",
            "rules/deploying.py",
            "app/deploying.py",
            "app/deploy_entries.py",
            "app/declared_schedules.py",
            "app/run_moves.py",
            "schedule_files.py",
        ),
        (
            "tests/unit/test_deploys.py",
            "tests/unit/test_deploy_rules.py",
            "tests/unit/test_deploy_deaths.py",
            "tests/unit/test_schedule_files.py",
            "tests/unit/test_run_moves.py",
        ),
    ),
    Suite(
        "answers",
        (
            "app/accounting.py",
            "app/explaining.py",
            "app/tick_records.py",
            "app/figures.py",
            "app/forecasting.py",
            "app/loading.py",
        ),
        (
            "tests/unit/test_account.py",
            "tests/unit/test_why.py",
            "tests/unit/test_figures.py",
            "tests/unit/test_forecast.py",
            "tests/unit/test_loading.py",
        ),
    ),
    Suite(
        "web",
        ("app/tokens.py", "web/access.py", "web/binding.py", "web/idempotency.py", "web/paging.py"),
        (
            "tests/web/test_access.py",
            "tests/web/test_binding.py",
            "tests/web/test_paging.py",
            "tests/web/test_changes.py",
            "tests/web/test_endpoints.py",
            "tests/web/test_masking.py",
            "tests/unit/test_tokens.py",
        ),
    ),
    Suite(
        "waking",
        ("stores/waking.py", "stores/server_clock.py"),
        ("tests/unit/test_waking.py", "tests/unit/test_server_clock.py", "tests/unit/test_hints.py"),
    ),
    Suite("calls", ("tasks/conversion.py",), ("tests/unit/test_conversion.py",)),
    Suite(
        "loops",
        (
            "node/loop.py",
            "node/ticker.py",
            "node/worker.py",
            "node/lanes.py",
            "node/attempt_ends.py",
            "node/leases.py",
            "node/reaper.py",
            "node/pruner.py",
            "node/presence.py",
            "node/duties.py",
        ),
        (
            "tests/unit/test_loop.py",
            "tests/unit/test_loop_waits.py",
            "tests/unit/test_ticker.py",
            "tests/unit/test_hints.py",
            "tests/unit/test_worker.py",
            "tests/unit/test_worker_edges.py",
            "tests/unit/test_leases.py",
            "tests/unit/test_reaper.py",
            "tests/unit/test_pruner.py",
            "tests/unit/test_presence.py",
            "tests/unit/test_duties.py",
            "tests/unit/test_node.py",
            "tests/unit/test_scheduler.py",
            "tests/unit/test_scheduler_runs.py",
            "tests/unit/test_scheduler_tasks.py",
            f"{_SEEDS}::test_the_loops_of_the_product_keep_the_promise",
        ),
    ),
    Suite(
        "rules",
        (
            "rules/firing.py",
            "rules/ticks.py",
            "rules/changes.py",
            "rules/definitions.py",
            "rules/attempts.py",
        ),
        (
            "tests/unit/test_catch_up_pace.py",
            "tests/unit/test_firing.py",
            "tests/unit/test_firing_edges.py",
            "tests/unit/test_attempts.py",
            "tests/unit/test_attempts_whole.py",
            "tests/unit/test_changes.py",
            "tests/unit/test_changes_whole.py",
            "tests/unit/test_schedule_calls.py",
            "tests/unit/test_waiting.py",
            "tests/unit/test_audit.py",
        ),
    ),
    Suite(
        "limits",
        ("rules/limits.py", "rules/limit_definitions.py", "observe/limit_usage.py", "app/limits.py"),
        ("tests/unit/test_limit_rules.py", "tests/unit/test_run_limits.py"),
    ),
    Suite(
        "backfills",
        ("rules/backfills.py", "node/backfills.py", "app/backfills.py", "app/backfill_plans.py"),
        (
            "tests/unit/test_backfills.py",
            "tests/unit/test_backfill_rules.py",
            "tests/unit/test_backfill_deaths.py",
        ),
    ),
    Suite(
        "memory",
        (
            "stores/memory/store.py",
            "stores/memory/state.py",
            "stores/memory/schedules.py",
            "stores/memory/claims.py",
            "stores/memory/runs.py",
            "stores/memory/history.py",
            "stores/memory/tenants.py",
            "stores/memory/queues.py",
            "stores/memory/records.py",
            "stores/decisions.py",
        ),
        (
            "tests/contract/test_memory.py",
            "tests/unit/test_decisions.py",
            "tests/unit/test_hints.py",
            "tests/unit/test_listing.py",
            "tests/unit/test_schedule_calls.py",
            "tests/unit/test_run_calls.py",
            f"{_SEEDS}::test_memory_keeps_the_promise",
        ),
    ),
    Suite(
        "sqlite",
        (
            "stores/sqlite/schedules.py",
            "stores/sqlite/runs.py",
            "stores/sqlite/records.py",
            "stores/sqlite/history.py",
            "stores/sqlite/statements.py",
        ),
        (
            "tests/contract/test_sqlite.py::TestSqlite",
            "tests/stores/test_sqlite_store.py",
            *_shared("sqlite"),
            f"{_PAGES}[sqlite-ab]",
        ),
    ),
    Suite(
        "flows",
        ("rules/flows.py", "rules/flow_parts.py", "node/flows.py", "tasks/flow_builder.py"),
        (
            "tests/unit/test_flows.py",
            "tests/unit/test_flow_rules.py",
            "tests/unit/test_flow_settling.py",
            "tests/unit/test_flow_description.py",
            "tests/unit/test_flow_references.py",
            "tests/unit/test_flow_reasons.py",
            "tests/unit/test_made_flows.py",
        ),
    ),
    Suite(
        "postgres",
        ("stores/postgres/schedules.py", "stores/postgres/runs.py", "stores/postgres/statements.py"),
        (
            "tests/contract/test_postgres.py::TestPostgres",
            "tests/stores/test_postgres_store.py",
            *_shared("postgres"),
        ),
        ("postgres",),
    ),
    Suite(
        "redis",
        (
            "stores/redis/schedules.py",
            "stores/redis/runs.py",
            "stores/redis/lua/claim.lua",
            "stores/redis/lua/settle.lua",
            "stores/redis/lua/fire.lua",
            "stores/redis/lua/take_due.lua",
            "stores/redis/lua/put_schedules.lua",
            "stores/redis/lua/prelude.lua",
        ),
        ("tests/contract/test_redis.py::TestRedis", "tests/stores/test_redis_store.py", *_shared("redis")),
        ("valkey",),
    ),
    Suite(
        "mongo",
        (
            "stores/mongo/schedules.py",
            "stores/mongo/firing.py",
            "stores/mongo/claims.py",
            "stores/mongo/settling.py",
        ),
        ("tests/contract/test_mongo.py::TestMongo", "tests/stores/test_mongo_store.py", *_shared("mongo")),
        ("mongo",),
    ),
)
