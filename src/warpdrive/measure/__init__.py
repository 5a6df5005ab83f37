"""How fast a machine is, how fast environments step and train on it, and where the time goes."""
