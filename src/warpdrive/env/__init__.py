"""What an environment is: state fields, spaces, groups, phases."""
