"""A hub on 127.0.0.1: the endpoints that `huggingface_hub` asks for, and no more.

Small text files are regular, all others go through the large file storage, with the
redirects and headers of the real one.
"""

import base64
import contextlib
import hashlib
import http.server
import json
import re
import socket
import threading
import urllib.parse

REGULAR = (".json", ".md", ".txt")
TOKEN = "hf_right"


class Hub(http.server.ThreadingHTTPServer):
    """Repositories in memory.

    Attributes:
        repos: `{repo: [(commit, {path: bytes}), ...]}`, the newest commit last.
        blobs: Large files by their SHA-256.
        gated: Repositories whose files are refused to all.
        private: Repositories that need the token `TOKEN`.
        requests: `(method, path)` of each request.
    """

    def __init__(self):
        self.repos, self.blobs, self.requests = {}, {}, []
        self.gated, self.private = set(), set()
        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def storage(self):
        """Large files are on another host, which must not see the token."""
        return f"http://localhost:{self.server_port}"

    def put(self, repo, **files):
        """A commit with all files of a repository; `__` in a name is a dot."""
        return self.commit(
            repo,
            {
                name.replace("__", "."): content
                if isinstance(content, bytes)
                else json.dumps(content).encode()
                for name, content in files.items()
            },
        )

    def commit(self, repo, files):
        commits = self.repos.setdefault(repo, [])
        commit = hashlib.sha1(f"{repo}{len(commits)}".encode()).hexdigest()
        commits.append((commit, files))
        return commit

    def files(self, repo):
        return self.repos[repo][-1][1]

    def find(self, repo, revision):
        """The commit and its files; `None` if there are none."""
        revision = urllib.parse.unquote(revision)
        commits = self.repos.get(repo, [])
        if revision in ("main", "HEAD") and commits:
            return commits[-1]
        return next((pair for pair in commits if pair[0] == revision), None)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self._note()
        path = self.path.partition("?")[0]
        for pattern, answer in (
            (r"/api/models/([^/]+/[^/]+)(?:/revision/([^/]+))?", self._info),
            (r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", self._resolve),
            (r"/lfs/(\w+)", self._blob),
        ):
            match = re.fullmatch(pattern, path)
            if match:
                answer(*(x and urllib.parse.unquote(x) for x in match.groups()))
                return
        self._error(404)

    do_HEAD = do_GET

    def do_POST(self):
        self._note()
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = self.path.partition("?")[0]
        for pattern, answer in (
            (r"/api/repos/create", self._create),
            (r"/api/validate-yaml", self._validate),
            (r"/api/models/([^/]+/[^/]+)/preupload/[^/]+", self._preupload),
            (r"/([^/]+/[^/]+)\.git/info/lfs/objects/batch", self._batch),
            (r"/api/models/([^/]+/[^/]+)/commit/[^/]+", self._commit),
        ):
            match = re.fullmatch(pattern, path)
            if match:
                if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                    self._error(401, message="Invalid username or password.")
                else:
                    answer(body, *match.groups())
                return
        self._error(404)

    def do_PUT(self):
        self._note()
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.blobs[hashlib.sha256(body).hexdigest()] = body
        self._json({})

    # === Reading ===

    def _is_hidden(self, repo):
        allowed = self.headers.get("Authorization") == f"Bearer {TOKEN}"
        return repo not in self.server.repos or (
            repo in self.server.private and not allowed
        )

    def _info(self, repo, revision):
        if self._is_hidden(repo):
            self._error(401, "RepoNotFound", "Repository not found")
            return
        found = self.server.find(repo, revision or "main")
        if found is None:
            self._error(404, "RevisionNotFound", f"Invalid rev id: {revision}")
            return
        commit, files = found
        siblings = [{"rfilename": k, "size": len(v)} for k, v in files.items()]
        self._json({"id": repo, "modelId": repo, "sha": commit, "siblings": siblings})

    def _resolve(self, repo, revision, name):
        if self._is_hidden(repo):
            self._error(401, "RepoNotFound", "Repository not found")
            return
        if repo in self.server.gated:
            self._error(403, "GatedRepo", "Access to this model is restricted")
            return
        found = self.server.find(repo, revision)
        if found is None or name not in found[1]:
            code = "RevisionNotFound" if found is None else "EntryNotFound"
            self._error(404, code, "not found")
            return
        commit, files = found
        content = files[name]
        headers = {"X-Repo-Commit": commit}
        if name.endswith(REGULAR):
            headers["ETag"] = f'"{hashlib.sha1(content).hexdigest()}"'
            self._answer(200, content, headers)
            return
        digest = hashlib.sha256(content).hexdigest()
        self.server.blobs[digest] = content
        headers |= {
            "X-Linked-Etag": f'"{digest}"',
            "X-Linked-Size": str(len(content)),
            "Location": f"{self.server.storage}/lfs/{digest}",
        }
        self._answer(302, b"", headers)

    def _blob(self, digest):
        assert "Authorization" not in self.headers
        content = self.server.blobs[digest]
        self._answer(200, content, {"ETag": f'"{digest}"'})

    # === Writing ===

    def _create(self, body):
        asked = json.loads(body)
        repo = f"{asked['organization']}/{asked['name']}"
        known = repo in self.server.repos
        self.server.repos.setdefault(repo, [])
        if asked.get("visibility") == "private" or asked.get("private"):
            self.server.private.add(repo)
        url = f"{self.server.url}/{repo}"
        self._json({"url": url, "name": repo}, 409 if known else 200)

    def _validate(self, body):
        content = json.loads(body)["content"]
        ok = content.startswith("---\n")
        errors = [] if ok else [{"message": "no front matter"}]
        self._json({"errors": errors, "warnings": []}, 200 if ok else 400)

    def _preupload(self, body, repo):
        files = [
            {
                "path": file["path"],
                "uploadMode": "regular" if file["path"].endswith(REGULAR) else "lfs",
                "shouldIgnore": False,
            }
            for file in json.loads(body)["files"]
        ]
        self._json({"files": files})

    def _batch(self, body, repo):
        objects = [
            {
                **x,
                "actions": {
                    "upload": {"href": f"{self.server.storage}/lfs/{x['oid']}"}
                },
            }
            for x in json.loads(body)["objects"]
        ]
        self._json({"transfer": "basic", "objects": objects})

    def _commit(self, body, repo):
        commits = self.server.repos[repo]
        files = dict(commits[-1][1]) if commits else {}
        for line in body.splitlines():
            row = json.loads(line)
            value = row["value"]
            if row["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif row["key"] == "lfsFile":
                files[value["path"]] = self.server.blobs[value["oid"]]
        commit = self.server.commit(repo, files)
        url = f"{self.server.url}/{repo}/commit/{commit}"
        self._json({"success": True, "commitOid": commit, "commitUrl": url})

    # === HTTP ===

    def _note(self):
        self.server.requests.append((self.command, self.path))

    def _json(self, content, status=200):
        kind = {"Content-Type": "application/json"}
        self._answer(status, json.dumps(content).encode(), kind)

    def _error(self, status, code=None, message=""):
        headers = {"X-Error-Message": message}
        if code is not None:
            headers["X-Error-Code"] = code
        self._answer(status, json.dumps({"error": message}).encode(), headers)

    def _answer(self, status, content, headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            with contextlib.suppress(BrokenPipeError):
                self.wfile.write(content)

    def log_message(self, *arguments):
        pass


@contextlib.contextmanager
def running_hub():
    """A hub that answers as long as the context lasts."""
    hub = Hub()
    thread = threading.Thread(target=hub.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.shutdown()
        hub.server_close()
        thread.join()


def environment(hub, home):
    """What a process needs to know no other hub than this one."""
    return {
        "HF_ENDPOINT": hub.url,
        "HF_HOME": str(home),
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    }


def use_hub(hub, home, monkeypatch, token=None):
    """The same for this process, where the client may be imported already.

    Whoever asks for another host than this machine fails.
    """
    from huggingface_hub import constants

    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    if token is not None:
        monkeypatch.setenv("HF_TOKEN", token)
    url = f"{hub.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
    for name, value in {
        "ENDPOINT": hub.url,
        "HUGGINGFACE_CO_URL_TEMPLATE": url,
        "HF_HOME": str(home),
        "HF_HUB_CACHE": str(home / "hub"),
        "HF_TOKEN_PATH": str(home / "token"),
        "HF_STORED_TOKENS_PATH": str(home / "stored_tokens"),
        "HF_HUB_DISABLE_XET": True,
        "HF_HUB_DISABLE_TELEMETRY": True,
        "HF_HUB_DISABLE_PROGRESS_BARS": True,
        "HF_HUB_OFFLINE": False,
    }.items():
        monkeypatch.setattr(constants, name, value)
    find = socket.getaddrinfo

    def only_here(host, *arguments, **options):
        name = host.decode() if isinstance(host, bytes) else host
        assert name in ("127.0.0.1", "localhost"), f"asked for {name}"
        return find(host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", only_here)
