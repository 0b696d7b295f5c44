"""What a student learns from labels and teacher, against closed forms."""

import keras
import numpy as np
import pytest
from teachers import log_softmax
from teachers import small_deit
from teachers import to_numpy

from cct_keras.distillation.losses import DistillationAccuracy
from cct_keras.distillation.losses import DistillationLoss
from cct_keras.distillation.losses import two_heads


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
    outputs = head if heads == 1 else np.concatenate([head, dist], -1)
    loss = DistillationLoss(5, **arguments)
    found = float(loss(np.concatenate([labels, teacher], -1), outputs))
    rows = expected_loss(
        labels=labels,
        teacher=teacher,
        head=head,
        dist=head if heads == 1 else dist,
        **arguments,
    )
    assert found == pytest.approx(rows.mean(), rel=1e-5)
    weights = np.array([1, 0, 2, 0, 0, 1.0])
    found = loss(np.concatenate([labels, teacher], -1), outputs, weights)
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
def test_without_a_teacher_the_student_outputs_for_itself():
    labels, _, head, dist = example()
    both = np.concatenate([head, dist], -1)
    for outputs, own in ((head, head), (both, (head + dist) / 2)):
        expected = -(labels * log_softmax(own)).sum(-1).mean()
        assert float(DistillationLoss(5)(labels, outputs)) == pytest.approx(
            expected, rel=1e-5
        )


@pytest.mark.backend
@pytest.mark.parametrize("taught", [False, True])
def test_accuracy_is_by_the_labels(taught):
    labels, teacher, head, dist = example(40)
    targets = np.concatenate([labels, teacher], -1) if taught else labels
    both = np.concatenate([head, dist], -1)
    for outputs, own in ((head, head), (both, head + dist)):
        metric = DistillationAccuracy(5)
        metric.update_state(targets, outputs)
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


# === Two heads ===


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
