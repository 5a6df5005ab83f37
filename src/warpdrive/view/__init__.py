"""Look at what trained agents do: an episode as a page that opens in any browser."""

from warpdrive.view.replay import Episode, write_replay

__all__ = ["Episode", "write_replay"]
