"""Policies: networks, drawing actions, normalisation."""
