"""`benchmark` and the tasks it measures; no times are compared."""

import pytest

from cct_keras.benchmarking.benchmark import TASKS
from cct_keras.benchmarking.benchmark import Speed
from cct_keras.benchmarking.benchmark import benchmark
from cct_keras.benchmarking.benchmark import installed_backends
from cct_keras.benchmarking.benchmark import suitable_batch_size
from cct_keras.benchmarking.benchmark import variant_tasks
from cct_keras.benchmarking.measuring import Timing
from cct_keras.models.cost import Cost
from cct_keras.models.cost import variant_cost


def speed_of(cost, batch_size, **seconds):
    timings = {name: Timing(s, s, s, None) for name, s in seconds.items()}
    return Speed("cct", batch_size, cost, **timings)


def test_shares_of_the_machine():
    """A product of 2 * 2048 ** 3 operations in a second is the whole."""
    cost = Cost(1, 1, macs=2048**3 // 8, attention_macs=0, activation_bytes=1)
    speed = speed_of(cost, 8, inference=2.0, latency=1.0, training=6.0, gemm=1.0)
    assert speed.peak_flops == 2 * 2048**3
    assert speed.inference_share == pytest.approx(1 / 2)
    assert speed.training_share == pytest.approx(3 / 6)
    fields = speed.as_dict()
    assert fields["training"] == {
        "best": 6.0,
        "median": 6.0,
        "first": 6.0,
        "memory": None,
    }
    assert fields["peak_flops"] == speed.peak_flops


def test_large_models_get_small_batches():
    names = ("cct_2_3x2_32", "cct_14_7x2_224", "vit_huge_patch14_224")
    sizes = [suitable_batch_size(variant_cost(name)) for name in names]
    assert sizes == [64, 16, 1]


def test_backends():
    assert "tensorflow" in installed_backends()


@pytest.mark.backend
def test_tasks():
    tasks = variant_tasks("cvt_2_4_32", 2, image_size=(8, 8), inference_batch_size=3)
    assert set(tasks) == set(TASKS)
    for task in tasks.values():
        task(1)


@pytest.mark.integration
@pytest.mark.backend
def test_a_variant():
    lines = []
    speed = benchmark(
        "cvt_2_4_32", batch_size=8, rounds=1, seconds=0.01, log=lines.append
    )
    assert (speed.variant, speed.batch_size) == ("cvt_2_4_32", 8)
    assert speed.cost.parameters == 214_539
    for name in TASKS:
        timing = getattr(speed, name)
        assert 0 < timing.best <= timing.median
    assert lines[0] == "cvt_2_4_32: build"
    assert len(lines) == 1 + len(TASKS)
