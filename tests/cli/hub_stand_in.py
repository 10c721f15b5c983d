"""A server that speaks enough of the Hugging Face hub's protocol for its own client to push and pull."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import unquote, urlsplit

COMMIT = "1" * 40


class Hub(BaseHTTPRequestHandler):
    """Repositories in memory; files above `large` bytes go through the protocol of large files."""

    repositories: dict[str, dict[str, bytes]]
    objects: dict[str, bytes]
    commits: list[list[str]]
    tokens: set[str]
    large: int

    def log_message(self, *arguments):
        pass

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}"
        self.tokens.add(self.headers.get("Authorization", ""))
        path = urlsplit(self.path).path
        if path == "/api/repos/create":
            asked = json.loads(body)
            name = "/".join(filter(None, [asked.get("type", "model"), asked.get("organization"), asked["name"]]))
            self.repositories.setdefault(name, {})
            return self._json({"url": self._page(name)})
        if match := re.fullmatch(r"/api/(model|dataset)s/(.+)/preupload/main", path):
            files = [
                {"path": each["path"], "uploadMode": "lfs" if each["size"] > self.large else "regular", "shouldIgnore": False}
                for each in json.loads(body)["files"]
            ]
            return self._json({"files": files})
        if path == "/api/validate-yaml":
            return self._json({"errors": [], "warnings": []})
        if path.endswith("/info/lfs/objects/batch"):
            href = f"http://{self.headers['Host']}/objects/"
            objects = [{**each, "actions": {"upload": {"href": href + each["oid"]}}} for each in json.loads(body)["objects"]]
            return self._json({"transfer": "basic", "objects": objects})
        if match := re.fullmatch(r"/api/(model|dataset)s/(.+)/commit/main", path):
            return self._commit(f"{match[1]}/{match[2]}", [json.loads(line) for line in body.splitlines()])
        return self.send_error(404)

    def _commit(self, name, lines):
        files = dict(self.repositories[name])
        for line in lines[1:]:
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                files[value["path"]] = self.objects[value["oid"]]
            elif line["key"] == "deletedFile":
                del files[value["path"]]
        self.repositories[name] = files
        self.commits.append([line["key"] for line in lines])
        self._json({"commitUrl": f"{self._page(name)}/commit/{COMMIT}", "commitOid": COMMIT, "success": True})

    def do_PUT(self):
        content = (
            self._chunks() if "Content-Length" not in self.headers else self.rfile.read(int(self.headers["Content-Length"]))
        )
        self.objects[hashlib.sha256(content).hexdigest()] = content
        self._json({})

    def _chunks(self):
        """Returns a body in the chunked transfer coding (RFC 9112)."""
        found = b""
        while size := int(self.rfile.readline(), 16):
            found += self.rfile.read(size)
            self.rfile.readline()
        return found

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        path = unquote(urlsplit(self.path).path)
        if match := re.fullmatch(r"/api/(model|dataset)s/(.+)/tree/main", path):
            files = self.repositories[f"{match[1]}/{match[2]}"]
            return self._json([{"type": "file", "path": each, "size": len(files[each]), "oid": "0"} for each in files])
        if match := re.fullmatch(r"/(datasets/)?([^/]+/[^/]+)/resolve/[^/]+/(.+)", path):
            files = self.repositories.get(f"{'dataset' if match[1] else 'model'}/{match[2]}", {})
            if match[3] in files:
                return self._send(files[match[3]])
            self.send_response(404)
            self.send_header("X-Error-Code", "EntryNotFound" if files else "RepoNotFound")
            self.send_header("Content-Length", "0")
            return self.end_headers()
        return self.send_error(404)

    def _page(self, name):
        return f"http://{self.headers['Host']}/{name.replace('dataset/', 'datasets/').removeprefix('model/')}"

    def _json(self, content):
        self._send(json.dumps(content).encode(), "application/json")

    def _send(self, content, kind="application/octet-stream"):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("ETag", f'"{hashlib.sha1(content).hexdigest()}"')
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


@contextmanager
def hub(large=1 << 30):
    """Serve; gives the class that holds the state, with `endpoint`."""
    state = type("State", (Hub,), {"repositories": {}, "objects": {}, "commits": [], "tokens": set(), "large": large})
    server = ThreadingHTTPServer(("127.0.0.1", 0), state)
    Thread(target=server.serve_forever, daemon=True).start()
    state.endpoint = f"http://127.0.0.1:{server.server_port}"
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
