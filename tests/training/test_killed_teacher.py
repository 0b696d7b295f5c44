"""A run with a teacher may be killed at any time, as every other run."""

import json
import os
import signal
import subprocess
import sys

import pytest
from taught_runs import TAUGHT
from taught_runs import assert_same_run
from taught_runs import train

SCRIPT = """
import json, sys
import cct_keras.distillation.convnet
cct_keras.distillation.convnet.WIDTHS = (4, 6)
cct_keras.train(sys.argv[1], out=sys.argv[2], **json.loads(sys.argv[3]))
"""


@pytest.mark.integration
def test_killed_runs_end_as_an_undisturbed_one(source, tmp_path, monkeypatch):
    """Killed while the teacher trains, and again while the student trains."""
    monkeypatch.setattr("cct_keras.distillation.convnet.WIDTHS", (4, 6))
    fields = {**TAUGHT, "variant": "cvt_2_4_32", "epochs": 3, "teacher_epochs": 4}
    whole = train(source, **fields)
    kill(source, tmp_path, fields, "epoch 2/4")
    assert not (tmp_path / "teacher" / "metrics.json").exists()
    assert not (tmp_path / "snapshots").exists()
    kill(source, tmp_path, fields, "epoch 2/3")
    assert (tmp_path / "teacher" / "metrics.json").exists()
    assert not (tmp_path / "metrics.json").exists()
    assert_same_run(train(source, tmp_path, **fields), whole)


def kill(source, out, fields, line):
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT, source, out, json.dumps(fields)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    ) as process:
        shown = any(text.startswith(line) for text in process.stdout)
        process.send_signal(signal.SIGKILL)
    assert shown
