"""Trained models as files for other runtimes: ONNX, LiteRT, OpenVINO, the web."""
