"""Secrets in payloads, results and texts are masked, and nothing else is."""

from __future__ import annotations

from typing import Any

import pytest

from evenbeat.core.masking import masked, masked_text

SECRET_KEYS = [
    "password",
    "PASSWORD",
    "pAssword",
    "PassWord",
    "db_password",
    "dbpassword",
    "userPassword",
    "password2",
    "passwd",
    "passphrase",
    "passcode",
    "pwd",
    "PWD",
    "db_pwd",
    "dbPwd",
    "userpwd",
    "pw",
    "pass",
    "PASS",
    "db_pass",
    "dbPass",
    "smtp.pass",
    "secret",
    "client_secret",
    "clientSecret",
    "clientsecret",
    "secrets",
    "SECRET_KEY",
    "token",
    "accessToken",
    "access_token",
    "authtoken",
    "refresh-token",
    "csrftoken",
    "tokens",
    "api_key",
    "API-Key",
    "apiKey",
    "APIKey",
    "apikey",
    "x.api.key",
    "x-api-key",
    "apikeys",
    "AWS_ACCESS_KEY",
    "accesskey",
    "signing_key",
    "encryption-key",
    "private_key",
    "privateKey",
    "PRIVATE-KEY",
    "privatekey",
    "ssh_private_key",
    "auth",
    "basic_auth",
    "auth_header",
    "oauth",
    "Authorization",
    "Proxy-Authorization",
    "authorisation",
    "cookie",
    "Set-Cookie",
    "session_cookie",
    "cookies",
    "credential",
    "credentials",
    "aws_credentials",
    "dbCredentials",
    "creds",
    "dsn",
    "sentry_dsn",
    "SENTRY_DSN",
    "sentrydsn",
    "databaseDSN",
]
OTHER_KEYS = [
    "author",
    "authors",
    "authority",
    "author_id",
    "authored_by",
    "auth_method",
    "compass",
    "encompass",
    "tokenizer",
    "tokenize",
    "tokenise",
    "tokenizer_path",
    "bypass",
    "passenger",
    "passengers",
    "passage",
    "passport",
    "passed",
    "pass_rate",
    "surpass",
    "key",
    "keys",
    "keyboard",
    "monkey",
    "api_keyword",
    "public_key",
    "primary_key",
    "sort_key",
    "secretary",
    "secretariat",
    "discredit",
    "user",
    "login",
    "email",
    "host",
    "path",
    "url",
    "path_width",
    "cookiecutter",
    "pwned",
    "spawn",
]


@pytest.mark.parametrize("key", SECRET_KEYS)
def test_the_value_of_a_key_that_names_a_secret_is_masked(key: str) -> None:
    assert masked({key: "hunter2", "team": "ops"}) == {key: "***", "team": "ops"}
    assert masked_text(f"{key}=hunter2") == f"{key}=***"
    assert masked_text(f"bad {key}: hunter2, team: ops") in (
        f"bad {key}: ***, team: ops",
        f"bad {key}: ***",  # of a header with cookies, the rest of the line is masked
    )


@pytest.mark.parametrize("key", OTHER_KEYS)
def test_the_value_of_another_key_stays(key: str) -> None:
    assert masked({key: "hunter2"}) == {key: "hunter2"}
    for text in (f"{key}=hunter2", f"bad {key}: hunter2", f'{{"{key}": "hunter2"}}', f"--{key} hunter2"):
        assert masked_text(text) == text


@pytest.mark.parametrize("value", [None, 7, "", ["a"], {"b": "c"}])
def test_a_secret_of_any_type_is_masked_as_a_whole(value: Any) -> None:
    assert masked({"secret": value}) == {"secret": "***"}


def test_secrets_are_found_at_any_depth() -> None:
    value = {"hosts": [{"name": "a", "login": {"password": "p"}}, ("x", {"token": "t"})]}
    assert masked(value) == {"hosts": [{"name": "a", "login": {"password": "***"}}, ["x", {"token": "***"}]]}
    assert masked({"lines": ["ok", "token=abc"]}) == {"lines": ["ok", "token=***"]}


@pytest.mark.parametrize("value", [None, 1, 2.5, True, "key", ["a", 1], {"monkey": "x", "path": "a/b"}])
def test_other_values_stay_as_they_are(value: Any) -> None:
    assert masked(value) == value


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://me:pw@db/shop", "postgresql://me:***@db/shop"),
        ("postgresql://u:p@ss@h", "postgresql://u:***@h"),
        ("redis://:pw@cache:6379/0", "redis://:***@cache:6379/0"),
        ("copy a://u:p@h to b://u:q@h", "copy a://u:***@h to b://u:***@h"),
        ("https://ghp_abc@github.com/x", "https://***@github.com/x"),
        ("git+https://ghp_abc@github.com/x", "git+https://***@github.com/x"),
        ("https://ghp_abc:x-oauth-basic@github.com", "https://***@github.com"),
        ("HTTPS://abc:@host/", "HTTPS://***@host/"),
        ("https://abc@o1.ingest.sentry.io/2", "https://***@o1.ingest.sentry.io/2"),
        ("https://host/?token=abc&page=2", "https://host/?token=***&page=2"),
    ],
)
def test_the_user_info_of_a_url_is_masked(text: str, shown: str) -> None:
    assert masked([text]) == [shown]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("OperationalError: password=hunter2 host=db", "OperationalError: password=*** host=db"),
        ("token: abc.def", "token: ***"),
        ('{"password": "hunter 2", "n": 1}', '{"password": "***", "n": 1}'),
        ("{'api_key': 'it\\'s', 'n': 1}", "{'api_key': '***', 'n': 1}"),
        ('"{\\"password\\": \\"hunter2\\", \\"n\\": 1}"', '"{\\"password\\": \\"***\\", \\"n\\": 1}"'),
        ("password:hunter2", "password:***"),
        ("curl -H 'Authorization: Bearer abc.def' x", "curl -H 'Authorization: ***' x"),
        ("Authorization: Basic dTpw\nHost: a", "Authorization: ***\nHost: a"),
        ("sent Bearer abc.def, got 401", "sent Bearer ***, got 401"),
        ("Cookie: a=b; c=d\nHost: a", "Cookie: ***\nHost: a"),
        ("mysql --password hunter2 --user me", "mysql --password *** --user me"),
        ("a\n-----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY-----\nb", "a\n***\nb"),
        ("password=", "password="),
        ("password: the", "password: ***"),
        ("password: theatre x", "password: *** x"),
        ("password=the runs", "password=*** runs"),
        ('secret: "the runs"', 'secret: "***"'),
        ("queue secret-q: 3hunter runs", "queue secret-q: *** runs"),
    ],
)
def test_secrets_in_a_text_are_masked(text: str, shown: str) -> None:
    assert masked_text(text) == shown
    assert masked_text(shown) == shown


@pytest.mark.parametrize(
    "text",
    [
        "https://example.org:8080/a@b",
        "https://example.org?mail=a@b",
        "ssh://git@github.com/x",
        "postgresql://me@db/shop",
        "no url: a@b",
        "auth:refresh",
        "token:rotate",
        "KeyError: 'token'",
        "No live node takes from queue secret-q: the runs of 1 schedule will wait.",
        "No live node has the task rotate.token, so 3 due runs wait.",
        "invalid token: its signature is wrong",
        "the token expired, ask for another password",
        "Bearer token expired",
        "Author: Ann, compass=north",
        "passenger: 3, bypass=1, tokenizer: bpe",
        "2026-03-01T09:00:00Z",
        "",
    ],
)
def test_other_texts_stay_as_they_are(text: str) -> None:
    assert masked_text(text) == text


@pytest.mark.parametrize(
    "part", ["a", "a.", "token", "token ", "password=", "://", '"', "a:", "\\", "-----BEGIN "]
)
def test_a_long_text_does_not_take_more_than_linear_time(part: str) -> None:
    """A pattern that tries each start with each end would not end within the time of a test run."""
    assert len(masked_text("token=" + part * (1_000_000 // len(part)))) > 8
