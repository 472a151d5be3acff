"""File descriptors: too few are warned of; if a job closes those of others, nothing more is written."""

from __future__ import annotations

import logging
import os
import resource

import pytest

from evenbeat import Scheduler
from evenbeat.cli.commands import web
from evenbeat.node import node
from evenbeat.node.descriptor_needs import shortage
from evenbeat.processes import descriptors
from evenbeat.processes.descriptors import DescriptorProbe, descriptor_limit
from evenbeat.web.limits import streams_of_all


def test_a_probe_is_intact_until_and_after_it_is_closed_in_order() -> None:
    probe = DescriptorProbe()
    assert probe.is_intact()
    number = probe._number
    probe.close()
    probe.close()
    with os.fdopen(os.open(os.devnull, os.O_RDONLY)) as file:
        assert file.fileno() == number


def test_a_probe_whose_descriptor_was_closed_is_not_intact_even_if_another_file_has_it() -> None:
    probe = DescriptorProbe()
    os.close(probe._number)
    assert not probe.is_intact()
    reader, writer = os.pipe()
    assert reader == probe._number
    assert not probe.is_intact()
    probe.close()
    os.fstat(reader)  # descriptors of other code stay open
    os.close(reader)
    os.close(writer)


def test_a_node_warns_if_its_process_may_open_fewer_files_than_its_jobs_need() -> None:
    assert shortage({"thread": 10, "async": 100, "process": 4}, 182) is None
    assert shortage({"thread": 10}, None) is None
    said = shortage({"async": 2_000}, 1_024)
    assert said is not None
    assert said.startswith(
        "this process may open 1,024 files, and with async_concurrency=2000 it may need 2,064"
    )


@pytest.mark.parametrize(("concurrency", "warned"), [(10_000, True), (1, False)])
def test_only_executors_that_a_task_uses_count(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, concurrency: int, warned: bool
) -> None:
    monkeypatch.setattr(node, "descriptor_limit", lambda: 256)
    app = Scheduler("memory://", thread_concurrency=concurrency, async_concurrency=10_000)
    app.task(name="work")(lambda: None)
    with caplog.at_level(logging.WARNING, "evenbeat"), app:
        pass
    assert [text for text in caplog.messages if "this process may open 256 files" in text] == (
        [shortage({"thread": concurrency}, 256)] if warned else []
    )


def test_the_limit_is_the_one_of_this_process() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (321, hard))
    try:
        assert descriptor_limit() == 321
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_half_of_the_descriptors_are_kept_from_event_streams() -> None:
    assert [streams_of_all(limit) for limit in (None, 20_000, 1_024, 256)] == [1_000, 1_000, 512, 128]


@pytest.mark.parametrize(("limit", "said"), [(511, "at most 255 open pages"), (512, ""), (None, "")])
def test_the_web_server_warns_of_few_descriptors(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], limit: int | None, said: str
) -> None:
    monkeypatch.setattr(descriptors, "descriptor_limit", lambda: limit)
    web._warn_of_few_descriptors()
    printed = " ".join(capsys.readouterr().err.split())
    assert said in printed
    assert bool(said) == bool(printed)
