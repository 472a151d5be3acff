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


_REFUSED = "tests/stores/test_refused_schedules.py"
_UNIQUE = "tests/stores/test_unique_runs.py"
_UNIQUE_TESTS = (
    "test_while_one_is_active_a_second_call_answers_it",
    "test_when_it_has_ended_the_key_is_free",
    "test_the_id_of_a_record_whose_writer_died_is_given_once",
    "test_a_chosen_id_that_is_given_again_by_a_writer_who_dies_is_added_by_the_next_call",
    "test_a_writer_that_was_stopped_adds_its_run_if_nobody_else_has",
    "test_a_chosen_id_is_not_executed_twice_for_one_call_of_a_writer_that_was_stopped",
    "test_a_store_that_always_refuses_is_given_up",
    "test_of_many_threads_all_are_answered_one_run",
    "test_a_slow_writer_and_its_successor_make_one_run",
    "test_a_failed_run_takes_its_key_before_it_is_retried",
    "test_who_finds_a_pending_retry_applies_it",
    "test_a_batch_with_keys_that_repeat",
    "test_an_id_of_ones_own_and_a_key",
    "test_a_run_that_has_expired_in_the_queue_does_not_keep_its_key",
    "test_records_of_ended_runs_are_deleted_and_all_others_stay",
    "test_more_records_than_one_part_holds",
    "test_a_damaged_record_is_replaced",
)


def _without_schedules(store: str) -> tuple[str, ...]:
    """The tests of runs that end while the schedules can't be used, for one store."""
    module = "tests/stores/test_fallback_stores.py"
    return (
        f"{module}::test_the_work_goes_on_while_the_schedules_cant_be_used[{store}]",
        f"{module}::test_a_settlement_that_is_refused_because_of_the_schedules_is_repeated_without[{store}]",
        f"{module}::test_a_schedule_that_was_just_paused_does_not_fire[{store}]",
    )


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
            "tests/unit/test_hooks.py",
            "tests/unit/test_queues.py",
            "tests/unit/test_locks.py",
            "tests/unit/test_incidents.py",
            "tests/unit/test_code_only.py",
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
            "tests/unit/test_attempt_hooks.py",
            "tests/unit/test_flows.py",
            "tests/unit/test_flows_on_nodes.py",
            "tests/unit/test_flow_settling.py",
            "tests/unit/test_health.py",
            "tests/unit/test_metrics.py",
            "tests/unit/test_refused_batches.py",
            "tests/unit/test_run_progress.py",
            "tests/unit/test_run_identity.py",
            "tests/unit/test_alert_signals.py",
            "tests/unit/test_announced_ends.py",
            "tests/unit/test_retention.py",
            "tests/unit/test_counters.py",
            "tests/unit/test_tracing.py",
            "tests/unit/test_code_only.py",
            f"{_SEEDS}::test_the_loops_of_the_product_keep_the_promise",
            f"{_SEEDS}::test_flows_keep_the_promise",
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
            "tests/unit/test_calendared.py",
            "tests/unit/test_calendars.py",
            "tests/unit/test_dependencies.py",
            "tests/unit/test_declared_dependencies.py",
            "tests/unit/test_deploys.py",
            "tests/unit/test_resuming.py",
            "tests/unit/test_resume_catching_up.py",
            "tests/unit/test_templates.py",
            "tests/unit/test_tracing.py",
        ),
    ),
    Suite(
        "limits",
        ("rules/limits.py", "rules/limit_definitions.py", "observe/limit_usage.py", "app/limits.py"),
        ("tests/unit/test_limit_rules.py", "tests/unit/test_run_limits.py"),
    ),
    Suite(
        "refusals",
        (
            "stores/refusals.py",
            "rules/refusals.py",
            "node/adding.py",
            "node/deferral_notes.py",
            "node/settling.py",
            "node/code_ticker.py",
            "app/settling.py",
        ),
        (
            "tests/unit/test_refusal_rules.py",
            "tests/unit/test_refused_batches.py",
            "tests/unit/test_announced_ends.py",
            "tests/unit/test_code_only.py",
            f"{_SEEDS}::test_schedules_of_the_code_keep_the_promise",
            "tests/unit/test_ticker.py",
            "tests/unit/test_attention.py",
            f"{_REFUSED}::test_a_tenant_whose_runs_are_refused_stops_no_other_and_its_state_says_why[memory]",
            f"{_REFUSED}::test_another_node_that_fires_it_again_deletes_the_note[memory]",
            f"{_REFUSED}::test_a_schedule_whose_row_can_not_be_written_says_so_as_well[sqlite]",
            "tests/contract/test_memory.py",
        ),
    ),
    Suite(
        "fallback",
        ("rules/owed.py", "rules/fallback.py", "node/fallback_ticker.py", "node/owed_successes.py"),
        (
            "tests/unit/test_owed.py",
            "tests/unit/test_owed_successes.py",
            "tests/unit/test_fallback_rules.py",
            "tests/unit/test_fallback.py",
            "tests/unit/test_schedule_interplay.py",
            *_without_schedules("sqlite"),
            "tests/simulator/test_simulator_owed_mutants.py",
        ),
    ),
    Suite(
        "identity",
        ("core/ids.py", "rules/unique_ends.py", "app/unique_runs.py", "node/flow_rows.py"),
        (
            "tests/unit/test_ids.py",
            "tests/unit/test_given_ids.py",
            "tests/unit/test_run_identity.py",
            "tests/unit/test_flow_identity.py",
            "tests/unit/test_flow_damage.py",
            "tests/unit/test_flow_settling.py",
            "tests/unit/test_flows.py",
            "tests/unit/test_large_flows.py",
            "tests/unit/test_run_moves.py",
            "tests/unit/test_unique_interleavings.py",
            f"{_SEEDS}::test_flows_keep_the_promise",
            *(f"{_UNIQUE}::{name}[memory]" for name in _UNIQUE_TESTS),
            f"{_UNIQUE}::test_the_id_of_a_purged_run_is_not_given_again[succeeded-memory]",
            f"{_UNIQUE}::test_a_writer_that_was_stopped_adds_no_run_that_has_ended_and_was_purged[4-memory]",
        ),
    ),
    Suite(
        "input",
        ("core/json_depth.py", "triggers/recurrences.py", "triggers/calendar_events.py"),
        (
            "tests/unit/test_json_depth.py",
            "tests/unit/test_calendar_events.py",
            "tests/unit/test_input_bounds.py",
        ),
    ),
    Suite("descriptors", ("node/descriptor_needs.py",), ("tests/unit/test_descriptors.py",)),
    Suite(
        "backfills",
        ("rules/backfills.py", "node/backfills.py", "app/backfills.py", "app/backfill_plans.py"),
        (
            "tests/unit/test_backfills.py",
            "tests/unit/test_backfill_rules.py",
            "tests/unit/test_backfill_deaths.py",
            f"{_SEEDS}::test_backfills_keep_the_promise",
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
            "stores/sqlite/left_out.py",
        ),
        (
            "tests/contract/test_sqlite.py::TestSqlite",
            "tests/stores/test_sqlite_store.py",
            *_without_schedules("sqlite"),
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
            "tests/unit/test_flow_damage.py",
            "tests/unit/test_flow_identity.py",
            "tests/unit/test_flow_limits.py",
            "tests/unit/test_large_flows.py",
            "tests/unit/test_virtual_flows.py",
            f"{_SEEDS}::test_flows_keep_the_promise",
        ),
    ),
    Suite(
        "postgres",
        (
            "stores/postgres/schedules.py",
            "stores/postgres/runs.py",
            "stores/postgres/statements.py",
            "stores/postgres/left_out.py",
        ),
        (
            "tests/contract/test_postgres.py::TestPostgres",
            "tests/stores/test_postgres_store.py",
            *_without_schedules("postgres-revoked"),
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
            "stores/mongo/left_out.py",
        ),
        (
            "tests/contract/test_mongo.py::TestMongo",
            "tests/stores/test_mongo_store.py",
            *_without_schedules("mongo"),
            *_shared("mongo"),
        ),
        ("mongo",),
    ),
)
