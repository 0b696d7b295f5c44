"""The model families, their named variants, and the record of an architecture."""
