"""The simulator: the store, schedules, episodes."""
