"""Settings: which place overrides which, where a value was set, and which values are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from evenbeat import InvalidValue, Scheduler
from evenbeat.config import Origin, Settings, default_store, read_settings
from evenbeat.core.durations import read_duration
from evenbeat.core.options import NODE
from evenbeat.node.settings import NodeSettings, node_options, read_node_settings


def read(folder: Path, environment: dict[str, str] | None = None, **flags: object) -> Settings:
    return read_settings(flags, environment=environment or {}, folder=folder)


def refused(folder: Path, environment: dict[str, str] | None = None, **flags: object) -> str:
    with pytest.raises(InvalidValue) as caught:
        read(folder, environment, **flags)
    return str(caught.value)


def write(folder: Path, text: str, name: str = "evenbeat.toml") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    return folder / name


def test_each_place_overrides_the_next(tmp_path: Path) -> None:
    project = '[project]\nname = "x"\n\n[tool.evenbeat]\n'
    project += 'tenant = "d"\nlease = "4s"\npoll_interval = "4s"\nthread_concurrency = 4\n'
    pyproject = write(tmp_path, project, "pyproject.toml")
    own = write(tmp_path, 'tenant = "c"\nlease = "3s"\npoll_interval = "3s"\n')
    environment = {"EVENBEAT_TENANT": "b", "EVENBEAT_LEASE": "2s"}

    settings = read(tmp_path, environment, tenant="a", store=None, queues=())

    assert settings.of("tenant") == ("tenant", "a", Origin("flag", "--tenant"))
    assert settings.of("lease") == ("lease", "2s", Origin("variable", "EVENBEAT_LEASE"))
    assert settings.of("poll_interval") == ("poll_interval", "3s", Origin("file", "poll_interval", own, 3))
    assert settings.of("thread_concurrency") == (
        "thread_concurrency",
        4,
        Origin("file", "tool.evenbeat.thread_concurrency", pyproject, 8),
    )
    assert settings.of("store") == ("store", "sqlite:///evenbeat.db", Origin("default"))
    assert settings["queues"] == ("default",)


def test_an_origin_is_readable(tmp_path: Path) -> None:
    write(tmp_path, "tool.evenbeat.thread_concurrency = 4\n", "pyproject.toml")
    settings = read(tmp_path, {"EVENBEAT_POLL_INTERVAL": "2s"}, store="memory://")

    origins = [
        str(settings.of(name).origin) for name in ("store", "poll_interval", "thread_concurrency", "lease")
    ]
    assert origins == [
        "--store",
        "EVENBEAT_POLL_INTERVAL",
        f"tool.evenbeat.thread_concurrency in {tmp_path}/pyproject.toml",
        "default",
    ]


def test_files_are_those_of_the_first_project_folder_upwards(tmp_path: Path) -> None:
    write(tmp_path, 'tenant = "outer"\n')
    write(tmp_path / "inner", '[project]\nname = "inner"\n', "pyproject.toml")

    assert read(tmp_path / "inner" / "a" / "b")["tenant"] == "default"
    assert read(tmp_path / "other" / "a")["tenant"] == "outer"


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("sqlite:///evenbeat.db", "sqlite:///{folder}/evenbeat.db"),
        ("sqlite:////var/evenbeat.db", "sqlite:////var/evenbeat.db"),
        ("sqlite:///~/evenbeat.db", "sqlite:///~/evenbeat.db"),
        ("memory://", "memory://"),
    ],
)
def test_a_path_in_a_file_is_meant_from_its_folder(tmp_path: Path, given: str, meant: str) -> None:
    write(tmp_path, f'store = "{given}"\napp = "app.py"\n')
    below = tmp_path / "src"
    below.mkdir()

    assert read(tmp_path)["store"] == given
    assert read(below)["store"] == meant.format(folder=tmp_path)
    assert read(below)["app"] == f"{tmp_path}/app.py"
    assert read(below, {"EVENBEAT_STORE": given})["store"] == given


def test_values_of_the_environment_are_read_from_text(tmp_path: Path) -> None:
    environment = {
        "EVENBEAT_QUEUES": "default, mail",
        "EVENBEAT_THREAD_CONCURRENCY": "4",
        "EVENBEAT_DRAIN_TIMEOUT": "0s",
        "EVENBEAT_LOG_LEVEL": "DEBUG",
        "EVENBEAT_LOG_FORMAT": "json",
        "EVENBEAT_APP": "shop.jobs:app",
        "EVENBEAT_STORE": "",
    }
    settings = read(tmp_path, environment)

    set_by_variables = {name: settings[name] for name in settings if settings.is_set(name)}
    assert set_by_variables == {
        "queues": ("default", "mail"),
        "thread_concurrency": 4,
        "drain_timeout": "0s",
        "log_level": "debug",
        "log_format": "json",
        "app": "shop.jobs:app",
    }


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("thread_concurrency = 0", "thread_concurrency 0 is not a whole number of 1 to 10,000"),
        ("thread_concurrency = true", "thread_concurrency True is not a whole number"),
        ('thread_concurrency = "many"', 'thread_concurrency "many" is not a whole number'),
        ('lease = "soon"', 'lease "soon" is not a duration'),
        ('lease = "10ms"', 'lease "10ms" is shorter than 1s'),
        ('poll_interval = "1 minute"', 'poll_interval "1 minute" is not a duration; write "1m"'),
        ('tenant = "a b"', 'tenant "a b" is not 1 to 128 letters, digits, _ or -'),
        ("tenant = 1", "tenant 1 is not 1 to 128 letters"),
        ("queues = 5", "queues 5 are not names"),
        ("queues = []", "queues is empty"),
        ('queues = ["a", ""]', 'queue "" is not 1 to 128'),
        ('log_format = "xml"', 'log_format "xml" is not one of text, json'),
        ('app = "my shop"', 'app "my shop" does not name a scheduler; write a file, app.py, or a module'),
        ('store = "evenbeat.db"', 'store "evenbeat.db" is not a URL; write sqlite:///evenbeat.db'),
        ("store = 1", "store 1 is not a text"),
    ],
)
def test_an_invalid_value_is_refused_with_its_place(tmp_path: Path, line: str, message: str) -> None:
    file = write(tmp_path, f"# ours\n{line}\n")

    assert refused(tmp_path).startswith(f"{line.split()[0]} in {file}:2: {message}")


def test_a_variable_and_a_flag_are_named_too(tmp_path: Path) -> None:
    assert refused(tmp_path, {"EVENBEAT_POLL_INTERVAL": "x"}).startswith(
        'EVENBEAT_POLL_INTERVAL: poll_interval "x" is not a duration'
    )
    assert refused(tmp_path, poll_interval="x").startswith('poll_interval "x" is not a duration')


def test_an_unknown_key_is_refused_with_the_nearest_setting(tmp_path: Path) -> None:
    file = write(tmp_path, "process-concurrency = 4\n")
    assert (
        refused(tmp_path)
        == f"process-concurrency in {file}:1 is not a setting: did you mean process_concurrency?"
    )

    write(tmp_path, "colour = 4\n")
    assert "is not a setting; there are app, store, tenant" in refused(tmp_path)


def test_an_unknown_variable_is_a_warning(tmp_path: Path) -> None:
    settings = read(tmp_path, {"EVENBEAT_TENNANT": "4", "EVENBEATS": "1", "HOME": "/"})

    assert settings.warnings == (
        "EVENBEAT_TENNANT is not a setting and is ignored: did you mean EVENBEAT_TENANT?",
    )


@pytest.mark.parametrize("text", ["store = ", "\0", '[tool]\nevenbeat = "x"\n'])
def test_a_file_that_can_not_be_read_is_named(tmp_path: Path, text: str) -> None:
    file = write(tmp_path, text, "pyproject.toml")

    assert str(file) in refused(tmp_path)


def test_other_tables_of_a_project_are_ignored(tmp_path: Path) -> None:
    write(tmp_path, '[tool.other]\nthreads = "x"\n', "pyproject.toml")

    assert not any(read(tmp_path).is_set(name) for name in read(tmp_path))


def test_a_working_directory_that_is_gone_has_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()

    assert read_settings(environment={})["tenant"] == "default"


def test_passwords_are_not_shown(tmp_path: Path) -> None:
    settings = read(tmp_path, store="postgresql://me:secret@db/jobs", queues="a,b")

    assert settings.of("store").shown == "postgresql://me:***@db/jobs"
    assert (settings.of("queues").shown, settings.of("app").shown) == ("a, b", "none")


def test_the_defaults_are_those_of_a_node(tmp_path: Path) -> None:
    settings, node = read(tmp_path), NodeSettings()

    for name in NodeSettings.__struct_fields__:
        value = settings[name]
        is_duration = NODE[name].kind == "duration"
        assert (read_duration(value, name) if is_duration else value) == getattr(node, name)


def test_options_of_a_node_are_those_that_are_set(tmp_path: Path) -> None:
    write(tmp_path, 'lease = "10s"\ntenant = "acme"\n')
    options = node_options(read(tmp_path, {"EVENBEAT_QUEUES": "mail"}, thread_concurrency=3))

    assert options == {"lease": "10s", "queues": ("mail",), "thread_concurrency": 3}
    assert read_node_settings(options).lease == 10_000


def test_the_default_store_is_that_of_the_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EVENBEAT_STORE", raising=False)
    assert default_store() == "sqlite:///evenbeat.db"
    write(tmp_path, 'store = "sqlite:///jobs.db"\n')
    assert default_store() == "sqlite:///jobs.db"
    monkeypatch.setenv("EVENBEAT_STORE", "memory://")
    assert default_store() == "memory://"


# -- alerts ------------------------------------------------------------------------------------------------

ALERTS = """
[alerts.channels.ops]
kind = "webhook"
url = "env:EVENBEAT_SECRET_OPS"

[alerts.rules.failures]
on = ["failed", "failing:3"]
to = ["ops"]
"""


def test_a_file_declares_alert_channels_and_rules(tmp_path: Path) -> None:
    file = write(tmp_path, 'tenant = "acme"\n' + ALERTS)
    channel, rule = read(tmp_path).alerts
    assert (channel.kind, channel.name, channel.fields["kind"]) == ("channel", "ops", "webhook")
    assert (rule.kind, rule.name) == ("rule", "failures")
    assert rule.fields == {"on": ["failed", "failing:3"], "to": ["ops"]}
    assert rule.place == f"alerts.rules.failures in {file}:7"
    assert read(tmp_path)["tenant"] == "acme"
    assert read(tmp_path, {"EVENBEAT_SECRET_OPS": "https://…"}).warnings == ()


def test_evenbeat_toml_overrides_pyproject_by_name(tmp_path: Path) -> None:
    project = write(tmp_path, ALERTS.replace("[alerts", "[tool.evenbeat.alerts"), "pyproject.toml")
    assert read(tmp_path).alerts[1].place == f"tool.evenbeat.alerts.rules.failures in {project}:6"
    file = write(tmp_path, '[alerts.rules."failures"]\non = "missed"\nto = "ops"\n')
    channel, rule = read(tmp_path).alerts
    assert str(project) in channel.place
    assert (rule.fields["on"], rule.place) == ("missed", f"alerts.rules.failures in {file}:1")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("alerts = 3\n", "alerts in {file}:1 is not a table"),
        ("[alerts]\nrules = 3\n", "alerts.rules in {file}:2 is not a table"),
        ("[alerts.rules]\nr = 3\n", "alerts.rules.r in {file}:2 is not a table"),
        ("[alerts.rule.r]\n", "alerts.rule in {file} is not a table of alerts: did you mean rules?"),
        (
            "[alerts.people.r]\n",
            "alerts.people in {file} is not a table of alerts; there are channels, rules",
        ),
        (
            '[alerts.rules.r]\non = "failed"\ntoo = "ops"\n',
            "alerts.rules.r.too in {file}:3 is not a key of an alert rule: did you mean to?",
        ),
        (
            '[alerts.channels.c]\nx = "y"\n',
            (
                "alerts.channels.c.x in {file}:2 is not a key of an alert channel; "
                "there are kind, url, secret, tenant, all_tenants"
            ),
        ),
        ('[alerts.rules.r]\non = "failed"\n', "alerts.rules.r in {file}:1 has no to; add the key to"),
        (
            '[alerts.rules.r]\non = "failed"\nto = "ops"\nall_tenants = "yes"\n',
            "alerts.rules.r.all_tenants in {file}:4 is not true or false",
        ),
        ("alarms = 3\n", "alarms in {file}:1 is not a setting: did you mean alerts?"),
    ],
)
def test_a_wrong_table_of_alerts_is_refused_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    file = write(tmp_path, text)
    assert refused(tmp_path) == message.format(file=file)


def test_values_of_alerts_are_checked_where_they_are_declared(tmp_path: Path) -> None:
    file = write(tmp_path, ALERTS.replace('"failing:3"', '"failing:1"'))
    app = Scheduler("memory://")
    with pytest.raises(InvalidValue) as caught:
        app.alerts.declare_config(read(tmp_path).alerts)
    assert str(caught.value) == f'alerts.rules.failures in {file}:6: on "failing:1" is not within 2 to 1,000'

    write(tmp_path, ALERTS.replace('"ops"]', '"opz"]'))
    app = Scheduler("memory://")
    app.alerts.declare_config(read(tmp_path).alerts)
    with pytest.raises(InvalidValue) as caught:  # only the store knows all channels
        app.alerts.declare()
    assert str(caught.value) == (
        'alert rule "failures", which a file declares: '
        'to "opz" is not an alert channel of tenant "default"; did you mean ops?'
    )

    write(tmp_path, ALERTS)
    app = Scheduler("memory://")
    app.alerts.declare_channel("ops", "webhook", "https://elsewhere.example.com/x")
    app.alerts.declare_config(read(tmp_path).alerts)
    app.alerts.declare()
    (channel,) = app.alerts.channels.list()
    assert (channel.address, channel.managed_by) == ("env:EVENBEAT_SECRET_OPS", "config")
    assert app.alerts.rules.get("failures").managed_by == "config"
