"""Trained models at work: prediction, evaluation, metrics."""
