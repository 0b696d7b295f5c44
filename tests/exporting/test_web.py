"""The files of a web page; `test_browser.py` runs them."""

import base64
import hashlib
import json
import re

import pytest

from cct_keras.errors import ExportError
from cct_keras.exporting import web
from cct_keras.runtime.metadata import Metadata

HOSTILE = ("<img src=x onerror=alert(1)>", '"; alert(1) //', "</script>", "الحصان", "")


@pytest.fixture
def model(tmp_path):
    file = tmp_path / "source.onnx"
    file.write_bytes(b"not a real model")
    return file


@pytest.fixture
def runtime(tmp_path, monkeypatch):
    """A small local copy of the runtime, which counts as the right one."""
    folder = tmp_path / "node_modules" / "onnxruntime-web"
    (folder / "dist").mkdir(parents=True)
    (folder / "package.json").write_text(json.dumps({"version": web.RUNTIME_VERSION}))
    files = {}
    for part, (name, _) in web.RUNTIME_FILES.items():
        (folder / "dist" / name).write_text(part)
        files[part] = name, integrity(folder / "dist" / name)
    monkeypatch.setattr(web, "RUNTIME_FILES", files)
    return folder


def metadata(**changes):
    fields = {
        "class_names": ("cat", "dog"),
        "image_size": (32, 32),
        "channels": 3,
        "mean": (0.5,) * 3,
        "std": (0.5,) * 3,
        "name": "pets",
    }
    return Metadata(**fields | changes).to_dict()


def integrity(file):
    digest = hashlib.sha384(file.read_bytes()).digest()
    return "sha384-" + base64.b64encode(digest).decode()


def listing(site):
    """What the service worker keeps."""
    text = (site / "service-worker.js").read_text()
    return json.loads(re.match(r"const SITE = (\{.*?\n\});", text, re.DOTALL)[1])


def policy(site):
    page = (site / "index.html").read_text()
    return " ".join(re.search(r'Policy" content="([^"]*)"', page)[1].split())


def test_a_page_with_its_own_runtime_names_no_other_address(tmp_path, model, runtime):
    web.write_site(tmp_path / "site", model, metadata(), ort=runtime)
    site = tmp_path / "site"
    assert (site / "model.onnx").read_bytes() == model.read_bytes()
    assert {file.name for file in (site / web.RUNTIME_FOLDER).iterdir()} == {
        name for name, _ in web.RUNTIME_FILES.values()
    }
    assert "connect-src 'self';" in policy(site)
    for file in (path for path in site.iterdir() if path.is_file()):
        text = file.read_text().replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"\w://\w", text), file


def test_without_a_copy_the_runtime_comes_from_the_cdn_with_hashes(tmp_path, model):
    web.write_site(tmp_path / "site", model, metadata())
    site = tmp_path / "site"
    assert f"connect-src 'self' {web.CDN};" in policy(site)
    runtime = json.loads((site / "model.json").read_text())["runtime"]
    for part, (name, expected) in web.RUNTIME_FILES.items():
        assert runtime[part]["url"] == (
            f"https://cdn.jsdelivr.net/npm/onnxruntime-web@{web.RUNTIME_VERSION}"
            f"/dist/{name}"
        )
        assert runtime[part]["integrity"] == expected
    assert not (site / web.RUNTIME_FOLDER).exists()


def test_all_files_are_kept_for_offline_use_by_their_hash(tmp_path, model, runtime):
    site = tmp_path / "site"
    web.write_site(site, model, metadata(), ort=runtime)
    kept = {entry["url"]: entry.get("integrity") for entry in listing(site)["files"]}
    written = {
        str(file.relative_to(site)) for file in site.rglob("*") if file.is_file()
    }
    # The browser keeps the worker itself.
    assert kept.keys() == written - {"index.html", "service-worker.js"} | {"./"}
    for name in kept.keys() - {"./"}:
        assert kept[name] == integrity(site / name), name
    model_entry = json.loads((site / "model.json").read_text())["model"]
    assert model_entry == {"url": "model.onnx", "integrity": kept["model.onnx"]}


def test_the_service_worker_changes_with_any_file_and_only_then(tmp_path, model):
    def version(name, **changes):
        web.write_site(tmp_path / name, model, metadata(**changes))
        return listing(tmp_path / name)["version"]

    first = version("first")
    assert version("again") == first
    assert version("renamed", class_names=("cat", "cow")) != first
    model.write_bytes(b"another model")
    assert version("retrained") != first


def test_metadata_are_in_json_and_nowhere_else(tmp_path, model):
    fields = metadata(class_names=HOSTILE, name="</title><b>", license="<i>mine</i>")
    web.write_site(tmp_path / "site", model, fields)
    manifest = json.loads((tmp_path / "site" / "model.json").read_text())
    assert {name: manifest[name] for name in fields} == fields
    app = json.loads((tmp_path / "site" / "manifest.webmanifest").read_text())
    assert app["name"] == "</title><b>"
    web.write_site(tmp_path / "plain", model, metadata())
    for name in ("index.html", *web.PLAIN_FILES):
        hostile, plain = (tmp_path / site / name for site in ("site", "plain"))
        assert hostile.read_bytes() == plain.read_bytes()


def test_the_page_itself_is_small(tmp_path, model):
    web.write_site(tmp_path / "site", model, metadata())
    files = [f for f in (tmp_path / "site").iterdir() if f.name != "model.onnx"]
    assert sum(file.stat().st_size for file in files) < 60_000


@pytest.mark.parametrize("given", [".", "dist", "..", "../.."])
def test_finds_the_runtime_from_any_of_its_folders(runtime, given):
    found = web.find_runtime(runtime / given)
    assert {part: file.read_text() for part, file in found.items()} == {
        "script": "script",
        "wasm": "wasm",
    }


def test_says_that_a_folder_has_no_runtime(tmp_path):
    with pytest.raises(ExportError, match=r"no copy of onnxruntime-web; `npm install"):
        web.find_runtime(tmp_path)


def test_says_that_a_file_of_the_runtime_is_missing(runtime):
    name, _ = web.RUNTIME_FILES["wasm"]
    (runtime / "dist" / name).unlink()
    with pytest.raises(ExportError, match=f"lacks {re.escape(name)}; `npm install"):
        web.find_runtime(runtime)


def test_says_that_the_runtime_is_of_another_version(runtime):
    name, _ = web.RUNTIME_FILES["script"]
    (runtime / "dist" / name).write_text("changed")
    with pytest.raises(ExportError, match=f"not that of .* {web.RUNTIME_VERSION};"):
        web.find_runtime(runtime)
    (runtime / "package.json").write_text('{"version": "1.2.3"}')
    with pytest.raises(ExportError, match=r", but of 1\.2\.3;") as caught:
        web.find_runtime(runtime)
    assert "\n" not in str(caught.value)
