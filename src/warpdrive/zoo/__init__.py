"""The bundled environments, one file each."""
