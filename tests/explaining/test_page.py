"""Pages, pictures and figures of an explanation: complete, escaped, to scale."""

import base64
import io

import keras
import matplotlib
import numpy as np
import pytest
from pages import assert_nothing_outside
from pages import read_page
from PIL import Image
from raw_model import photo
from raw_model import raw_model

import cct_keras

HOSTILE = "<script>alert('x')</script>$\\frac{\" onload=\"y"
NAMES = ("cat", HOSTILE, "dog", "elk", "fox & <b>hen</b>")


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(0)
    return raw_model(class_names=NAMES)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Photographs of equal and of hostile names, and a file that is none."""
    folder = tmp_path_factory.mktemp("photos")
    for place in ("a", "b"):
        (folder / place).mkdir()
        Image.fromarray(photo(seed=ord(place))).save(folder / place / "same.png")
    Image.fromarray(photo(64, 40)).save(folder / "a" / "<img src=x onerror=y>.png")
    Image.fromarray(photo(20, 20)).save(folder / "a" / "SAME.jpg")
    (folder / "b" / "broken <i>.png").write_text("no picture")
    return folder


@pytest.fixture(scope="module")
def saved(model, folder):
    """Written beside the photographs themselves."""
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    explanation = cct_keras.explain(model, folder, "attention", 1, verbose=False)
    return explanation, explanation.save(folder / "a"), before


def pixels_of(address):
    head, data = address.split(",")
    assert head in ("data:image/png;base64", "data:image/jpeg;base64")
    content = base64.b64decode(data, validate=True)
    return np.asarray(Image.open(io.BytesIO(content)).convert("RGB"))


def viridis(values):
    return np.rint(255 * matplotlib.colormaps["viridis"](values)[..., :3])


# === The page ===


def test_the_page_is_whole(saved):
    explanation, path, _ = saved
    page = read_page(path)
    assert path.name == "index.html"
    assert_nothing_outside(page)
    assert [tag for tag, _ in page.tags].count("script") == 1
    cards = [a for tag, a in page.tags if a.get("class") == "card"]
    assert len(cards) == len(explanation) == 4


def test_names_are_escaped_and_whole(saved):
    explanation, path, _ = saved
    page = read_page(path)
    for name in explanation.names:
        assert name in page.text
    assert HOSTILE in page.text
    assert "broken <i>.png" in page.text
    tags = {tag for tag, _ in page.tags}
    assert not {"b", "i"} & tags
    assert all("<" not in name for _, a in page.tags for name in a)


def test_the_target_is_named_with_its_probability(saved):
    explanation, path, _ = saved
    text = read_page(path).text
    for row in explanation.probabilities:
        assert f"{HOSTILE}{100 * row[1]:.1f} %" in text


def test_the_page_tells_whether_a_map_belongs_to_a_class(saved, model, tmp_path):
    _, path, _ = saved
    assert "The map is the same for all classes" in read_page(path).text
    found = cct_keras.explain(model, photo(20, 20), "gradient", 1, verbose=False)
    page = read_page(found.save(tmp_path))
    assert "The map is that of the class in bold letters" in page.text
    assert len([a for _, a in page.tags if a.get("class") == "target"]) == 1


def test_colors_and_numbers_of_the_legend(saved):
    """A card shows its own map: highest values in the last color of the legend."""
    explanation, path, _ = saved
    page = read_page(path)
    shown = [a for tag, a in page.tags if tag == "img" and a.get("class") == "map"]
    for attributes, tokens in zip(shown, explanation.token_maps, strict=True):
        pixels = pixels_of(attributes["src"])
        expected = viridis(np.rint(255 * tokens / tokens.max()).astype(int))
        np.testing.assert_array_equal(pixels, expected)
        assert f"{tokens.max():.3g}" in page.text


def test_a_map_lies_over_the_part_that_is_seen(saved):
    explanation, path, _ = saved
    shown = [a for _, a in read_page(path).tags if a.get("class") == "map"]
    styles = [attributes["style"] for attributes in shown]
    wide = "left:18.750%;top:0.000%;width:62.500%;height:100.000%"
    high = "left:0.000%;top:18.750%;width:100.000%;height:62.500%"
    whole = "left:0.000%;top:0.000%;width:100.000%;height:100.000%"
    expected = {(40, 64): wide, (64, 40): high, (20, 20): whole}
    assert styles == [expected[picture.size] for picture in explanation.pictures]


# === Files ===


def test_a_picture_for_each_and_no_photograph_is_touched(saved, folder):
    """Also names that differ by their case or their folder only."""
    explanation, _, before = saved
    for path, content in before.items():
        assert path.read_bytes() == content
    new = {path.name for path in folder.rglob("*") if path.is_file()}
    new -= {path.name for path in before}
    pictures = {name for name in new if name.endswith(".map.png")}
    assert new - pictures == {"index.html", "maps.npz"}
    assert len(pictures) == len(explanation)
    assert len({name.lower() for name in pictures}) == len(pictures)
    assert not any(set(name) & set('<>:"/\\|?*') for name in pictures)
    for name in pictures:
        with Image.open(folder / "a" / name) as image:
            assert image.mode == "RGB"
            assert image.height >= 192


@pytest.mark.parametrize("size", [(3, 640), (640, 3), (1, 1), (50, 500)])
def test_oblong_pictures_stay_within_a_screen(size, model, tmp_path):
    found = cct_keras.explain(model, photo(*size), "attention", verbose=False)
    found.save(tmp_path)
    with Image.open(tmp_path / "image 0.map.png") as image:
        assert 32 <= image.height <= 1280
        assert image.width <= 2 * 1280 + 100


def test_numbers(saved):
    explanation, page, _ = saved
    stored = np.load(page.parent / "maps.npz")
    np.testing.assert_array_equal(stored["token_maps"], explanation.token_maps)
    np.testing.assert_array_equal(stored["attention_maps"], explanation.attention_maps)
    np.testing.assert_array_equal(stored["probabilities"], explanation.probabilities)
    np.testing.assert_array_equal(stored["targets"], explanation.targets)
    assert list(stored["names"]) == explanation.names
    assert tuple(stored["class_names"]) == NAMES
    assert stored["method"] == "attention"


def test_saving_again_writes_the_same(saved, folder, model, tmp_path):
    explanation, page, _ = saved
    again = explanation.save(tmp_path / "new" / "folder")
    assert again.read_text("utf-8") == page.read_text("utf-8")
    files = {path.name for path in again.parent.iterdir()}
    assert files == {f.name for f in page.parent.iterdir()} - {
        "same.png",
        "SAME.jpg",
        "<img src=x onerror=y>.png",
    }


def test_maps_of_different_sizes_are_numbers_too(tmp_path):
    from small import images
    from small import small_model

    model = small_model("CCT", input_shape=(None, None, 3), positional_embedding=None)
    pictures = [images(16, 16, 3), images(24, 16, 3)]
    explanation = cct_keras.explain(model, pictures, "rollout", verbose=False)
    explanation.save(tmp_path)
    stored = np.load(tmp_path / "maps.npz")
    found = [stored[name] for name in stored.files if stored[name].ndim == 2]
    shapes = {array.shape for array in found}
    assert {(4, 4), (6, 4)} <= shapes


def test_names_that_are_not_unicode(model, tmp_path):
    """As Linux has them in old folders."""
    picture = tmp_path / "in" / "caf\udce9.png"
    picture.parent.mkdir()
    Image.fromarray(photo()).save(tmp_path / "in" / "a.png")
    (tmp_path / "in" / "a.png").rename(picture)
    explanation = cct_keras.explain(model, picture, "rollout", verbose=False)
    page = explanation.save(tmp_path / "out")
    assert "\\udce9" in read_page(page).text
    assert len(list(page.parent.glob("*.map.png"))) == 1


# === Figures ===


def images_of(figure):
    """What is drawn in each of the axes that show a picture."""
    arrays = [axes.images[0].get_array() for axes in figure.axes if axes.images]
    return [np.asarray(array) for array in arrays]


@pytest.fixture(scope="module")
def explanation(model):
    pictures = [photo(40, 64), photo(20, 20, seed=1)]
    return cct_keras.explain(model, pictures, "attention", 1, verbose=False)


def test_full_strength_shows_the_colors_alone(explanation):
    _, first, _, second = images_of(explanation.plot(strength=1))
    for drawn, tokens, box in (
        (first, explanation.token_maps[0], (0, 12, 40, 52)),
        (second, explanation.token_maps[1], (0, 0, 20, 20)),
    ):
        colors = viridis(np.rint(255 * tokens / tokens.max()).astype(int))
        side = (box[2] - box[0]) // 4
        expected = colors.repeat(side, axis=0).repeat(side, axis=1)
        top, left, bottom, right = box
        np.testing.assert_array_equal(drawn[top:bottom, left:right], expected)


def test_no_strength_shows_the_gray_picture(explanation):
    _, first, _, second = images_of(explanation.plot(strength=0))
    gray = np.rint(photo(20, 20, seed=1).mean(axis=-1, dtype="float32"))
    for channel in range(3):
        np.testing.assert_array_equal(second[..., channel], gray)
    gray = np.rint(photo(40, 64).mean(axis=-1, dtype="float32"))[:, 12:52]
    np.testing.assert_array_equal(first[:, 12:52, 0], gray)
    # What the model does not see is paler.
    outside = photo(40, 64).mean(axis=-1)[:, :12]
    assert (first[:, :12, 0] >= np.floor(outside)).all()
    assert first[:, :12, 0].mean() > outside.mean() + 20


def test_numbers_beside_the_colors_are_the_range_of_the_map(explanation):
    figure = explanation.plot()
    bars = [axes for axes in figure.axes if axes.get_label() == "<colorbar>"]
    bars = bars or [axes for axes in figure.axes if not axes.images and axes.axison]
    assert len(bars) == 2
    for axes, tokens in zip(bars, explanation.token_maps, strict=True):
        texts = [label.get_text() for label in axes.get_yticklabels()]
        assert texts[0] == "0"
        assert texts[-1] == f"{tokens.max():.3g}"
        assert axes.get_ylim() == pytest.approx((0, tokens.max()))


def test_signed_maps_have_0_in_the_middle(model):
    found = cct_keras.explain(model, photo(20, 20), "occlusion", 1, verbose=False)
    tokens = found.token_maps[0]
    _, drawn = images_of(found.plot(strength=1))
    largest = np.abs(tokens).max()
    shares = np.rint(255 * (tokens + largest) / (2 * largest)).astype(int)
    colors = np.rint(255 * matplotlib.colormaps["PuOr_r"](shares)[..., :3])
    expected = colors.repeat(5, axis=0).repeat(5, axis=1)
    np.testing.assert_array_equal(drawn, expected)


def test_a_figure_of_many_pictures_shows_some(model):
    pictures = [photo(16, 16, seed=seed) for seed in range(5)]
    found = cct_keras.explain(model, pictures, "rollout", verbose=False)
    assert len(images_of(found.plot(most=4))) == 8
    assert found.method in found.plot(most=1).get_suptitle()


def test_heads_side_by_side(explanation):
    """The picture, then every head of every block, on one scale a block."""
    drawn = images_of(explanation.plot_heads(1, strength=1))
    assert len(drawn) == 1 + 2 * 2
    np.testing.assert_array_equal(drawn[0], photo(20, 20, seed=1))
    maps = explanation.attention_maps[1]
    for place in range(4):
        block, head = divmod(place, 2)
        shares = np.rint(255 * maps[block, head] / maps[block].max()).astype(int)
        expected = viridis(shares).repeat(5, axis=0).repeat(5, axis=1)
        np.testing.assert_array_equal(drawn[1 + place], expected)


def test_figures_need_no_window(explanation, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    assert explanation.plot().axes
