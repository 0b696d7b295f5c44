"""The model card: what a person has to know before using somebody's weights."""

import dataclasses
import shlex
from collections.abc import Mapping

from cct_keras.errors import one_line
from cct_keras.hub import is_hub
from cct_keras.hub import parse_address
from cct_keras.inference.metrics import wilson_interval
from cct_keras.models.architecture import Architecture
from cct_keras.publishing.retraining import find_base
from cct_keras.publishing.retraining import training_command
from cct_keras.publishing.retraining import without_folder
from cct_keras.recipes.run_settings import recorded_split_seed

MOST_CLASSES = 50
NO_LICENSE = (
    "None was given. Without one nobody else may use these weights; ask their author."
)


@dataclasses.dataclass(frozen=True)
class Facts:
    """What a card is made of.

    Attributes:
        repo: `user/repo`.
        architecture: The architecture.
        parameters: Number of weights.
        preprocessing: Arguments of its `Preprocessing` layer; `None` if it has none.
        load: Arguments of `create_model` that load it, as they are written in Python.
        files: Names of the files, and what each is.
        version: Version of this package.
        license: Identifier of the license; `None` if none was given.
        metrics: As `metrics.json` of a run holds them, if it was trained here.
        settings: As `run.json` holds them, likewise.
    """

    repo: str
    architecture: Architecture
    parameters: int
    preprocessing: Mapping | None
    load: str
    files: Mapping[str, str]
    version: str
    license: str | None = None
    metrics: Mapping | None = None
    settings: Mapping | None = None

    @property
    def title(self) -> str:
        """The model, and its data if they are known."""
        name = self.architecture.nearest_variant() or self.architecture.family
        data = (self.metrics or {}).get("data") or self._trained_on.get("name")
        return f"{name} on {one_line(str(data))}" if data else name

    @property
    def _trained_on(self):
        return (self.preprocessing or {}).get("trained_on") or {}


def write_card(facts: Facts) -> str:
    """The text of `README.md`, with its front matter.

    Args:
        facts: What it tells.
    """
    import yaml

    front = yaml.safe_dump(_front_matter(facts), sort_keys=False, allow_unicode=True)
    sections = [
        f"# {facts.title}",
        _introduction(facts),
        _how_to_load(facts),
        *_results(facts),
        *_training(facts),
        _model(facts),
        _files(facts),
        "## License\n\n" + (f"`{facts.license}`" if facts.license else NO_LICENSE),
    ]
    return f"---\n{front}---\n\n" + "\n\n".join(sections) + "\n"


# === Front matter ===


def _front_matter(facts):
    front = {}
    if facts.license:
        front["license"] = facts.license
    front |= {
        "library_name": "keras",
        "pipeline_tag": "image-classification",
        "tags": [
            "cct-keras",
            "vision-transformer",
            facts.architecture.family.lower(),
        ],
    }
    weights = (facts.settings or {}).get("weights")
    if is_hub(weights):
        front["base_model"] = parse_address(weights).repo
    if facts.metrics is not None:
        front["metrics"] = ["accuracy"]
        front["model-index"] = [_model_index(facts)]
    return front


def _model_index(facts):
    data, test = one_line(str(facts.metrics["data"])), facts.metrics["test"]
    metrics = [
        {"type": "accuracy", "value": row[2], "name": f"{row[0]}{_interval_name(row)}"}
        for row in _shares(test)
    ]
    others = (("log_loss", "loss", "Cross-entropy"), ("ece", "ece", "ECE"))
    metrics += [
        {"type": kind, "value": round(test[key], 6), "name": name}
        for kind, key, name in others
        if test.get(key) is not None
    ]
    return {
        "name": facts.repo.rpartition("/")[2],
        "results": [
            {
                "task": {
                    "type": "image-classification",
                    "name": "Image Classification",
                },
                "dataset": {"name": data, "type": data, "split": "test"},
                "metrics": metrics,
            }
        ],
    }


def _interval_name(row):
    low, high = row[3]
    return f" (95 % interval {low:.4f} to {high:.4f})"


def _shares(test):
    """Name, `metrics.json`'s key, value and interval of what is a share of images."""
    rows = [("Top-1 accuracy", "top1", test["top1"], test["top1_ci95"])]
    if test.get("top5") is not None:
        interval = wilson_interval(round(test["top5"] * test["count"]), test["count"])
        rows.append(("Top-5 accuracy", "top5", test["top5"], interval))
    return [(name, key, round(x, 6), interval) for name, key, x, interval in rows]


# === Sections ===


def _introduction(facts):
    family = facts.architecture.family
    text = (
        f"An image classifier of the family {family}, a model for Keras 3 of the "
        f"package `cct_keras` {facts.version}."
    )
    if facts.metrics is None:
        return text + " Its accuracy was not measured when this card was written."
    test = facts.metrics["test"]
    _, _, value, (low, high) = _shares(test)[0]
    return (
        f"{text} It is right on {value:.2%} of {test['count']:,} test images (95 % "
        f"interval {low:.2%} to {high:.2%})."
    )


def _how_to_load(facts):
    repo, raw = facts.repo, facts.preprocessing is not None
    shape = ", ".join(map(str, facts.architecture.arguments["input_shape"]))
    takes = f"(batch, {shape}), normalized"
    if raw:
        takes = "(batch, height, width, channels), any size, values from 0 to 255"
    lines = ["## How to use it", ""]
    lines += ["```bash", 'pip install "cct-keras[hub]"', "```", ""]
    lines += [
        "```python",
        "import cct_keras",
        "",
        f'model = cct_keras.create_model(weights="hf://{repo}"{facts.load})',
        f"outputs = model.predict(images)  # {takes}",
        "```",
    ]
    commands = []
    if raw:
        commands.append(f"cct-keras predict hf://{repo} photo.jpg")
    if facts.architecture.nearest_variant() is not None:
        commands.append(f"cct-keras train photos/ --weights hf://{repo}")
    if commands:
        lines += ["", "```bash", *commands, "```"]
    return "\n".join(lines)


def _results(facts):
    if facts.metrics is None:
        return []
    test, rows = facts.metrics["test"], []
    for name, _, value, (low, high) in _shares(test):
        rows.append((name, f"{value:.2%}", f"{low:.2%} to {high:.2%}"))
    if test.get("loss") is not None:
        rows.append(("Cross-entropy", f"{test['loss']:.4f}", ""))
    if test.get("ece") is not None:
        rows.append(("Expected calibration error", f"{test['ece']:.4f}", ""))
    text = (
        f"## Results\n\nOn {test['count']:,} test images, which neither trained the "
        "model nor chose its epoch.\n\n"
    )
    text += _table(("", "value", "95 % interval"), rows)
    per_class = test.get("per_class") or []
    if 0 < len(per_class) <= MOST_CLASSES:
        rows = []
        for row in per_class:
            count, accuracy = row["count"], row["accuracy"]
            if accuracy is None:
                rows.append((row["name"], "0", "", ""))
                continue
            low, high = wilson_interval(round(accuracy * count), count)
            rows.append(
                (
                    row["name"],
                    f"{count:,}",
                    f"{accuracy:.2%}",
                    f"{low:.2%} to {high:.2%}",
                )
            )
        text += "\n\n" + _table(("class", "images", "accuracy", "95 % interval"), rows)
    return [text]


def _training(facts):
    if facts.settings is None:
        trained_on = facts._trained_on
        if not trained_on.get("name"):
            return []
        rows = [("data", trained_on["name"])]
        if trained_on.get("fingerprint"):
            rows.append(("fingerprint of the data", f"`{trained_on['fingerprint']}`"))
        return ["## Training\n\n" + _table(("", ""), rows)]
    settings, metrics = facts.settings, facts.metrics
    base, differing = find_base(settings)
    best = metrics["validation"]["epoch"]
    rows = [
        ("data", settings["data"]),
        ("fingerprint of the data", f"`{settings.get('fingerprint')}`"),
        ("started from", without_folder(settings.get("weights") or "random weights")),
    ]
    if settings.get("teacher"):
        rows.append(("teacher", without_folder(str(settings["teacher"]))))
    rows += [
        ("recipe", f"`{base}`"),
        *((f"recipe: {name}", _text(value)) for name, value in differing.items()),
        ("epochs", f"{metrics['epochs']}, the best was number {best}"),
        ("time", f"{metrics['seconds'] / 60:.1f} minutes"),
        ("seed", settings.get("seed")),
        ("split seed", recorded_split_seed(settings)),
        ("backend", settings.get("backend")),
    ]
    command = shlex.join(training_command(settings))
    return [
        "## Training\n\n"
        + _table(("", ""), rows)
        + "\n\nThe same again, with your own path to the data:\n\n"
        + f"```bash\n{command}\n```"
    ]


def _model(facts):
    architecture, images = facts.architecture, facts.preprocessing
    height, width, channels = architecture.arguments["input_shape"]
    rows = [
        ("architecture", f"`{architecture}`"),
        ("parameters", f"{facts.parameters:,}"),
        ("images", f"{height} x {width} x {channels}"),
    ]
    if facts.metrics is not None and facts.metrics.get("macs"):
        rows.append(("multiply-accumulates", f"{facts.metrics['macs']:,} per image"))
    if images is not None:
        rows += [
            ("mean", ", ".join(f"{x:g}" for x in images["mean"])),
            ("deviation", ", ".join(f"{x:g}" for x in images["std"])),
            ("crop", f"{images['crop']:g}, {images['interpolation']}"),
        ]
    names = (images or {}).get("class_names")
    if names:
        more = len(names) - MOST_CLASSES
        text = ", ".join(names[:MOST_CLASSES]) + (f", {more} more" if more > 0 else "")
        rows.append((f"{len(names)} classes", text))
    return "## Model\n\n" + _table(("", ""), rows)


def _files(facts):
    rows = [(f"`{name}`", text) for name, text in facts.files.items()]
    return "## Files\n\n" + _table(("", ""), rows)


def _table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(_cell(x) for x in line)} |" for line in lines)


def _cell(value):
    return one_line(str(value)).replace("|", "\\|")


def _text(value):
    if isinstance(value, (list, tuple)):
        return ", ".join(_text(item) for item in value)
    return "none" if value is None else str(value)
