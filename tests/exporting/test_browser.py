"""The page of an exported model in a real Chromium, compared with Keras.

`.ci/run` installs what these tests need: Chromium, the Python package `playwright`,
which drives it, and a copy of onnxruntime-web that `CCT_KERAS_ORT` points to.
"""

import base64
import dataclasses
import functools
import http.server
import json
import os
import pathlib
import shutil
import threading

import numpy as np
import pytest
from PIL import Image
from small import small_model

import cct_keras
from cct_keras.exporting import web
from cct_keras.runtime.image_files import read_image
from cct_keras.runtime.metadata import Metadata
from cct_keras.runtime.resize import central_crop_resize

pytestmark = pytest.mark.browser

CHROMIUM = os.environ.get("CCT_KERAS_CHROMIUM", "/usr/bin/chromium")
ORT = os.environ.get("CCT_KERAS_ORT")
SAMPLES = pathlib.Path(__file__).parents[1] / "samples"
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # A camera that shows a clock, and nobody to ask for it.
    "--use-fake-device-for-media-stream",
    "--use-fake-ui-for-media-stream",
    # Nothing is found but this machine.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]
HOSTILE = ("<img src=x onerror=alert(1)>", "</li><script>alert(1)</script>", "a & b")
# Of a probability. Measured are 1e-6: the pixels are the same, also those of a JPEG
# file, as long as Chromium and Pillow decode it with the same library.
TOLERANCE = 1e-3


# === Server, browser, pages ===


class Server:
    """Serves a folder on this machine."""

    def __init__(self, folder, headers=()):
        class Handler(http.server.SimpleHTTPRequestHandler):
            def log_message(self, *arguments):
                pass

            def end_headers(self):
                for name, value in headers:
                    self.send_header(name, value)
                super().end_headers()

        self._server = http.server.ThreadingHTTPServer(
            ("127.0.0.1", 0), functools.partial(Handler, directory=folder)
        )
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self):
        self._server.shutdown()
        self._server.server_close()


class Page:
    """An open page; at its end nothing unexpected may have happened."""

    def __init__(self, context, address, ready=True):
        self.address, self.troubles, self.requests = address, [], []
        context.on("request", lambda request: self.requests.append(request.url))
        context.on("console", self._note)
        context.on("weberror", lambda error: self.troubles.append(str(error.error)))
        self.context, self.page = context, context.new_page()
        self.page.goto(address)
        if ready:
            self.wait_for("Ready.")

    def _note(self, message):
        if message.type in ("error", "warning"):
            self.troubles.append(message.text)

    def wait_for(self, text):
        from playwright.sync_api import expect

        expect(self.page.locator("#status")).to_contain_text(text, timeout=120_000)

    def wait_until_kept(self):
        self.page.wait_for_selector("#offline", timeout=60_000)

    def classify(self, files):
        """The results of picture files, as the page saves them."""
        self.page.set_input_files("#files", files)
        self.wait_for(" classified" if len(files) > 1 else f"{files[0].name}: ")
        return self.saved()["pictures"]

    def saved(self):
        with self.page.expect_download() as download:
            self.page.click("#save")
        return json.loads(pathlib.Path(download.value.path()).read_text())

    def close(self):
        self.context.close()
        assert self.troubles == []
        assert [url for url in self.requests if not url.startswith(self.allowed)] == []

    @property
    def allowed(self):
        return (self.address, "blob:")


@pytest.fixture(scope="module")
def ort():
    if not ORT:
        pytest.skip("needs CCT_KERAS_ORT, a copy of onnxruntime-web, and Chromium")
    return pathlib.Path(ORT)


@pytest.fixture(scope="module")
def browser(ort):
    # No reason to skip: who has set CCT_KERAS_ORT wants these tests.
    from playwright import sync_api as api

    # Also tells what the service worker asks for.
    os.environ["PW_EXPERIMENTAL_SERVICE_WORKER_NETWORK_EVENTS"] = "1"
    with api.sync_playwright() as driver:
        # Playwright makes a fresh profile, and removes it.
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("root")


@pytest.fixture(scope="module")
def server(root):
    server = Server(root)
    yield server
    server.stop()


@pytest.fixture
def open_page(browser, server, root):
    """Opens the page in a folder in the root, in a context of its own."""
    pages = []

    def open_page(site, **options):
        address = f"{server.address}/{site.relative_to(root)}/"
        pages.append(Page(browser.new_context(), address, **options))
        return pages[-1]

    yield open_page
    for page in pages:
        page.close()


def write(root, ort, name, model, **settings):
    # In a folder in the root: pages must work at any address.
    (root / "pages").mkdir(exist_ok=True)
    site = root / "pages" / name
    cct_keras.export(model, site, format="web", ort=ort, **settings)
    return site


@pytest.fixture(scope="module")
def cifar_site(root, ort):
    return write(root, ort, "cifar10", "cct_2_3x2_32.cifar10_jpeg")


@pytest.fixture(scope="module")
def mnist_site(root, ort):
    return write(root, ort, "mnist", "cct_2_3x2_32.mnist")


def samples(name):
    return sorted((SAMPLES / name).glob("*/*.png"))


def metadata_of(site):
    return Metadata.from_json((site / "model.json").read_text(), str(site))


def expected(model, files, metadata):
    """Probabilities of Keras for picture files, prepared by Pillow."""
    pixels = [
        central_crop_resize(
            read_image(file, metadata.channels),
            metadata.image_size,
            metadata.crop,
            interpolation=metadata.interpolation,
        )
        for file in files
    ]
    return model.predict(np.stack(pixels).astype("float32"), verbose=0)


def probabilities(results):
    return np.array([result["probabilities"] for result in results])


# === The same answers as Keras ===


@pytest.mark.parametrize("data", ["cifar10_jpeg", "mnist"])
def test_sample_pictures_as_keras(data, request, open_page):
    site = request.getfixturevalue(f"{data.removesuffix('10_jpeg')}_site")
    files = samples(data)
    assert len(files) == 200
    results = open_page(site).classify(files)
    assert [result["name"] for result in results] == [file.name for file in files]
    model = cct_keras.load_classifier(f"cct_2_3x2_32.{data}")
    reference = expected(model, files, metadata_of(site))
    difference = np.abs(probabilities(results) - reference).max()
    assert difference < TOLERANCE
    maps = np.array([result["map"] for result in results])
    np.testing.assert_allclose(maps.sum(axis=1), 1, atol=1e-5)


def odd_pictures(folder):
    """Pictures that are easily read in a wrong way."""
    from PIL import ImageCms
    from PIL import PngImagePlugin
    from sklearn.datasets import load_sample_image

    photo = Image.fromarray(load_sample_image("china.jpg"))
    files = []

    def save(image, name, **options):
        image.save(folder / name, **options)
        files.append(folder / name)

    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = orientation
        save(photo, f"turned-{orientation}.jpg", exif=exif)
    large = photo.resize((4800, 3203), Image.Resampling.BICUBIC)
    save(large, "large.jpg", quality=90)
    save(photo.convert("L"), "gray.jpg")
    # In the size of the model: no resizing evens out what a decoder rounds.
    save(photo.resize((32, 32)), "exact.jpg", quality=75, subsampling="4:2:0")
    save(photo, "photo.webp", quality=80)
    save(photo, "photo.png")
    save(photo.crop((0, 0, 640, 50)), "wide.png")
    save(photo.resize((3, 2)), "tiny.png")
    save(photo.quantize(17), "palette.png")
    save(photo.convert("1"), "bits.png")
    save(photo, "photo.bmp")
    # Other colors by a profile, here with red and green exchanged, or by a gamma: the
    # numbers in the file count, as they do for Pillow.
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    for old, new in ((b"rXYZ", b"...."), (b"gXYZ", b"rXYZ"), (b"....", b"gXYZ")):
        profile = profile.replace(old, new)
    save(photo, "profile.png", icc_profile=profile)
    save(photo, "profile.jpg", icc_profile=profile)
    gamma = PngImagePlugin.PngInfo()
    gamma.add(b"gAMA", (100_000).to_bytes(4, "big"))
    save(photo, "gamma.png", pnginfo=gamma)
    alpha = Image.radial_gradient("L").resize(photo.size)
    transparent = photo.copy()
    transparent.putalpha(alpha)
    save(transparent, "transparent.png")
    save(transparent.resize((32, 32)), "exact-transparent.png")
    stencil = photo.copy()
    stencil.putalpha(alpha.point(lambda value: 255 * (value > 127)))
    save(stencil, "stencil.png")
    save(photo.quantize(9), "palette-hole.gif", transparency=3)
    return files


@pytest.mark.parametrize("data", ["cifar10_jpeg", "mnist"])
def test_odd_pictures_as_keras(data, request, open_page, tmp_path):
    site = request.getfixturevalue(f"{data.removesuffix('10_jpeg')}_site")
    files = odd_pictures(tmp_path)
    results = open_page(site).classify(files)
    model = cct_keras.load_classifier(f"cct_2_3x2_32.{data}")
    reference = expected(model, files, metadata_of(site))
    differences = np.abs(probabilities(results) - reference).max(axis=1)
    names = [file.name for file in files]
    wrong = {n: d for n, d in zip(names, differences, strict=True) if d > TOLERANCE}
    assert wrong == {}


@pytest.mark.parametrize(
    ("settings", "tolerance"),
    [
        ({"layout": "nchw", "input_dtype": "uint8", "logits": True}, TOLERANCE),
        ({"batch": 3, "layout": "nchw", "maps": False}, TOLERANCE),
        ({"batch": 2, "logits": True, "input_dtype": "uint8"}, TOLERANCE),
        # What half precision may differ by in any runtime.
        ({"precision": "float16"}, 1e-2),
    ],
)
def test_settings_of_an_export(root, ort, open_page, settings, tolerance):
    name = "-".join(f"{key}-{value}" for key, value in settings.items())
    tag = "cct_2_3x2_32.cifar10_jpeg"
    site = write(root, ort, name, tag, **settings)
    files = samples("cifar10_jpeg")[::20]
    results = open_page(site).classify(files)
    reference = expected(cct_keras.load_classifier(tag), files, metadata_of(site))
    assert np.abs(probabilities(results) - reference).max() < tolerance
    if settings.get("maps") is False:
        assert all(result["map"] is None for result in results)
    else:
        maps = np.array([result["map"] for result in results])
        assert np.abs(maps.sum(axis=1) - 1).max() < (1e-2 if tolerance > 1e-3 else 1e-5)


def test_int8(root, ort, open_page):
    tag, folder = "cct_2_3x2_32.cifar10_jpeg", SAMPLES / "cifar10_jpeg"
    site = write(root, ort, "int8", tag, precision="int8", data=str(folder))
    files = samples("cifar10_jpeg")[::4]
    results = open_page(site).classify(files)
    # int8 is less exact by itself; the browser must compute what Python computes.
    from cct_keras.runtime import Classifier

    reference = Classifier(site / "model.onnx")(files)
    # A value at the border between two steps may fall on either side.
    assert np.abs(probabilities(results) - reference).max() < 0.05


@pytest.mark.parametrize("shape", [(16, 24, 3), (20, 12, 1)])
def test_other_sizes_crops_and_filters(root, ort, open_page, shape, tmp_path):
    *size, channels = shape
    model = small_model("CCT", input_shape=shape, classifier_activation="softmax")
    for weights in model.trainable_weights:
        # Strong enough that single pixels show in the probabilities.
        weights.assign(3 * weights)
    statistics = {"mean": (0.5,) * channels, "std": (0.25,) * channels}
    exported = write(root, ort, f"rows-{size[0]}", model, **statistics)
    files = []
    for index, sides in enumerate([(40, 31), (100, 7), (9, 150), size, (333, 500)]):
        pixels = np.random.default_rng(index).integers(0, 256, (*sides, 3), "uint8")
        files.append(tmp_path / f"{index}.png")
        Image.fromarray(pixels).save(files[-1])
    for interpolation in ("bicubic", "bilinear", "nearest"):
        # The graph does not depend on how pictures are prepared.
        prepare = {"crop": 0.83, "interpolation": interpolation}
        metadata = dataclasses.replace(metadata_of(exported), **prepare)
        site = root / "pages" / f"{exported.name}-{interpolation}"
        web.write_site(site, exported / "model.onnx", metadata.to_dict(), ort=ort)
        results = open_page(site).classify(files)
        pixels = [
            central_crop_resize(read_image(file, channels), size, **prepare)
            for file in files
        ]
        images = (np.stack(pixels).astype("float32") / 255 - 0.5) / 0.25
        reference = model.predict(images, verbose=0)
        assert np.abs(probabilities(results) - reference).max() < TOLERANCE
        assert reference.std(axis=0).max() > 10 * TOLERANCE


PREPARE = """
async ([address, bytes, height, width, settings]) => {
  const { prepare } = await import(address);
  const pixels = Uint8Array.from(atob(bytes), (letter) => letter.charCodeAt(0));
  const read = (top, left, rows, columns) => {
    const part = new Uint8ClampedArray(4 * rows * columns);
    for (let y = 0; y < rows; y++) {
      for (let x = 0; x < columns; x++) {
        const at = 3 * ((top + y) * width + left + x);
        part.set([...pixels.slice(at, at + 3), 255], 4 * (y * columns + x));
      }
    }
    return part;
  };
  return [...prepare({ height, width, read }, settings).pixels];
}
"""


@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear", "nearest"])
@pytest.mark.parametrize("channels", [1, 3])
def test_pixels_are_those_of_pillow(cifar_site, open_page, interpolation, channels):
    page = open_page(cifar_site)
    generator = np.random.default_rng(0)
    for _ in range(40):
        height, width = (int(side) for side in generator.integers(1, 130, 2))
        height += 500 * int(generator.random() < 0.1)  # More than a strip of rows.
        size = [int(side) for side in generator.integers(1, 60, 2)]
        crop = float(generator.choice([1.0, 0.875, 0.9, generator.uniform(0.1, 1)]))
        image = generator.integers(0, 256, (height, width, 3), "uint8")
        if generator.random() < 0.3:
            image = np.where(image > 127, np.uint8(255), np.uint8(0))
        settings = {
            "image_size": size,
            "channels": channels,
            "crop": crop,
            "interpolation": interpolation,
        }
        found = page.page.evaluate(
            PREPARE,
            [
                f"{page.address}pixels.js",
                base64.b64encode(image.tobytes()).decode(),
                height,
                width,
                settings,
            ],
        )
        if channels == 1:
            image = np.asarray(Image.fromarray(image).convert("L"))[..., None]
        prepared = central_crop_resize(image, size, crop, interpolation=interpolation)
        np.testing.assert_array_equal(
            np.reshape(found, prepared.shape), prepared, err_msg=str(settings)
        )


# === What the page does ===


def test_the_page_of_the_smallest_model_is_small(cifar_site):
    own = [file for file in cifar_site.iterdir() if file.is_file()]
    assert sum(file.stat().st_size for file in own) < 1_300_000


def test_works_after_the_server_is_gone(browser, cifar_site):
    server = Server(cifar_site.parent)
    page = Page(browser.new_context(), f"{server.address}/{cifar_site.name}/")
    page.wait_until_kept()
    server.stop()
    for address in ("", "index.html", "?again"):
        page.page.goto(page.address + address)
        page.wait_for("Ready.")
    files = samples("cifar10_jpeg")[:3]
    assert len(page.classify(files)) == 3
    page.close()


def test_uses_threads_where_the_server_isolates_the_page(browser, cifar_site):
    headers = [
        ("Cross-Origin-Opener-Policy", "same-origin"),
        ("Cross-Origin-Embedder-Policy", "require-corp"),
    ]
    server = Server(cifar_site.parent, headers)
    page = Page(browser.new_context(), f"{server.address}/{cifar_site.name}/")
    assert page.page.evaluate("crossOriginIsolated")
    if os.cpu_count() > 1:
        assert page.page.workers
    files = samples("cifar10_jpeg")[:3]
    model = cct_keras.load_classifier("cct_2_3x2_32.cifar10_jpeg")
    reference = expected(model, files, metadata_of(cifar_site))
    assert np.abs(probabilities(page.classify(files)) - reference).max() < TOLERANCE
    page.close()
    server.stop()


def test_takes_a_new_version_of_the_page(root, ort, cifar_site, open_page):
    site = root / "pages" / "changing"
    shutil.copytree(cifar_site, site)
    page = open_page(site)
    page.wait_until_kept()
    metadata = dataclasses.replace(metadata_of(site), name="renamed")
    shutil.rmtree(site)
    web.write_site(site, cifar_site / "model.onnx", metadata.to_dict(), ort=ort)
    page.page.reload()
    page.wait_for("There is a new version of this page")
    page.page.reload()
    page.wait_for("Ready.")
    assert page.page.text_content("h1") == "renamed"


def serve_cdn(context, ort, change=lambda content: content):
    files = {file.name: file for file in web.find_runtime(ort).values()}

    def answer(route):
        name = route.request.url.rsplit("/", 1)[1]
        route.fulfill(
            body=change(files[name].read_bytes()),
            headers={"Access-Control-Allow-Origin": "*"},
        )

    context.route(f"{web.CDN}/**", answer)


@pytest.fixture(scope="module")
def cdn_site(root, cifar_site):
    site = root / "pages" / "cdn"
    metadata = metadata_of(cifar_site).to_dict()
    web.write_site(site, cifar_site / "model.onnx", metadata)
    return site


def test_runs_on_the_files_of_the_cdn(browser, server, root, cdn_site, ort):
    context = browser.new_context()
    serve_cdn(context, ort)
    page = Page(context, f"{server.address}/{cdn_site.relative_to(root)}/")
    page.wait_until_kept()
    [result] = page.classify(samples("cifar10_jpeg")[:1])
    assert sum(result["probabilities"]) == pytest.approx(1)
    elsewhere = {url for url in page.requests if not url.startswith(page.allowed)}
    assert elsewhere == {
        f"{web.CDN}/npm/{web.RUNTIME_FOLDER}/dist/{name}"
        for name, _ in web.RUNTIME_FILES.values()
    }
    # Those are kept, too.
    context.unroute_all()
    page.page.reload()
    page.wait_for("Ready.")
    assert page.troubles == []
    context.close()


def test_refuses_a_runtime_that_was_changed(browser, server, root, cdn_site, ort):
    context = browser.new_context()
    serve_cdn(context, ort, change=lambda content: content + b" ")
    address = f"{server.address}/{cdn_site.relative_to(root)}/"
    page = Page(context, address, ready=False)
    page.wait_for("is not the file that belongs here")
    context.close()


def test_names_are_shown_as_text_and_without_seqpool_there_is_no_map(
    root, ort, open_page, tmp_path
):
    site = write(
        root,
        ort,
        "hostile",
        small_model("ViTLite", num_classes=3),
        class_names=HOSTILE,
        license="<b>none</b>",
        mean=(0.5,) * 3,
        std=(0.5,) * 3,
    )
    page = open_page(site)
    file = tmp_path / "<u>picture.png"
    Image.new("RGB", (40, 40), "red").save(file)
    [result] = page.classify([file])
    assert result["map"] is None
    tab = page.page
    assert sorted(tab.locator(".bars .name").all_text_contents()) == sorted(HOSTILE)
    assert tab.text_content(".card h2") == file.name
    assert "<b>none</b>" in tab.text_content("#license")
    tab.click("#classes summary")
    tab.locator("#classes li").first.wait_for()
    assert tab.locator("#classes li").all_text_contents() == list(HOSTILE)
    assert tab.locator("main :is(img, script, u, b)").count() == 0
    assert tab.locator(".map").count() == 0
    assert not tab.is_visible("#map-choice")


def test_pictures_that_come_before_the_model(cifar_site, open_page):
    files = samples("cifar10_jpeg")[:3]
    page = open_page(cifar_site, ready=False)
    page.page.set_input_files("#files", files)
    page.wait_for("3 pictures classified")
    names = [picture["name"] for picture in page.saved()["pictures"]]
    assert names == [file.name for file in files]


def test_says_in_one_line_what_is_no_picture(cifar_site, open_page, tmp_path):
    (tmp_path / "notes.txt").write_text("no picture")
    (tmp_path / "broken.png").write_bytes(samples("cifar10_jpeg")[0].read_bytes()[:60])
    page = open_page(cifar_site)
    files = [tmp_path / "notes.txt", tmp_path / "broken.png"]
    results = page.classify([*files, samples("cifar10_jpeg")[0]])
    assert ["error" in result for result in results] == [True, True, False]
    errors = page.page.locator(".card .wrong").all_text_contents()
    assert errors == ["Not a picture that this browser can read."] * 2
    page.wait_for("1 picture classified")
    page.wait_for("2 could not be read")


def test_the_map_lies_over_what_the_model_saw(cifar_site, open_page, tmp_path):
    Image.new("RGB", (300, 200), "red").save(tmp_path / "wide.png")
    page = open_page(cifar_site)
    page.classify([tmp_path / "wide.png"])
    picture = page.page.locator(".picture canvas").first.bounding_box()
    map_box = page.page.locator(".map").bounding_box()
    assert map_box["x"] - picture["x"] == pytest.approx(picture["width"] / 6, abs=1)
    assert map_box["width"] == pytest.approx(picture["height"], abs=1)
    assert map_box["height"] == pytest.approx(picture["height"], abs=1)
    assert "looks mostly at the" in page.page.locator(".map").get_attribute(
        "aria-label"
    )


def test_pictures_are_dropped_and_pasted(cifar_site, open_page):
    page = open_page(cifar_site)
    content = base64.b64encode(samples("cifar10_jpeg")[0].read_bytes()).decode()
    give = """
    ([kind, name, content]) => {
      const bytes = Uint8Array.from(atob(content), (letter) => letter.charCodeAt(0));
      const data = new DataTransfer();
      data.items.add(new File([bytes], name, { type: "image/png" }));
      const event = kind === "drop"
        ? new DragEvent(kind, { dataTransfer: data, bubbles: true, cancelable: true })
        : new ClipboardEvent(kind, { clipboardData: data, bubbles: true });
      document.body.dispatchEvent(event);
    }
    """
    for kind in ("drop", "paste"):
        page.page.evaluate(give, [kind, f"{kind}.png", content])
        page.wait_for(f"{kind}.png: ")
    # The latest one comes first.
    names = page.page.locator(".card h2").all_text_contents()
    assert names == ["paste.png", "drop.png"]
    first, second = probabilities(page.saved()["pictures"])
    np.testing.assert_array_equal(first, second)


def test_the_camera_takes_pictures(cifar_site, open_page):
    page = open_page(cifar_site)
    tab = page.page
    tab.click("#camera-start")
    tab.wait_for_selector("#camera")
    # The button has the focus.
    tab.keyboard.press("Enter")
    page.wait_for("camera 1: ")
    tab.click("#camera-stop")
    assert not tab.is_visible("#camera")
    assert tab.evaluate("document.getElementById('video').srcObject") is None
    [result] = page.saved()["pictures"]
    assert result["name"] == "camera 1"


def test_everything_is_reached_by_the_keyboard(cifar_site, open_page):
    page = open_page(cifar_site)
    tab = page.page
    page.classify(samples("cifar10_jpeg")[:2])
    tab.evaluate("document.activeElement.blur()")
    reached = []
    for _ in range(7):
        tab.keyboard.press("Tab")
        reached.append(
            tab.evaluate(
                "document.activeElement.id || document.activeElement.parentElement.id"
            )
        )
    expected_order = ["files", "camera-start", "show-maps", "save", "clear", "classes"]
    start = reached.index("files")
    assert reached[start : start + 6] == expected_order[: len(reached) - start]
    assert tab.get_by_role("button", name="Choose pictures").count() == 1
    assert tab.get_by_role("status").text_content().startswith("2 pictures classified")
    tab.focus("#show-maps")
    tab.keyboard.press("Space")
    assert tab.evaluate("document.body.classList.contains('without-maps')")
    tab.focus("#clear")
    tab.keyboard.press("Enter")
    assert tab.locator(".card").count() == 0
    assert tab.evaluate("document.activeElement.id") == "files"


def test_says_what_to_do_when_opened_as_a_file(browser, cifar_site):
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{cifar_site.as_uri()}/index.html")
    page.wait_for_selector("#trouble", timeout=10_000)
    assert "python -m http.server" in page.text_content("#trouble")
    context.close()


def test_others_use_the_classifier_in_their_page(cifar_site, open_page):
    page = open_page(cifar_site)
    answer = page.page.evaluate(
        """
        async (address) => {
          const { loadClassifier } = await import(address);
          const classifier = await loadClassifier();
          const answer = await classifier.classify(new ImageData(50, 40));
          const { probabilities, map, milliseconds } = answer;
          return [probabilities.length, map.length, milliseconds > 0];
        }
        """,
        f"{page.address}classifier.js",
    )
    rows, columns = metadata_of(cifar_site).maps
    assert answer == [10, rows * columns, True]
