"""Published weights by name, from a real HTTP server."""

import hashlib
import io
import re
import subprocess
import sys

import google_vit
import keras
import numpy as np
import pytest
import reference
from small import images
from small import predict
from weights_server import as_bytes

import cct_keras
from cct_keras.download import download
from cct_keras.errors import DownloadError
from cct_keras.models.architecture import Architecture
from cct_keras.models.inspection import architecture_of
from cct_keras.pretrained import source as pretrained


def checkpoint(num_classes=10, positions="learnable"):
    return reference.random_state(
        tokens=64,
        num_classes=num_classes,
        num_layers=2,
        embedding_dim=128,
        mlp_ratio=1,
        kernel_size=3,
        num_conv_layers=2,
        positional_embedding=positions,
    )


CIFAR10 = "/6666059/cct2-3x2_cifar10.pth.zip"
CIFAR100 = "/6666060/cct2-3x2_cifar100.pth.zip"


def test_by_tag(server):
    state = checkpoint()
    server.files[CIFAR10] = as_bytes(state, "cct2-3x2_cifar10.pth")
    expected = cct_keras.convert(state)
    x = images(2, 32, 32, 3)
    model = cct_keras.create_model("cct_2_3x2_32", weights="cifar10_legacy")
    np.testing.assert_array_equal(predict(model, x), predict(expected, x))
    built = cct_keras.CCT(
        10,
        (32, 32, 3),
        num_layers=2,
        num_heads=2,
        mlp_ratio=1,
        embedding_dim=128,
        kernel_size=3,
        weights="cifar10_legacy",
    )
    np.testing.assert_array_equal(predict(built, x), predict(expected, x))
    assert len(server.requests) == 1, "the second comes from the cache"
    with pytest.warns(UserWarning, match="head"):
        other = cct_keras.create_model(
            "cct_2_3x2_32",
            weights="cifar10_legacy",
            num_classes=3,
            input_shape=(48, 40, 3),
        )
    assert other.output_shape == (None, 3)
    with pytest.warns(UserWarning, match="from 3 to 1 channels"):
        cct_keras.create_model(
            "cct_2_3x2_32", weights="cifar10_legacy", input_shape=(32, 32, 1)
        )


def test_a_probe_says_what_it_has_to_download(server):
    server.files[CIFAR10] = as_bytes(checkpoint(), "cct2-3x2_cifar10.pth")
    pixels = np.random.default_rng(0).integers(0, 256, (12, 8, 8, 3), "uint8")

    def lines_of_probe():
        lines = []
        cct_keras.linear_probe(
            (pixels, np.arange(12) % 2),
            "cct_2_3x2_32",
            weights="cifar10_legacy",
            penalties=(1.0,),
            verbose=True,
            log=lines.append,
        )
        return lines

    first, second = lines_of_probe(), lines_of_probe()
    assert first[0] == (
        f"weights: {server.url}{CIFAR10} has to be downloaded first, about 1 MB"
    )
    assert first[1] == second[0]
    parameters = cct_keras.create_model("cct_2_3x2_32").count_params() - 1290
    assert first[1] == (
        f"weights: cifar10_legacy, cct_2_3x2_32, {parameters:,} parameters without a "
        "head; Compact Transformers on CIFAR-10: small color images; 89.17 % top-1, "
        "the best epoch on the test images"
    )
    assert len(server.requests) == 1


def test_the_cache_keeps_full_precision(server):
    """Filled under one dtype policy, read under another."""
    state = checkpoint()
    server.files[CIFAR10] = as_bytes(state)
    keras.config.set_dtype_policy("bfloat16")
    cct_keras.create_model("cct_2_3x2_32", weights="cifar10_legacy")
    keras.config.set_dtype_policy("float32")
    model = cct_keras.create_model("cct_2_3x2_32", weights="cifar10_legacy")
    kernel = model.get_layer("head").kernel.numpy()
    np.testing.assert_array_equal(kernel, state["classifier.fc.weight"].T)


@pytest.mark.parametrize("positions", ["learnable", "sine", None])
def test_the_file_decides_classes_and_positions(server, positions):
    server.files[CIFAR100] = as_bytes(checkpoint(100, positions), "a.pth")
    model = cct_keras.create_model("cct_2_3x2_32", weights="cifar100_legacy")
    assert model.output_shape == (None, 100)
    names = [layer.name for layer in model.layers]
    if positions is None:
        assert "position_embedding" not in names
    else:
        assert model.get_layer("position_embedding").kind == positions


def test_a_local_checkpoint(tmp_path):
    state = checkpoint(7, "sine")
    path = tmp_path / "official.pth"
    path.write_bytes(as_bytes(state))
    model = cct_keras.create_model("cct_2_3x2_32", weights=path)
    expected = cct_keras.convert(state)
    x = images(2, 32, 32, 3)
    np.testing.assert_array_equal(predict(model, x), predict(expected, x))
    with pytest.raises(ValueError, match="another architecture"):
        cct_keras.create_model("cct_4_3x2_32", weights=path)
    with pytest.raises(ValueError, match=r"No such file|existing file"):
        cct_keras.create_model("cct_4_3x2_32", weights="nowhere.pth")


def test_an_interrupted_download_goes_on(server):
    content = bytes(range(256)) * 4096
    server.files["/big.bin"] = content
    server.cut = 300_000
    path = download(f"{server.url}/big.bin")
    assert path.read_bytes() == content
    (_, first), (_, second) = server.requests
    assert first is None
    assert re.fullmatch(r"bytes=\d+-", second)
    left = {p.name for p in path.parent.iterdir()}
    assert left == {"big.bin", "big.bin.sha256", ".lock"}


def test_a_complete_partial_file_is_no_dead_end(server, monkeypatch):
    """Killed between the last byte and the renaming: the server answers 416."""
    server.files["/big.bin"] = content = b"all" * 100_000
    path = download(f"{server.url}/big.bin")
    path.rename(path.with_name("big.bin.part"))
    tag = hashlib.md5(content).hexdigest()
    path.with_name("big.bin.etag").write_text(f'{server.url}/big.bin\n"{tag}"')
    assert download(f"{server.url}/big.bin").read_bytes() == content
    assert server.requests[-1] == ("/big.bin", None)


@pytest.mark.integration
def test_processes_wait_for_each_other(server):
    server.files["/big.bin"] = content = bytes(range(256)) * 40_000
    code = (
        "import sys; from cct_keras.download import download\n"
        "sys.stdout = sys.stderr\n"
        "print(download(sys.argv[1]))"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code, f"{server.url}/big.bin"],
            stderr=subprocess.DEVNULL,
        )
        for _ in range(3)
    ]
    assert [process.wait() for process in processes] == [0, 0, 0]
    assert download(f"{server.url}/big.bin").read_bytes() == content
    assert len(server.requests) == 1


def test_a_download_of_a_changed_file_starts_anew(server, monkeypatch):
    monkeypatch.setattr("cct_keras.download.ATTEMPTS", 1)
    server.files["/big.bin"] = b"old" * 100_000
    server.cut = 100_000
    with pytest.raises(DownloadError, match=r"big\.bin.*path/to/big\.bin"):
        download(f"{server.url}/big.bin")
    server.files["/big.bin"] = new = b"new!" * 100_000
    assert download(f"{server.url}/big.bin").read_bytes() == new


def test_hashes(server):
    server.files["/a.bin"] = b"one"
    with pytest.raises(DownloadError, match="SHA-256"):
        download(f"{server.url}/a.bin", sha256="0" * 64)
    path = download(f"{server.url}/a.bin")
    assert path.read_bytes() == b"one"
    path.unlink()
    server.files["/a.bin"] = b"two"
    with pytest.raises(DownloadError, match="refused"):
        download(f"{server.url}/a.bin")
    assert not path.exists()
    path.write_bytes(b"changed")
    with pytest.raises(DownloadError, match="refused"):
        download(f"{server.url}/a.bin")


def test_mirrors(server):
    server.files["/mirror/a.bin"] = b"one"
    urls = ("http://127.0.0.1:9/a.bin", f"{server.url}/gone/a.bin")
    path = download(*urls, f"{server.url}/mirror/a.bin")
    assert path.read_bytes() == b"one"


def test_offline_names_the_file_the_url_and_the_way_out(server):
    with pytest.raises(ValueError, match="cct_7_3x1_32_cifar10_300epochs.pth") as error:
        cct_keras.create_model("cct_7_3x1_32", weights="cifar10")
    assert server.url in str(error.value)
    assert "weights='path/to/" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_page_instead_of_a_checkpoint_is_not_kept(server):
    server.files[CIFAR10] = b"<html>moved</html>"
    with pytest.raises(ValueError, match="neither a PyTorch"):
        cct_keras.create_model("cct_2_3x2_32", weights="cifar10_legacy")
    with pytest.raises(ValueError, match="neither a PyTorch"):
        cct_keras.convert(server.url + CIFAR10)
    server.files[CIFAR10] = as_bytes(checkpoint())
    model = cct_keras.create_model("cct_2_3x2_32", weights="cifar10_legacy")
    assert model.output_shape == (None, 10)
    assert cct_keras.convert(server.url + CIFAR10).name == "cct_2_3x2_32"


def test_rows():
    rows = pretrained.WEIGHTS
    published = [row for row in rows if not row.is_shipped]
    assert len(published) == 90
    assert len({row.url for row in published}) == 90
    assert len(rows) == 93
    assert len({(row.variant, row.tag) for row in rows}) == 93
    assert {row.variant for row in rows} <= set(cct_keras.list_models())
    unpublished = {row.about.name for row in rows if row.top1 is None}
    assert unpublished == {"ViT of its paper", "AugReg, How to train your ViT"}
    assert all(50 < row.top1 < 100 for row in rows if row.top1 is not None)
    assert all(len(row.dataset.mean) == len(row.dataset.std) for row in rows)
    assert all(row.about.good_for and row.about.license for row in rows)
    assert cct_keras.list_weights("cct_7_3x1_32_c100")[:2] == ["cifar10", "cifar100"]
    names = cct_keras.list_models("cct_14*", pretrained=True)
    assert names == cct_keras.list_models("cct_14*")
    assert "cct_7_7x2_224" not in cct_keras.list_models(pretrained=True)
    with pytest.raises(ValueError, match=r"'imagenet'.*cifar10.*cct_14_7x2_224"):
        cct_keras.create_model("cct_7_3x1_32", weights="imagenet")


@pytest.mark.parametrize(("family", "name"), [("ViT", "vit"), ("DeiT", "deit")])
def test_one_architecture_two_families(family, name):
    """A plain DeiT has the architecture of a ViT, and weights of its own."""
    for variant in ("vit_base_patch16_224", "vit_base_patch16_384"):
        architecture = Architecture.from_variant(variant)
        row = pretrained.matching_row(architecture, "imagenet", name)
        assert row.variant == variant.replace("vit", name)


def test_an_archive_of_arrays_from_an_address(server):
    arrays = google_vit.random_arrays()
    file = io.BytesIO()
    np.savez(file, **arrays)
    server.files["/imagenet21k/ViT-X.npz"] = file.getvalue()
    model = cct_keras.convert(f"{server.url}/imagenet21k/ViT-X.npz")
    assert model.output_shape == (None, 7)


@pytest.mark.integration
def test_deit_files_are_checked_by_the_digits_of_their_names(server, monkeypatch):
    state = reference.random_vit_state(
        tokens=196,
        num_classes=1000,
        num_layers=12,
        embedding_dim=192,
        mlp_ratio=4,
        patch_size=16,
        distilled=True,
    )
    content = as_bytes(state)
    variant = "deit_tiny_distilled_patch16_224"
    server.files[f"/{variant}-b40b3cf7.pth"] = content
    with pytest.raises(DownloadError, match="expected b40b3cf7: refused"):
        cct_keras.create_model(variant, weights="imagenet")
    digits = hashlib.sha256(content).hexdigest()[:8]
    rows = [
        row._replace(sha256=digits) if row.variant == variant else row
        for row in pretrained.WEIGHTS
    ]
    monkeypatch.setattr("cct_keras.pretrained.catalog.WEIGHTS", rows)
    model = cct_keras.create_model(variant, weights="imagenet")
    expected = cct_keras.convert(state)
    x = images(1, 224, 224, 3)
    np.testing.assert_array_equal(predict(model, x), predict(expected, x))


def test_imagenet_weights_are_chosen_by_size():
    for size, variant in ((224, "cct_14_7x2_224"), (384, "cct_14_7x2_384")):
        model = cct_keras.CCT(input_shape=(size, size, 3))
        row = pretrained.matching_row(architecture_of(model), "imagenet", "cct")
        assert row.variant == variant


def test_preprocessing_and_class_names():
    x = np.full((1, 2, 2, 3), 255, "uint8")
    y = keras.ops.convert_to_numpy(cct_keras.preprocess_input(x, "cifar10_1500ep"))
    expected = (1 - np.array([0.4914, 0.4822, 0.4465])) / [0.2470, 0.2435, 0.2616]
    np.testing.assert_allclose(y[0, 0, 0], expected, rtol=1e-5)
    with pytest.raises(ValueError, match="'svhn'"):
        cct_keras.preprocess_input(x, "svhn")


@pytest.mark.filterwarnings("ignore")
def test_class_names():
    assert cct_keras.class_names("cifar10")[:3] == ["airplane", "automobile", "bird"]
    sizes = {"cifar100_legacy": 100, "flowers102": 102, "imagenet": 1000}
    for tag, number in sizes.items():
        assert len(set(cct_keras.class_names(tag))) == number
