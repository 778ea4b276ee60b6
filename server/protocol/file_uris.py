"""Converts between `file://` URIs and paths of workspace files.

The URIs are those of `pathlib.Path.as_uri`, as in result links. A name that is not UTF-8 survives the round trip.
"""

from __future__ import annotations

import os
import re
from urllib.parse import quote_from_bytes, unquote_to_bytes

from tools.text.file_names import is_seen_in_name

FILE_TEMPLATE = "file:///{+path}"  # reserved expansion (RFC 6570), so that slashes in the path are not encoded
MAX_URI_CHARS = 3 * 4096 + 32  # the longest path on Linux (PATH_MAX) with every byte percent-encoded, plus the scheme
ON_WINDOWS = os.name == "nt"
_FILE_URI = re.compile(r"(?is)file://(?P<host>[^/?#]*)(?P<path>/[^?#]*)(?P<more>[?#].*)?")
_DRIVE = re.compile(r"[A-Za-z]:\\")
_AMBIGUOUS = re.compile(r"[?#]|%[0-9A-Fa-f]{2}")
"""Characters that must be encoded in the template's `path`. Clients do not encode these characters when they expand the
template, although the characters change the meaning of the URI.
"""


class UriRefusedError(Exception):
    """A URI cannot name a file on this machine; the message tells the sender of the URI why."""


def path_of_uri(uri: str, *, may_go_up: bool = False, windows: bool = ON_WINDOWS) -> str:
    """Return the absolute path of a URI, percent-decoded once, without accessing the disk.

    The path may contain `..` only if `may_go_up` is true. Raises `UriRefusedError` if the URI cannot name a file on
    this machine.
    """
    if len(uri) > MAX_URI_CHARS:
        raise UriRefusedError(
            f"The URI has {len(uri):,} characters, more than the maximum of {MAX_URI_CHARS:,} for a file."
        )
    parts = _FILE_URI.fullmatch(uri)
    if parts is None:
        raise UriRefusedError(
            f"No resource has this URI. Files are {FILE_TEMPLATE} with an absolute path; resources/list shows all "
            "other resources and their URIs."
        )
    if parts["host"].lower() not in ("", "localhost"):
        raise UriRefusedError("The URI names another machine; the host must be empty or localhost.")
    if parts["more"] is not None:
        raise UriRefusedError("A file URI has no query and no fragment; write ? as %3F and # as %23.")
    try:
        data = unquote_to_bytes(parts["path"])
        # On Windows, file names are not bytes, so a name that is not UTF-8 cannot exist.
        path = data.decode() if windows else os.fsdecode(data)
    except UnicodeError:
        raise UriRefusedError("The URI is not valid text; percent-encode the bytes of the path.") from None
    if "\0" in path:
        raise UriRefusedError("The URI contains a NUL (%00), which no path can contain.")
    if not may_go_up and ".." in re.split(r"[/\\]" if windows else "/", path):
        raise UriRefusedError("The URI contains '..'; write the path of the file without it.")
    if windows:
        path = path.lstrip("/").replace("/", "\\")
        if not _DRIVE.match(path):
            raise UriRefusedError(
                "On Windows, the path in a file URI must begin with a drive and a slash, as in file:///C:/..."
            )
    return path


def typed_path(value: str, *, windows: bool = ON_WINDOWS) -> str:
    """Return the absolute path for a partly typed value of the template's `path`, percent-decoded."""
    path = os.fsdecode(unquote_to_bytes(value.encode("utf-8", "replace")))
    return path if windows else "/" + path.lstrip("/")


def template_value(path: str, *, windows: bool = ON_WINDOWS) -> str:
    """Return the value of the template's `path` for an absolute path.

    Only a path with characters that would not survive the expansion is percent-encoded here. Clients encode other paths
    themselves when they expand the template, and some would encode even the `%` of an encoded path.
    """
    plain = path.replace("\\", "/") if windows else path[1:]
    if _AMBIGUOUS.search(plain) or not is_seen_in_name(plain):
        return quote_from_bytes(os.fsencode(plain), safe="/:" if windows else "/")
    return plain
