"""The page of the dashboard: its built files, which need no token, in memory.

``make ui`` builds them, and packages contain them. The page names its files and the API by relative URLs, so
it works under any prefix.
"""

from __future__ import annotations

import hashlib
import re
from http import HTTPStatus
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

BUILT = Path(__file__).parent / "dashboard"
"""The folder of the built files."""

_INDEX = "index.html"
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".ico": "image/x-icon",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".map": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".woff2": "font/woff2",
}
# Browsers ask for /favicon.ico, and log an error, if a page does not name an icon.
_NOT_BUILT_PAGE = b"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="refresh" content="5">
<title>Evenbeat</title>
<link rel="icon" href="data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 32 32'%3E\
%3Crect width='32' height='32' rx='8' fill='%230f766e'/%3E%3C/svg%3E">
</head>
<body>
<h1>The dashboard is not built yet</h1>
<p>In a clone of Evenbeat, <code>make ui</code> builds it; <code>make demo</code> does so in about 20 seconds.
This page reloads until then.</p>
<p>The REST API works meanwhile, under <code>api/v1</code> of this address.</p>
</body>
</html>
"""


class _File(NamedTuple):
    media_type: str
    plain: bytes
    gzipped: bytes | None
    """The file as the build has compressed it; None if the build has not."""


_NOT_BUILT = _File(_MEDIA_TYPES[".html"], _NOT_BUILT_PAGE, None)


class Dashboard:
    """The built files of a folder. It reads them again after the next build."""

    def __init__(self, folder: Path = BUILT) -> None:
        self._folder = folder
        self._stamp: tuple[int, int, int] | None = None
        self._index = _NOT_BUILT
        self._assets: dict[str, _File] = {}

    def page(self, request: Request) -> Response:
        """Return the page; without built files, a page that says how to build them."""
        self._refresh()
        return _response(request, self._index, {"Cache-Control": "no-cache"}, has_etag=True)

    def asset(self, request: Request) -> Response | None:
        """Return a file that the page asks for; None if the build made none of that name.

        Names are compared with those of a listing, so no name leads out of the folder.
        """
        name = request.path_params["file"]
        if name not in self._assets:
            self._refresh()
        found = self._assets.get(name)
        if found is None:
            return None
        # The name contains a hash of the content.
        return _response(request, found, {"Cache-Control": "public, max-age=31536000, immutable"})

    def _refresh(self) -> None:
        """Read the files if there was a build since. A build replaces the whole folder."""
        try:
            found = (self._folder / _INDEX).stat()
            stamp = (found.st_mtime_ns, found.st_size, found.st_ino)
            if stamp == self._stamp:
                return
            index = _read(self._folder / _INDEX)
            assets = _listed(self._folder / "assets")
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            # Not built, a build is replacing the files right now, or something else lies in their place.
            self._stamp, self._index, self._assets = None, _NOT_BUILT, {}
        else:
            self._stamp, self._index, self._assets = stamp, index, assets


def with_slash(request: Request) -> Response | None:
    """Return the redirect from ``/jobs`` to ``/jobs/``, where the app is mounted under ``/jobs``; else None.

    Without the slash, the relative URLs of the page would lead elsewhere.
    """
    root = request.scope.get("root_path", "")
    if not root or request.scope["path"] != root:
        return None
    # Relative, because a proxy may have stripped another prefix.
    place = f"./{quote(root.rpartition('/')[2], safe='')}/"
    return Response(status_code=HTTPStatus.TEMPORARY_REDIRECT, headers={**_HEADERS, "Location": place})


def _listed(folder: Path) -> dict[str, _File]:
    names = [path for path in folder.iterdir() if path.suffix != ".gz" and path.is_file()]
    return {path.name: _read(path) for path in names}


def _read(path: Path) -> _File:
    media_type = _MEDIA_TYPES.get(path.suffix, "application/octet-stream")
    compressed = path.with_name(f"{path.name}.gz")
    return _File(media_type, path.read_bytes(), compressed.read_bytes() if compressed.is_file() else None)


def _response(request: Request, file: _File, headers: dict[str, str], *, has_etag: bool = False) -> Response:
    is_gzipped = file.gzipped is not None and _takes_gzip(request.headers.get("accept-encoding", ""))
    body = file.gzipped if is_gzipped and file.gzipped is not None else file.plain
    made = {**_HEADERS, **headers, "Vary": "Accept-Encoding"}
    if is_gzipped:
        made["Content-Encoding"] = "gzip"
    if has_etag:
        # Another one for each encoding: it stands for the bytes.
        made["ETag"] = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
        if _has_tag(request.headers.get("if-none-match", ""), made["ETag"]):
            made.pop("Content-Encoding", None)
            return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=made)
    return Response(body, headers=made, media_type=file.media_type)


def _takes_gzip(accepted: str) -> bool:
    """Return whether a header Accept-Encoding names gzip, or anything, and not with the weight 0."""
    weights: dict[str, str] = {}
    for part in accepted.lower().split(","):
        name, _, parameters = part.partition(";")
        weights[name.strip()] = parameters.strip()
    weight = weights.get("gzip", weights.get("*"))
    return weight is not None and not re.fullmatch(r"q\s*=\s*0(\.0*)?", weight)


def _has_tag(wanted: str, etag: str) -> bool:
    """Return whether a header If-None-Match names an ETag. A proxy may have marked it as weak."""
    return any(tag.strip().removeprefix("W/") in (etag, "*") for tag in wanted.split(","))
