"""A page that runs a model in the browser: a folder of static files."""

import base64
import hashlib
import json
import pathlib
import shutil
from importlib import resources

from cct_keras.errors import ExportError

# onnxruntime-web on WebAssembly alone; the smallest set of its files that runs a model.
# `integrity` is what a browser checks: base64 of SHA-384, of the files as npm has them.
RUNTIME = "onnxruntime-web"
RUNTIME_VERSION = "1.30.0"
RUNTIME_FILES = {
    "script": (
        "ort.wasm.bundle.min.mjs",
        "sha384-PLWz+nHEVHpjwBsO0YVdvQj6n5814Iv8E3b8FG0Rp/uIAtjFMCKOpP66iPzedrIG",
    ),
    "wasm": (
        "ort-wasm-simd-threaded.wasm",
        "sha384-vjBJ1z7qrhkTyYsNqKeF6c7N+nOJSU94czEo+tvZcu8G75JparGq9kB+kTnEUNVM",
    ),
}
CDN = "https://cdn.jsdelivr.net"
RUNTIME_FOLDER = f"{RUNTIME}@{RUNTIME_VERSION}"

MODEL = "model.onnx"
MANIFEST = "model.json"
APP_MANIFEST = "manifest.webmanifest"
PAGE = "index.html"
WORKER = "service-worker.js"
# Files that are the same in every page.
PLAIN_FILES = ("app.js", "classifier.js", "icon.svg", "pixels.js", "style.css")
# In the policy of index.html; the address of the CDN, or nothing.
CDN_MARK = " {cdn}"


def find_runtime(ort: pathlib.Path) -> dict[str, pathlib.Path]:
    """Finds the files of onnxruntime-web in a local copy, and checks them.

    Args:
        ort: The folder of the npm package, its `dist`, or a folder with
            `node_modules` or the package in it.

    Returns:
        Its files by their part: `"script"` and `"wasm"`.

    Raises:
        ExportError: A file is missing, or is of another version.
    """
    known = f"npm install {RUNTIME_FOLDER}"
    inner = (".", RUNTIME, f"node_modules/{RUNTIME}", "package")
    names = [name for name, _ in RUNTIME_FILES.values()]
    for folder in (ort / part / dist for part in inner for dist in (".", "dist")):
        if any((folder / name).is_file() for name in names):
            break
    else:
        raise ExportError(f"{ort} has no copy of {RUNTIME}; `{known}` makes one")
    found = {}
    for part, (name, integrity) in RUNTIME_FILES.items():
        found[part] = folder / name
        if not found[part].is_file():
            raise ExportError(f"{folder} lacks {name}; `{known}` brings it")
        if _integrity(found[part]) != integrity:
            raise ExportError(
                f"{found[part]} is not that of {RUNTIME} {RUNTIME_VERSION}"
                f"{_other_version(folder)}; `{known}` brings it"
            )
    return found


def write_site(
    path: pathlib.Path,
    onnx_file: pathlib.Path,
    metadata: dict,
    *,
    ort: pathlib.Path | None = None,
) -> None:
    """Writes a page that runs a model in the browser.

    Args:
        path: The folder to make.
        onnx_file: The model.
        metadata: What it tells of itself, plain values. It is never written into
            code or markup, only into JSON files that the page reads.
        ort: A local copy of onnxruntime-web; see `find_runtime`. Without it the page
            loads the same files from a CDN.
    """
    runtime = None if ort is None else find_runtime(ort)
    path.mkdir()
    shutil.copyfile(onnx_file, path / MODEL)
    site = resources.files("cct_keras.exporting") / "site"
    for name in PLAIN_FILES:
        (path / name).write_bytes((site / name).read_bytes())
    cdn = "" if runtime else f" {CDN}"
    page = (site / PAGE).read_text(encoding="utf-8").replace(CDN_MARK, cdn)
    (path / PAGE).write_text(page, encoding="utf-8")
    manifest = {
        **metadata,
        "model": _entry(path, MODEL),
        "runtime": _place_runtime(path, runtime),
    }
    _write_json(path / MANIFEST, manifest)
    _write_json(path / APP_MANIFEST, _app_manifest(metadata))
    kept = [
        # The page itself: some servers change it on its way, so it has no hash.
        {"url": "./"},
        *(_entry(path, name) for name in (*PLAIN_FILES, MANIFEST, APP_MANIFEST, MODEL)),
        *(manifest["runtime"][part] for part in RUNTIME_FILES),
    ]
    listing = {"version": _version(page, kept), "files": kept}
    worker = (site / WORKER).read_text(encoding="utf-8")
    (path / WORKER).write_text(
        f"const SITE = {json.dumps(listing, indent=1)};\n\n{worker}", encoding="utf-8"
    )


def _place_runtime(path, runtime):
    """Where the page finds the runtime: in its folder, or on the CDN."""
    folder = RUNTIME_FOLDER
    if runtime is None:
        folder = f"{CDN}/npm/{RUNTIME_FOLDER}/dist"
    else:
        (path / folder).mkdir()
        for file in runtime.values():
            shutil.copyfile(file, path / folder / file.name)
    return {
        "name": RUNTIME,
        "version": RUNTIME_VERSION,
        **{
            # The version is in the address: what is there never changes.
            part: {"url": f"{folder}/{name}", "integrity": integrity, "pinned": True}
            for part, (name, integrity) in RUNTIME_FILES.items()
        },
    }


def _app_manifest(metadata):
    """What a phone needs to put the page among its apps."""
    name = metadata["name"] or metadata["variant"] or "cct_keras"
    return {
        "name": name,
        "short_name": name[:30],
        "start_url": "./",
        "display": "standalone",
        "icons": [{"src": "icon.svg", "sizes": "any", "type": "image/svg+xml"}],
    }


def _entry(path, name):
    return {"url": name, "integrity": _integrity(path / name)}


def _integrity(file):
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha384").digest()
    return f"sha384-{base64.b64encode(digest).decode()}"


def _version(page, kept):
    content = page + json.dumps(kept)
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def _write_json(file, content):
    file.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def _other_version(folder):
    """The version of another copy, if its package tells it."""
    for file in (folder / "package.json", folder.parent / "package.json"):
        try:
            version = json.loads(file.read_text(encoding="utf-8"))["version"]
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if version != RUNTIME_VERSION:
            return f", but of {str(version)[:40]}"
    return ""
