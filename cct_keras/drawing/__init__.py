"""How figures and pages look, whatever they show."""
