"""Masking: hides passwords, tokens and other secrets in payloads and results before people see them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

MASK = "***"

# Compared without case and without the characters between words: api_key, API-Key and apiKey are the same.
_SECRETS = (
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "apikey",
    "accesskey",
    "privatekey",
    "signingkey",
    "encryptionkey",
    "authorization",
    "credential",
    "cookie",
)
_BETWEEN = re.compile(r"[\W_]+")
# The password in a URL: postgresql://user:password@host
_IN_URL = re.compile(r"(?<=://)([^\s/:@]*):[^\s/@]+(?=@)")


def masked(value: Any) -> Any:
    """Return a JSON value with ``***`` in the place of each secret, at any depth.

    A value is a secret if its key contains a word such as password, secret, token, api_key, authorization,
    credential or private_key, in upper or lower case. The password of a URL inside a text is one, too.
    """
    if isinstance(value, str):
        return _IN_URL.sub(rf"\1:{MASK}", value) if "://" in value else value
    if isinstance(value, Mapping):
        return {key: MASK if is_secret(key) else masked(item) for key, item in value.items()}
    return [masked(item) for item in value] if isinstance(value, (list, tuple)) else value


def is_secret(key: object) -> bool:
    """Return whether the value of this key is a secret."""
    plain = _BETWEEN.sub("", str(key)).lower()
    return any(word in plain for word in _SECRETS)
