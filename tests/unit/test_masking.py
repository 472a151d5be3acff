"""Secrets in payloads and results are masked."""

from __future__ import annotations

from typing import Any

import pytest

from evenbeat.core.masking import masked


@pytest.mark.parametrize(
    "key",
    [
        "password",
        "PASSWORD",
        "db_password",
        "passwd",
        "passphrase",
        "AWS_ACCESS_KEY",
        "signing_key",
        "encryption-key",
        "client_secret",
        "token",
        "accessToken",
        "api_key",
        "API-Key",
        "apiKey",
        "x.api.key",
        "Authorization",
        "aws_credentials",
        "private_key",
        "privateKey",
        "Set-Cookie",
    ],
)
def test_the_value_of_a_key_that_names_a_secret_is_masked(key: str) -> None:
    assert masked({key: "hunter2", "team": "ops"}) == {key: "***", "team": "ops"}


@pytest.mark.parametrize("value", [None, 7, "", ["a"], {"b": "c"}])
def test_a_secret_of_any_type_is_masked_as_a_whole(value: Any) -> None:
    assert masked({"secret": value}) == {"secret": "***"}


def test_secrets_are_found_at_any_depth() -> None:
    value = {"hosts": [{"name": "a", "login": {"password": "p"}}, ("x", {"token": "t"})]}
    assert masked(value) == {"hosts": [{"name": "a", "login": {"password": "***"}}, ["x", {"token": "***"}]]}


@pytest.mark.parametrize("value", [None, 1, 2.5, True, "key", ["a", 1], {"monkey": "x", "path": "a/b"}])
def test_other_values_stay_as_they_are(value: Any) -> None:
    assert masked(value) == value


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://me:pw@db/shop", "postgresql://me:***@db/shop"),
        ("redis://:pw@cache:6379/0", "redis://:***@cache:6379/0"),
        ("copy a://u:p@h to b://u:q@h", "copy a://u:***@h to b://u:***@h"),
        ("https://example.org:8080/a@b", "https://example.org:8080/a@b"),
        ("no url: a@b", "no url: a@b"),
    ],
)
def test_the_password_of_a_url_is_masked(text: str, shown: str) -> None:
    assert masked([text]) == [shown]
