"""Trained models as repositories of the Hugging Face Hub."""
