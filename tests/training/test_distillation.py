"""Distillation: what a student is told, by whom, and what is left of it."""

import dataclasses
import json

import keras
import numpy as np
import pytest
from small import stripes

import cct_keras
from cct_keras import cli
from cct_keras.training import DistillationAccuracy
from cct_keras.training import DistillationLoss
from cct_keras.training import Teacher
from cct_keras.training import find_recipe
from cct_keras.training.distillation import two_heads
from cct_keras.training.recipe import RecipeError
from cct_keras.training.teacher import StoredAnswers
from cct_keras.training.teacher import teacher_name

PLAIN = {"variant": "cvt_2_4_32", "batch_size": 32}
# Random layers and soft labels.
STATEFUL = {**PLAIN, "stochastic_depth": 0.1, "mixup": 0.5, "erase_prob": 0.3}


@pytest.fixture(autouse=True)
def apart(monkeypatch, tmp_path):
    """A cache of its own, and no figures, which take seconds."""
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "home"))
    name = "cct_keras.training.trainer.write_report"
    monkeypatch.setattr(name, lambda path, **_: path.write_text("report"))


@pytest.fixture(scope="module")
def source():
    return cct_keras.load_data(stripes(160))


@pytest.fixture(scope="module")
def some_images(source):
    return next(source.pipeline("test", 16).as_numpy_iterator())[0]


def knows_stripes(images):
    """A teacher in closed form: which way does the brightness vary?"""
    across = images.mean(1).std(1)[:, 0]
    down = images.mean(2).std(1)[:, 0]
    return np.stack([across, down], axis=-1) / 10


def convnet(classes=2, shape=(16, 16, 1), activation=None, preprocessing=None):
    keras.utils.set_random_seed(3)
    return keras.Sequential(
        [
            keras.Input(shape),
            preprocessing or keras.layers.Rescaling(1 / 255),
            keras.layers.Conv2D(4, 3, strides=2, activation="relu"),
            keras.layers.BatchNormalization(),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dropout(0.5),
            keras.layers.Dense(classes, activation=activation),
        ]
    )


def train(data, teacher, **fields):
    fields = {**PLAIN, "epochs": 2, "verbose": False, **fields}
    return cct_keras.train(data, teacher=teacher, **fields)


def without_times(history):
    return [
        {k: v for k, v in row.items() if k not in ("seconds", "images_per_second")}
        for row in history
    ]


def to_numpy(x):
    return keras.ops.convert_to_numpy(x)


# === Losses ===


def log_softmax(x):
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def expected_loss(kind, labels, teacher, head, dist, tau=3.0, weight=0.1):
    """FACTS, word by word."""
    own = -(labels * log_softmax(head)).sum(-1)
    if kind == "hard":
        truth = np.eye(labels.shape[-1])[teacher.argmax(-1)]
        return 0.5 * own + 0.5 * -(truth * log_softmax(dist)).sum(-1)
    p = np.exp(log_softmax(teacher / tau))
    kl = (p * (np.log(p) - log_softmax(dist / tau))).sum(-1)
    return (1 - weight) * own + weight * tau**2 * kl


def example(count=6, classes=5):
    generator = np.random.default_rng(0)
    labels = generator.dirichlet(np.ones(classes), count)
    teacher, head, dist = 3 * generator.standard_normal((3, count, classes))
    return labels, teacher, head, dist


@pytest.mark.backend
@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize(
    "arguments",
    [
        {"kind": "hard"},
        {"kind": "soft"},
        {"kind": "soft", "tau": 1.5, "weight": 0.7},
    ],
)
def test_closed_form(arguments, heads):
    labels, teacher, head, dist = example()
    answers = head if heads == 1 else np.concatenate([head, dist], -1)
    loss = DistillationLoss(5, **arguments)
    found = float(loss(np.concatenate([labels, teacher], -1), answers))
    rows = expected_loss(
        labels=labels,
        teacher=teacher,
        head=head,
        dist=head if heads == 1 else dist,
        **arguments,
    )
    assert found == pytest.approx(rows.mean(), rel=1e-5)
    weights = np.array([1, 0, 2, 0, 0, 1.0])
    found = loss(np.concatenate([labels, teacher], -1), answers, weights)
    assert float(found) == pytest.approx((rows * weights).mean(), rel=1e-5)


@pytest.mark.backend
def test_the_soft_term_is_that_of_keras():
    labels, teacher, head, _ = (x.astype("float32") for x in example())
    keras_term = keras.distillation.LogitsDistillation(
        temperature=3.0, loss=keras.losses.KLDivergence()
    )
    expected = keras_term.compute_loss(
        keras.ops.convert_to_tensor(teacher), keras.ops.convert_to_tensor(head)
    )
    loss = DistillationLoss(5, "soft", weight=1.0)
    found = loss(np.concatenate([labels, teacher], -1), head)
    assert float(found) == pytest.approx(float(expected), rel=1e-4)


@pytest.mark.backend
def test_without_a_teacher_the_student_answers_for_itself():
    labels, _, head, dist = example()
    both = np.concatenate([head, dist], -1)
    for answers, own in ((head, head), (both, (head + dist) / 2)):
        expected = -(labels * log_softmax(own)).sum(-1).mean()
        assert float(DistillationLoss(5)(labels, answers)) == pytest.approx(
            expected, rel=1e-5
        )


@pytest.mark.backend
@pytest.mark.parametrize("taught", [False, True])
def test_accuracy_is_by_the_labels(taught):
    labels, teacher, head, dist = example(40)
    targets = np.concatenate([labels, teacher], -1) if taught else labels
    both = np.concatenate([head, dist], -1)
    for answers, own in ((head, head), (both, head + dist)):
        metric = DistillationAccuracy(5)
        metric.update_state(targets, answers)
        expected = (own.argmax(-1) == labels.argmax(-1)).mean()
        assert float(metric.result()) == pytest.approx(expected)


def test_loss_and_metric_come_back_from_their_configurations():
    loss = DistillationLoss(5, "soft", tau=2.0, weight=0.3)
    again = keras.losses.deserialize(keras.losses.serialize(loss))
    assert again.get_config() == loss.get_config()
    metric = DistillationAccuracy(7, name="right")
    again = keras.metrics.deserialize(keras.metrics.serialize(metric))
    assert (again.num_classes, again.name) == (7, "right")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"kind": "harder"}, "`kind` must be one of hard, soft.*'harder'"),
        ({"tau": 0}, "`tau` must be above 0.*tau=0"),
        ({"weight": 1.5}, "`weight` from 0 to 1.*weight=1.5"),
    ],
)
def test_bad_arguments_of_the_loss(arguments, words):
    with pytest.raises(ValueError, match=words):
        DistillationLoss(5, **arguments)


def test_targets_of_another_width():
    with pytest.raises(ValueError, match=r"5 columns, or twice.*shape \(2, 7\)"):
        DistillationLoss(5)(np.ones((2, 7)), np.ones((2, 5)))


# === Teachers ===


@pytest.mark.backend
def test_probabilities_become_logits(some_images):
    """Up to a constant for each image, which no softmax sees."""
    logits = Teacher(convnet(), some_images, ("0", "1"))
    probabilities = Teacher(convnet(activation="softmax"), some_images, ("0", "1"))
    assert (logits.gives_probabilities, probabilities.gives_probabilities) == (
        False,
        True,
    )
    np.testing.assert_allclose(
        probabilities(some_images), log_softmax(logits(some_images)), atol=1e-5
    )


def named(names, **arguments):
    layer = cct_keras.layers.Preprocessing(
        (16, 16), mean=(0.4,), std=(0.2,), class_names=names
    )
    return convnet(len(names), preprocessing=layer, **arguments)


@pytest.mark.backend
def test_classes_in_another_order(some_images):
    model = named(("b", "c", "a"), shape=(None, None, 1))
    answers = Teacher(model, some_images, ("a", "b", "c"))(some_images)
    own = to_numpy(model(some_images, training=False))
    np.testing.assert_allclose(answers, own[:, [2, 0, 1]], atol=1e-5)


@pytest.mark.backend
def test_a_teacher_is_asked_in_the_order_of_the_data(source, some_images):
    recipe = find_recipe("small", **PLAIN)
    plain = source.training_pipeline(recipe, epochs=2)
    taught = Teacher(knows_stripes, some_images, "01").teach(plain)
    for (images, labels), (again, targets) in zip(
        plain.as_numpy_iterator(), taught.as_numpy_iterator(), strict=True
    ):
        np.testing.assert_array_equal(again, images)
        np.testing.assert_array_equal(targets[:, :2], labels)
        np.testing.assert_allclose(targets[:, 2:], knows_stripes(images), rtol=1e-6)


@pytest.mark.parametrize(
    ("teacher", "words"),
    [
        (lambda: convnet(3), r"shape \(\d+, 2\), a column a class.*shape \(\d+, 3\)"),
        (lambda: convnet(shape=(8, 8, 1)), r"takes images of shape \(8, 8, 1\), and"),
        (lambda: convnet(shape=(16, 16, 3)), r"shape \(16, 16, 3\).*\(16, 16, 1\)"),
        (lambda: named(("0", "cat")), "knows 2 classes, but not those.*: 1, cat$"),
        (lambda: named(("0", "1", "2")), "knows 3 classes.*which are 2.*: 2$"),
        (lambda: lambda images: None, "Received: NoneType"),
        (lambda: lambda images: images, r"Received: shape \(\d+, 16, 16, 1\)"),
        (lambda: lambda images: images[:, 0, :2, 0] * np.nan, "not finite"),
    ],
)
def test_teachers_that_do_not_fit(teacher, words, source):
    with pytest.raises(ValueError, match=words):
        train(source, teacher())


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (
            ["--distill", "hard"],
            "`distill` needs a `teacher`. Received: distill='hard'",
        ),
        (["--teacher-views", "2"], "`teacher_views` needs a `teacher`."),
        (["--teacher", "gone.keras"], "`teacher`: no such model file: gone.keras"),
        (["--teacher", "{broken}"], "is not a Keras model file"),
        (
            ["--teacher", "x", "--distill", "firm"],
            "`distill` must be one of hard, soft. Received: distill='firm'",
        ),
        (
            ["--teacher", "x", "--distill-tau", "2"],
            "`distill_tau` is for distill='soft'. Received: distill=None",
        ),
        (
            ["--teacher", "x", "--teacher-views", "2", "--augment", "keras_cv"],
            "augment='keras_cv' does not repeat its images",
        ),
        (
            ["--teacher", "x", "--teacher-views", "2", "--mix-off-epoch", "3"],
            "mixing cannot end at `mix_off_epoch`",
        ),
    ],
)
def test_bad_flags_are_one_line(flags, words, tmp_path, capsys):
    (tmp_path / "broken.keras").write_text("no zip")
    flags = [flag.format(broken=tmp_path / "broken.keras") for flag in flags]
    out = tmp_path / "run"
    assert cli.main(["train", "digits", "--out", str(out), *flags]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1
    assert not out.exists()


def test_hard_takes_no_weight():
    with pytest.raises(RecipeError, match="`distill_weight` is for distill='soft'"):
        find_recipe("small", teacher="x", distill="hard", distill_weight=0.4)


# === Runs ===


@pytest.mark.backend
def test_a_student_learns_what_only_the_teacher_knows(source):
    """The labels are random, and weigh nothing."""
    labels = np.random.default_rng(1).permutation(source.train.labels)
    split = dataclasses.replace(source.train, labels=labels)
    data = dataclasses.replace(source, train=split)
    fields = {"distill": "soft", "distill_weight": 1.0, "epochs": 12}
    run = train(data, knows_stripes, **fields)
    assert run.metrics["test"]["top1"] == 1.0


@pytest.fixture(scope="module")
def alone(source):
    """A student without a teacher."""
    keras.utils.set_random_seed(0)
    return cct_keras.train(source, **PLAIN, epochs=1, verbose=False).model


@pytest.mark.backend
@pytest.mark.parametrize("kind", ["hard", "soft"])
def test_the_student_is_a_plain_model(kind, alone, source, tmp_path):
    teacher = convnet()
    before = [to_numpy(w) for w in teacher.weights]
    run = train(source, teacher, distill=kind, epochs=1, out=tmp_path / "run")
    for value, weight in zip(before, teacher.weights, strict=True):
        np.testing.assert_array_equal(to_numpy(weight), value)
    assert all(layer.trainable for layer in teacher.layers)
    stored = keras.models.load_model(tmp_path / "run/model.keras")
    for model in (run.model, stored):
        assert [w.path for w in model.weights] == [w.path for w in alone.weights]
        assert [x.name for x in model.layers] == [x.name for x in alone.layers]
    differs = [
        not np.array_equal(a, b)
        for a, b in zip(stored.get_weights(), alone.get_weights(), strict=True)
    ]
    assert any(differs)


def test_the_command_takes_the_file_of_a_teacher(tmp_path, capsys):
    images, labels = stripes(160)
    np.savez(tmp_path / "stripes.npz", x_train=images, y_train=labels)
    model = named(("0", "1"), activation="softmax", shape=(None, None, 1))
    model.save(tmp_path / "teacher.keras")
    out = tmp_path / "run"
    flags = {
        "--teacher": tmp_path / "teacher.keras",
        "--distill": "soft",
        "--distill-tau": 2,
        "--variant": "cvt_2_4_32",
        "--batch-size": 32,
        "--epochs": 2,
        "--out": out,
    }
    words = [str(word) for pair in flags.items() for word in pair]
    assert cli.main(["train", str(tmp_path / "stripes.npz"), *words]) == 0
    assert "soft distillation from" in capsys.readouterr().out
    settings = json.loads((out / "run.json").read_text())
    assert settings["teacher"] == str(tmp_path / "teacher.keras")
    assert settings["teacher_name"] == teacher_name(model)
    run = train(tmp_path / "stripes.npz", model, distill="soft", distill_tau=2)
    metrics = json.loads((out / "metrics.json").read_text())
    assert metrics["validation"] == pytest.approx(run.metrics["validation"], rel=1e-5)


class StopAfter(keras.callbacks.Callback):
    """As a kill, without a new process."""

    def __init__(self, epoch):
        super().__init__()
        self.epoch = epoch

    def on_epoch_end(self, epoch, logs=None):
        if epoch + 1 == self.epoch:
            raise KeyboardInterrupt


def assert_same_run(run, other):
    for a, b in zip(run.history, other.history, strict=True):
        assert a["loss"] == pytest.approx(b["loss"], rel=1e-4)
        assert a["val_loss"] == pytest.approx(b["val_loss"], rel=1e-4)
    weights = run.model.get_weights(), other.model.get_weights()
    for a, b in zip(*weights, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4)


@pytest.fixture(scope="module")
def whole(source):
    keras.utils.set_random_seed(0)
    return train(source, convnet(), **STATEFUL, distill="soft")


@pytest.mark.backend
@pytest.mark.parametrize("views", [0, 2])
def test_an_interrupted_run_ends_as_a_whole_one(views, whole, source, tmp_path):
    """Also from answers on disk, which are those of the live teacher."""
    fields = {**STATEFUL, "distill": "soft", "teacher_views": views}
    fields["out"] = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        train(source, convnet(), **fields, callbacks=[StopAfter(1)])
    assert_same_run(train(source, convnet(), **fields), whole)


def test_another_teacher_is_another_run(source, tmp_path):
    out = tmp_path / "run"
    train(source, convnet(), epochs=1, out=out)
    other = convnet()
    other.layers[-1].bias.assign([1.0, 2.0])
    with pytest.raises(RuntimeError, match="other settings.*teacher"):
        train(source, other, epochs=1, out=out)


# === Answers on disk ===


class Counting:
    """A function that knows how often it was asked."""

    def __init__(self, stop=None):
        self.calls = 0
        self.stop = stop

    def __call__(self, images):
        self.calls += 1
        if self.calls == self.stop:
            raise KeyboardInterrupt
        return knows_stripes(images)


def stored_files(tmp_path):
    return sorted(p for p in (tmp_path / "home").rglob("teachers/*/*") if p.suffix)


def store(data, images, source, seed=0, **fields):
    """The answers that a run would find or make."""
    fields = {**STATEFUL, "epochs": 5, "teacher_views": 2, **fields}
    recipe = find_recipe("small", teacher="x", **fields)
    teacher = Teacher(source, images, data.class_names)
    return StoredAnswers(teacher, data, recipe, seed=seed, say=lambda text: None)


@pytest.mark.backend
def test_stored_answers_are_those_of_the_live_teacher(whole, source, tmp_path):
    stored = train(source, convnet(), **STATEFUL, distill="soft", teacher_views=2)
    assert_same_run(stored, whole)
    assert [path.name for path in stored_files(tmp_path)] == ["logits.npy"]


def test_a_big_teacher_costs_one_pass(source, some_images):
    """Two tries beside it: does it fit, and are these its answers?"""
    steps = len(source.train) // 32
    teacher = Counting()
    store(source, some_images, teacher)
    assert teacher.calls == 1 + 2 * steps
    # What the student is and how it learns does not matter,
    teacher.calls = 0
    other = {"variant": "vit_2_4_32", "lr": 1e-4, "distill": "soft", "epochs": 9}
    store(source, some_images, teacher, **other)
    assert teacher.calls == 2
    # but what the teacher sees does.
    for fields in ({"seed": 1}, {"erase_prob": 0.1}, {"teacher_views": 1}):
        teacher.calls = 0
        store(source, some_images, teacher, **fields)
        assert teacher.calls == 1 + fields.get("teacher_views", 2) * steps


def test_view_sets_repeat(source):
    fields = {"teacher": "x", "teacher_views": 2, "epochs": 5}
    recipe = find_recipe("small", **STATEFUL, **fields)
    batches = list(source.training_pipeline(recipe).as_numpy_iterator())
    steps = len(batches) // 5
    for number, (images, labels) in enumerate(batches):
        epoch, step = divmod(number, steps)
        again = batches[epoch % 2 * steps + step]
        np.testing.assert_array_equal(images, again[0])
        np.testing.assert_array_equal(labels, again[1])
    assert not np.array_equal(batches[0][0], batches[steps][0])
    later = source.training_pipeline(recipe, first_epoch=3)
    first = next(later.as_numpy_iterator())[0]
    np.testing.assert_array_equal(first, batches[steps][0])


def test_stored_answers_go_with_their_images(source, some_images):
    """From the middle of a repeated run on, and compared with the function itself."""
    answers = store(source, some_images, knows_stripes)
    fields = {"teacher": "x", "teacher_views": 2, "epochs": 5}
    recipe = find_recipe("small", **STATEFUL, **fields)
    taught = answers.teach(source.training_pipeline(recipe, first_epoch=3), 3)
    batches = list(taught.as_numpy_iterator())
    assert len(batches) == 2 * (len(source.train) // 32)
    for images, targets in batches:
        np.testing.assert_allclose(targets[:, 2:], knows_stripes(images), rtol=1e-5)


def test_half_a_pass_leaves_nothing(source, some_images, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        store(source, some_images, Counting(stop=4))
    assert stored_files(tmp_path) == []
    # What a kill would have left.
    [folder] = (tmp_path / "home").rglob("teachers/*")
    (folder / ".cct_keras-half.npy").write_bytes(b"half")
    store(source, some_images, Counting())
    assert [path.name for path in stored_files(tmp_path)] == ["logits.npy"]


@pytest.mark.parametrize(
    "damage", [lambda x: x[:-9], lambda x: b"", lambda x: b"x" * 99]
)
def test_a_broken_file_is_written_anew(damage, source, some_images):
    path = store(source, some_images, knows_stripes).path
    content = path.read_bytes()
    path.write_bytes(damage(content))
    store(source, some_images, knows_stripes)
    assert path.read_bytes() == content


def test_functions_of_one_name_are_told_apart(source, some_images):
    def teacher(images):
        return sign * knows_stripes(images)

    sign = 1
    first = store(source, some_images, teacher)
    sign = -1
    second = store(source, some_images, teacher)
    assert second.path == first.path
    assert np.load(second.path).max() <= 0


def test_a_full_disk_is_one_line(source, some_images, monkeypatch):
    def full(file, header):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np.lib.format, "write_array_header_1_0", full)
    with pytest.raises(RuntimeError, match="No space left.*--teacher-views 0"):
        store(source, some_images, knows_stripes)


# === The distillation token ===


def small_deit(variant, **arguments):
    """A distilled DeiT in miniature, whatever the variant's name."""
    return cct_keras.DeiT(
        **arguments,
        distilled=True,
        patch_size=4,
        embedding_dim=16,
        num_layers=1,
        num_heads=2,
        mlp_ratio=1,
    )


@pytest.fixture
def two_headed(monkeypatch):
    monkeypatch.setattr("cct_keras.training.trainer.create_model", small_deit)


def deit_without_training():
    return small_deit(
        "", input_shape=(8, 8, 1), num_classes=3, classifier_activation=None
    )


@pytest.mark.backend
def test_both_heads_side_by_side():
    model = deit_without_training()
    both = two_heads(model)
    generator = np.random.default_rng(0)
    images = generator.standard_normal((5, 8, 8, 1)).astype("float32")
    logits = to_numpy(both(images))
    assert logits.shape == (5, 6)
    np.testing.assert_allclose(
        (logits[:, :3] + logits[:, 3:]) / 2, to_numpy(model(images)), atol=1e-6
    )
    head = keras.Model(model.input, model.get_layer("head").output)
    np.testing.assert_allclose(logits[:, :3], to_numpy(head(images)), atol=1e-6)
    assert {id(w) for w in both.weights} == {id(w) for w in model.weights}
    one_head = keras.Model(model.input, model.get_layer("head").output)
    assert two_heads(one_head) is one_head


@pytest.mark.backend
@pytest.mark.parametrize(
    ("weight", "moved", "still"),
    [(0.0, "head", "head_dist"), (1.0, "head_dist", "head")],
)
def test_each_head_has_its_own_master(weight, moved, still):
    """At either end of the weight one of the two heads hears nothing."""
    model = deit_without_training()
    both = two_heads(model)
    both.compile(keras.optimizers.SGD(0.5), DistillationLoss(3, "soft", weight=weight))
    before = {name: to_numpy(model.get_layer(name).kernel) for name in (moved, still)}
    generator = np.random.default_rng(2)
    images = generator.standard_normal((8, 8, 8, 1)).astype("float32")
    targets = generator.dirichlet(np.ones(3), 8)
    targets = np.concatenate([targets, generator.standard_normal((8, 3))], -1)
    both.train_on_batch(images, targets)
    assert not np.array_equal(to_numpy(model.get_layer(moved).kernel), before[moved])
    np.testing.assert_array_equal(
        to_numpy(model.get_layer(still).kernel), before[still]
    )


@pytest.mark.backend
def test_a_run_with_two_heads(two_headed, source, tmp_path):
    fields = {"epochs": 2, "ema": 0.5, "distill": "hard"}
    whole = train(source, convnet(), **fields, out=tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        train(
            source, convnet(), **fields, out=tmp_path / "cut", callbacks=[StopAfter(1)]
        )
    resumed = train(source, convnet(), **fields, out=tmp_path / "cut")
    for a, b in zip(resumed.history, whole.history, strict=True):
        assert a["loss"] == pytest.approx(b["loss"], rel=1e-4)
    stored = keras.models.load_model(tmp_path / "whole/model.keras")
    assert stored.output_shape == (None, 2)
    assert "heads" not in {layer.name for layer in stored.layers}
    metrics = cct_keras.evaluate(stored, source, split="validation")
    best = whole.history[whole.metrics["validation"]["epoch"] - 1]
    assert metrics["top1"] == pytest.approx(best["val_accuracy"])
    assert metrics["loss"] == pytest.approx(best["val_loss"], rel=1e-4)
