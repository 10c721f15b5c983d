"""Download a file over HTTP. An interrupted download is resumed, and the file gets its name only if its hash is right."""

from __future__ import annotations

import hashlib
import http.client
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from robo_datasets.public.sets import PublicFile
from robo_rl.errors import DatasetError, fix_of

TIMEOUT = 30.0
"""[s] without a byte after which a connection counts as cut"""
ATTEMPTS = 3
"""number of connections after which a download gives up"""
PIECE = 1 << 16
"""[byte] largest part that is read at once"""
OK, PARTIAL, BEYOND = 200, 206, 416

Check = Callable[[Path], str]
"""function that returns the digest of a file"""


def download(url: str, out: Path, file: PublicFile, digest: Check, progress: Callable[[int], None]) -> None:
    """Download a file and check its hash.

    The bytes that have arrived are kept in a file with the suffix .part, so that the next call resumes the download. The file
    gets its name only if its hash is right.

    Args:
        url: Address, http or https.
        out: Path of the file, which must not exist.
        file: Expected size and hash.
        digest: Returns the digest of a file, which is compared with `file.sha256` or `file.content`.
        progress: Called with the number of bytes that have arrived so far.

    Raises:
        DatasetError: The server refuses, the connection was cut in every attempt, or the content is not the expected one and
            was removed.
    """
    part = out.with_name(f"{out.name}.part")
    out.parent.mkdir(parents=True, exist_ok=True)
    problem = ""
    for _ in range(ATTEMPTS):
        try:
            problem = _resume(url, part, file, progress)
        except urllib.error.HTTPError as error:
            raise DatasetError(f"{url} cannot be fetched.", got=f"HTTP {error.code} {error.reason}", fix=_fix()) from None
        except (OSError, http.client.HTTPException) as error:
            if getattr(error, "filename", None) == str(part):
                raise DatasetError(f"{part} could not be written.", got=error, fix=fix_of(_as_os_error(error))) from None
            problem = f"{type(error).__name__}: {error}"
        if not problem:
            require_content(part, file, digest, url)
            part.rename(out)
            return
    there = part.stat().st_size if part.exists() else 0
    raise DatasetError(
        f"{url} did not arrive.",
        got=f"{there:,} bytes in {ATTEMPTS} attempts; {problem}",
        allowed=f"{file.size:,} bytes",
        fix=f"the same command goes on there; {_fix()}",
    )


def require_content(path: Path, file: PublicFile, digest: Check, source: str) -> None:
    """Raise DatasetError unless a file has the digest that the set lists; a wrong file with the suffix .part is removed.

    Args:
        path: The file.
        file: Entry of the set.
        digest: Returns the digest of a file.
        source: Where the file comes from, for the error.
    """
    wanted = file.sha256 or file.content
    try:
        found = digest(path)
    except ValueError as error:
        found = f"cannot be read: {error}"
    if found == wanted:
        return
    if path.suffix == ".part":
        path.unlink()
    raise DatasetError(
        f"{source} is not the file that the set lists; nothing of it is used.",
        got=f"sha256 {found}",
        allowed=f"sha256 {wanted}",
        fix="it has changed at its source, or on the way: take it from elsewhere with --from, or report it",
    )


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _resume(url: str, part: Path, file: PublicFile, progress: Callable[[int], None]) -> str:
    """Download the missing end of a file; return "" if the file is complete, else the reason why not."""
    there = part.stat().st_size if part.exists() else 0
    if file.sha256 and there == file.size:
        return ""
    request = urllib.request.Request(url, headers={"Range": f"bytes={there}-"} if there else {})
    if request.type not in ("http", "https"):
        raise DatasetError("A set is fetched by HTTP.", got=url, allowed="http:// or https://")
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as response:
            if url.startswith("https:") and not response.geturl().startswith("https:"):
                return f"it leads to {response.geturl()}, which is not encrypted"
            is_continued = response.status == PARTIAL and response.headers.get("Content-Range", "").startswith(
                f"bytes {there}-"
            )
            announced = int(response.headers.get("Content-Length") or -1)
            return _receive(response, part, there if is_continued else 0, announced, file, progress)
    except urllib.error.HTTPError as error:
        if error.code != BEYOND:
            raise
        part.unlink()  # longer than the file at the source
        return "what was there was longer than the file"


def _receive(
    response: http.client.HTTPResponse,
    part: Path,
    there: int,
    announced: int,
    file: PublicFile,
    progress: Callable[[int], None],
) -> str:
    done = there
    with part.open("ab" if there else "wb") as out:
        while piece := response.read(PIECE):
            done += len(piece)
            if done > file.size:
                with suppress(OSError):
                    part.unlink()
                return f"more than {file.size:,} bytes"
            out.write(piece)
            progress(done)
    expected = file.size if file.sha256 else there + announced
    return "" if done == expected or (announced < 0 and not file.sha256) else f"cut at {done:,} of {expected:,} bytes"


def _as_os_error(error: BaseException) -> OSError:
    return error if isinstance(error, OSError) else OSError(str(error))


def _fix() -> str:
    return "look at the network and its proxy (HTTPS_PROXY), or take the files from elsewhere with --from FOLDER"
