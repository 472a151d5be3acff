"""Masking: hides passwords, tokens and other secrets in values and texts before people see them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

MASK = "***"

# Compared with the words of a key in lower case, with one space between them: apiKey is "api key".
# Words that only begin or end like these are not secrets: author, compass, bypass, tokenizer, secretary.
_SECRET = re.compile(
    r"""
      pass\ ?(?:words?|wd|phrases?|codes?) | pwd(?![a-z]) | \bpw\b | \bpass\d*$
    | secret(?!ar|e|i|o) | token(?!i[sz])
    | (?:api|access|private|signing|encryption)\ ?keys?(?![a-z])
    | authori[sz]ation(?![a-z]) | \bo?auth\d*(?:$|\ (?:header|key|code|string)s?\b)
    | credential | \bcreds?\b | cookies?(?![a-z]) | dsn(?![a-z])
    """,
    re.VERBOSE,
)
_BETWEEN = re.compile(r"[\W_]+")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")

# Almost no text has one of these.
_SUSPECT = re.compile(r"://|bearer|pass|pwd|pw|secret|token|key|auth|cred|cookie|dsn", re.IGNORECASE)
# Every repetition below is bounded, or begins where no other match can: time grows with the length alone.
_USER_INFO = re.compile(r"""(https?)?://([^\s/"'<>]*)@""", re.IGNORECASE)
_BEARER = re.compile(r"\b(bearer) +(?!tokens?\b|auth)[^\s\"',;<>]+", re.IGNORECASE)
_PRIVATE_KEY = re.compile(
    r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----.*?(?:-----END [A-Z ]{0,30}PRIVATE KEY-----|\Z)", re.DOTALL
)
_KEY = re.compile(
    r"""(?<![\w.-])(?P<key>[\w.-]{1,100})
    (?P<between>(?:\\?["'])?[ \t]{0,10}(?:=>|:=|[=:])[ \t]{0,10}|(?<=\w)[ \t]{1,10}(?=[^\s-]))""",
    re.VERBOSE,
)
_VALUE = re.compile(
    r"""\\"[^"\\]*(?:\\")? | "[^"\\]*(?:\\.[^"\\]*)*"? | '[^'\\]*(?:\\.[^'\\]*)*'?
    | (?:(?:bearer|basic|digest|token|negotiate)[ ]+)?[^\s,;&"'<>)\]}]+""",
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)
_REST_OF_LINE = re.compile(r"""[^\n"']+""")
_OPENING = re.compile(r"""\\?["']""")
_QUOTES = ("\\", '"', "'")
# "auth:refresh" is more often a name than a secret, "password:hunter2" is not.
_NEVER_A_NAME = re.compile(r"pass ?w|pwd|secret|key")
# "queue secret-q: the runs wait" is a sentence. A password that begins so has more words, and only its first
# word would be masked.
_WORDS = re.compile(r"(?:the|its|it|no|an?|this|these|there)[ ](?=[A-Za-z])")
# What services take as the password if the user is the token.
_NO_PASSWORD = ("", "x-oauth-basic")


def masked(value: Any) -> Any:
    """Return a JSON value with ``***`` in the place of each secret, at any depth.

    A value is a secret if its key has a word such as password, pwd, secret, token, api_key, authorization,
    cookie, credentials, dsn or private_key, in upper or lower case. Texts are masked as ``masked_text`` does.
    """
    if isinstance(value, str):
        return masked_text(value)
    if isinstance(value, Mapping):
        return {key: MASK if is_secret(key) else masked(item) for key, item in value.items()}
    return [masked(item) for item in value] if isinstance(value, (list, tuple)) else value


def is_secret(key: object) -> bool:
    """Return whether the value of this key is a secret."""
    return any(map(_SECRET.search, _forms(str(key))))


def masked_text(text: str) -> str:
    """Return a text, such as an error or a line of a log, with ``***`` in the place of each secret.

    Secrets are the user info of URLs, what follows ``Bearer``, private keys, and the values in
    ``password=…``, ``token: …``, ``"secret": "…"`` and ``--api-key …``.
    """
    if not _SUSPECT.search(text):
        return text
    text = _USER_INFO.sub(_without_user_info, text)
    text = _PRIVATE_KEY.sub(MASK, text)
    return "".join(_without_values(_BEARER.sub(rf"\1 {MASK}", text)))


def _forms(key: str) -> tuple[str, str]:
    """Return a key as words, once divided at capital letters, too, and once not: pAssword is one word."""
    plain = _BETWEEN.sub(" ", key).strip()
    return plain.lower(), _HUMP.sub(" ", plain).lower()


def _without_user_info(found: re.Match[str]) -> str:
    user, colon, password = found[2].partition(":")
    scheme = found[1] or ""
    if colon and password not in _NO_PASSWORD:
        return f"{scheme}://{user}:{MASK}@"
    # A path, or a user of a database. On the web, a name without a password is a token.
    if not scheme or not user or "?" in user or "#" in user:
        return found[0]
    return f"{scheme}://{MASK}@"


def _without_values(text: str) -> Iterator[str]:
    """Yield the parts of a text, with ``***`` for the values of secret keys."""
    written = 0
    for found in _KEY.finditer(text):
        key, between = found["key"], found["between"]
        if found.start() < written or not is_secret(key):
            continue
        if between.isspace() and not key.startswith("-"):
            continue  # words, not a flag of a command
        if between == ":" and not any(map(_NEVER_A_NAME.search, _forms(key))):
            continue
        if between == ": " and _WORDS.match(text, found.end()):
            continue
        is_header = "cookie" in key.lower() and text[found.end() : found.end() + 1] not in _QUOTES
        value = (_REST_OF_LINE if is_header else _VALUE).match(text, found.end())
        if value is None:
            continue
        quote = _OPENING.match(value[0])
        mark = "" if quote is None else quote[0]
        yield f"{text[written : found.end()]}{mark}{MASK}{mark}"
        written = value.end()
    yield text[written:]
