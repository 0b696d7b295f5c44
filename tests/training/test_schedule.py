import math

import pytest

from cct_keras.training.schedule import WarmupSchedule


def rate(schedule, epoch, step=0):
    return float(schedule(epoch * schedule.steps_per_epoch + step))


@pytest.mark.backend
def test_warmup_cosine_cooldown():
    """The rates of the 300 epochs of CIFAR-10, epoch by epoch."""
    schedule = WarmupSchedule(
        5.5e-4,
        epochs=300,
        steps_per_epoch=390,
        min_lr=1e-5,
        warmup_epochs=10,
        warmup_lr=1e-5,
    )
    for epoch in (0, 1, 5, 9):
        expected = 1e-5 + epoch * (5.5e-4 - 1e-5) / 10
        assert rate(schedule, epoch) == pytest.approx(expected, rel=1e-5)
    for epoch in (10, 11, 75, 150, 299):
        cosine = (1 + math.cos(math.pi * epoch / 300)) / 2
        assert rate(schedule, epoch) == pytest.approx(1e-5 + 5.4e-4 * cosine, rel=1e-5)
    for epoch in (300, 309):
        assert rate(schedule, epoch) == pytest.approx(1e-5)
    # Within an epoch it stays.
    assert rate(schedule, 100, 389) == rate(schedule, 100)


@pytest.mark.backend
def test_step_decay():
    schedule = WarmupSchedule(
        5e-5,
        epochs=300,
        steps_per_epoch=7,
        min_lr=1e-8,
        kind="step",
        warmup_epochs=10,
        warmup_lr=1e-6,
    )
    assert rate(schedule, 5) == pytest.approx(1e-6 + 5 * 4.9e-6)
    for epoch, expected in ((10, 5e-5), (29, 5e-5), (30, 5e-6), (299, 5e-14)):
        assert rate(schedule, epoch) == pytest.approx(expected, rel=1e-4)
    assert rate(schedule, 300) == pytest.approx(1e-8)


def test_older_warmup():
    schedule = WarmupSchedule(
        5e-4, epochs=200, steps_per_epoch=3, warmup_epochs=5, warmup="inverse"
    )
    for epoch in range(5):
        assert rate(schedule, epoch) == pytest.approx(5e-4 / (5 - epoch))
    for epoch in (5, 100, 199):
        cosine = (1 + math.cos(math.pi * (epoch - 5) / 195)) / 2
        assert rate(schedule, epoch) == pytest.approx(5e-4 * cosine, abs=1e-10)


def test_per_step():
    schedule = WarmupSchedule(
        1e-3, epochs=10, steps_per_epoch=4, warmup_epochs=0.5, per_step=True
    )
    assert rate(schedule, 0, 1) == pytest.approx(1e-3 * 0.25 / 0.5)
    cosine = (1 + math.cos(math.pi * 2.75 / 10)) / 2
    assert rate(schedule, 2, 3) == pytest.approx(1e-3 * cosine, rel=1e-5)
    assert schedule.get_config() == WarmupSchedule(**schedule.get_config()).get_config()


def test_constant():
    schedule = WarmupSchedule(1e-3, epochs=3, steps_per_epoch=2, kind="constant")
    assert [rate(schedule, epoch) for epoch in (0, 2, 9)] == pytest.approx([1e-3] * 3)


@pytest.mark.backend
def test_a_triangle():
    schedule = WarmupSchedule(
        0.5,
        epochs=10,
        steps_per_epoch=20,
        min_lr=0.05,
        kind="linear",
        warmup_epochs=2.5,
        warmup_lr=0.1,
        per_step=True,
    )
    for step in range(50):
        assert float(schedule(step)) == pytest.approx(0.1 + 0.4 * step / 50)
    for step in range(50, 200):
        expected = 0.5 - 0.45 * (step - 50) / 150
        assert float(schedule(step)) == pytest.approx(expected, rel=1e-5)
    assert float(schedule(200)) == pytest.approx(0.05)
