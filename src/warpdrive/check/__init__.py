"""The kit that examines an author's environment: races, bounds, leaks, repeatability, values."""
