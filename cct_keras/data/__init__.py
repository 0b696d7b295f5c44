"""Data sets: from folders, files, arrays and names to tf.data pipelines."""
