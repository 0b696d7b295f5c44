"""What a training run looked like: figures, the HTML page, previews."""
