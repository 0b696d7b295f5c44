"""Several devices of one machine, or several machines, for one run."""
