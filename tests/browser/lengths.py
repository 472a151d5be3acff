"""Which tests in a browser `make test` runs: the main story of each page. `make test-all` runs all of them.

A browser takes seconds for a story, and there are two hundred.
"""

from __future__ import annotations

QUICK = {
    "test_backfills": {"test_look_first_then_backfill_and_follow_the_progress"},
    "test_flows": {"test_start_a_flow_watch_it_fail_and_resume_it"},
    "test_harness": {"test_a_page_that_misbehaves_is_noticed[alert(1)]"},
    "test_limits_and_tenants": {"test_set_a_limit_and_see_what_waits_for_it"},
    "test_live": {"test_two_tabs_share_one_stream_and_both_are_live"},
    "test_login": {"test_log_in_with_a_token_and_out_again"},
    "test_now": {"test_runs_appear_in_the_feed_while_they_happen"},
    "test_plan": {"test_the_plan_is_shown_and_applied"},
    "test_runs": {"test_open_a_failing_run_read_the_traceback_retry_and_see_it_succeed"},
    "test_schedule": {
        "test_a_pause_with_a_note_is_seen_by_everybody",
        "test_an_empty_cell_says_why_nothing_ran",
    },
    "test_schedules": {
        "test_a_new_schedule_fires_while_the_page_is_open",
        "test_an_edit_shows_what_changes_before_it_is_saved",
    },
    "test_shell": {
        "test_ctrl_k_finds_a_page_and_a_schedule",
        "test_axe_finds_nothing_serious[now]",
        "test_every_page_fits_a_phone_in_the_dark[now]",
    },
    "test_templates": {"test_a_template_is_set_changed_and_deleted"},
    "test_timeline": {"test_a_herd_is_spread_with_one_click"},
    "test_trees": {"test_the_tree_of_a_page[now]", "test_the_tree_of_a_page[run]"},
}
"""By module: the names of tests. A name without parameters stands for all of them."""


def is_quick(module: str, name: str) -> bool:
    """Return whether ``make test`` runs a test."""
    listed = QUICK.get(module, set())
    return name in listed or name.partition("[")[0] in listed
