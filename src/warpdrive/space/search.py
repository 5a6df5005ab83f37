"""What an author makes: a search for neighbours by the fields that hold positions."""

import keyword
from typing import Any

import warp as wp

from warpdrive.env.environment import positive_int
from warpdrive.env.phases import Phase
from warpdrive.space.cells import Layout, corners, layout, shape_for
from warpdrive.space.in_order import nearest_phases
from warpdrive.space.nearest import nearest_of, nearest_to
from warpdrive.space.within import fold_within

__all__ = ["Search"]

# On two CPU cores cells are faster from about 50 agents on (benchmarks/space.py). On a GPU, where a sort is four more
# launches, Tag with 110 agents is a fifth slower with them (docs/design.md).
CELLS_FROM = 200


def per_cell(neighbours: int) -> float:
    """Agents that a cell should hold on average when so many neighbours are sought."""
    return max(1.0, neighbours / 4)


def _is_name(value: Any) -> bool:
    """Whether a field or group can be called so."""
    return isinstance(value, str) and value.isidentifier() and not keyword.iskeyword(value)


def _require_group(among: Any) -> None:
    if among is not None and not _is_name(among):
        raise ValueError(f"among must be a group's name or None, got {among!r}")


def _require_choice(cells: Any) -> None:
    if not (cells is None or isinstance(cells, bool)):
        raise ValueError(f"cells must be True, False or None, got {cells!r}")


class Search:
    """A search for neighbours by the fields that hold positions; make it once, at the top of a module.

    What its methods return are Warp functions, to be called in phases. All of them find agents that take part
    (`s.active`) and lie closer than a radius, by distances in float32, equally near ones by index. Where agents have
    been sorted into cells they look into the cells nearby only, else at all agents: what is found is the same, but for
    agents that joined after they were sorted, who are not in the cells and are not found there.

    Args:
        position: name of a `wd.PerAgent[wp.vec2]` field, or of one field of numbers for each dimension: ("x", "y").
        dimensions: 1, 2 or 3; None: the number of names, or 2 for a single name.
        cells: True or False where it is known already whether agents are sorted into cells, which saves registers on
            a GPU; None: the state says.

    Raises:
        ValueError: names or dimensions that do not fit.
    """

    def __init__(
        self, position: str | tuple[str, ...], *, dimensions: int | None = None, cells: bool | None = None
    ) -> None:
        names = (position,) if isinstance(position, str) else position
        if not (isinstance(names, tuple) and names and all(_is_name(n) for n in names)):
            raise ValueError(f"position must be a field's name or a tuple of names, got {position!r}")
        if dimensions is None:
            dimensions = 2 if isinstance(position, str) else len(names)
        if isinstance(dimensions, bool) or not isinstance(dimensions, int) or not 1 <= dimensions <= 3:
            raise ValueError(f"dimensions must be 1, 2 or 3, got {dimensions!r}")
        if len(names) not in (1, dimensions):
            raise ValueError(f"position must name one field, or one for each of {dimensions} dimensions, got {names}")
        _require_choice(cells)
        self.position, self.dimensions, self.by_cells = names, dimensions, cells

    def nearest(self, k: int, among: str | None = None) -> Any:
        """The function `(s, env, agent)` or `(s, env, agent, radius)` of the k nearest others of an agent.

        It returns two vectors of length k: indices among all agents, nearest first, then -1 where there are no more;
        and distances, infinity where there are no more. A negative radius finds nobody.

        Args:
            k: number of neighbours; up to 16 are kept in registers on a GPU.
            among: the group to search; None: all agents.
        """
        _require_group(among)
        return nearest_of(self.position, self.dimensions, self.by_cells, positive_int("k", k), among)

    def nearest_phases(self, k: int, into: str, among: str | None = None) -> tuple[Phase, ...]:
        """The phases that find the k nearest others of all agents, to be run right after the layout's phases.

        Where agents have been sorted they go from cell to cell, which on a GPU is faster than to call `nearest` agent
        by agent.

        Args:
            k: number of neighbours; up to 16 are kept in registers on a GPU.
            into: name of a `wd.PerEnv[int, N, k]` field for N agents (not PerAgent: the agent that writes a row is
                another than the one whose row it is). `s.NAME[env, agent, j]` then is what `nearest` gives, or -1 for
                an agent that does not take part, or did not when agents were sorted.
            among: the group to search; None: all agents.

        Raises:
            ValueError: into is no name.
        """
        _require_group(among)
        if not _is_name(into):
            raise ValueError(f"into must be a field's name, got {into!r}")
        return nearest_phases(self.position, self.dimensions, self.by_cells, positive_int("k", k), among, into)

    def nearest_to(self, k: int, among: str | None = None) -> Any:
        """The function `(s, env, place)` or `(s, env, place, radius)` of the k agents nearest to a place.

        It returns what that of `nearest` does. The place is a wp.vec2, or as many numbers as there are dimensions.
        """
        _require_group(among)
        return nearest_to(self.position, self.dimensions, self.by_cells, positive_int("k", k), among)

    def fold(self, function: Any, among: str | None = None) -> Any:
        """The function `(s, env, agent, radius, start)` that gathers from all others of an agent within a radius.

        It returns the last of the values `value = function(s, env, agent, other, distance, value)`, beginning with
        `start`. Neighbours come in index order, or cell after cell where agents have been sorted: sums of floats may
        differ in the last bits between the two, and never otherwise.

        Args:
            function: a @wp.func.
            among: the group to search; None: all agents.
        """
        _require_group(among)
        if not isinstance(function, wp.Function):
            raise ValueError(f"function must be a @wp.func, got {function!r}")
        return fold_within(self.position, self.dimensions, self.by_cells, function, among)

    def layout(self, agents: int, low: Any, high: Any, *, neighbours: int = 8, cells: bool | None = None) -> Layout:
        """Decide by size whether an environment has cell lists; its phases, params and sizes are for the environment.

        Args:
            agents: number of agents of all groups.
            low, high: corners of the box in which agents mostly are; others are found as well, but slower.
            neighbours: how many are sought, or lie within the radius.
            cells: True or False to decide otherwise.

        Raises:
            ValueError: an argument that does not fit.
        """
        positive_int("agents", agents)
        positive_int("neighbours", neighbours)
        a, b = corners(low, high, self.dimensions)
        _require_choice(cells)
        if cells is None:
            cells = self.by_cells if self.by_cells is not None else agents >= CELLS_FROM
        elif self.by_cells and not cells:
            raise ValueError("cells must not be False: this search was made with cells=True, and looks into cells only")
        shape = shape_for([y - x for x, y in zip(a, b, strict=True)], agents / per_cell(neighbours)) if cells else ()
        return layout(self.position, a, b, agents, shape)
