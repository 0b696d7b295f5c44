"""Training recipes: what a recipe is, the rows, and recipes in YAML files."""
