"""Searching for neighbours: functions for phases, made for a position, a number and a kind of neighbours."""

import functools
from typing import Any

import warp as wp

from warpdrive.env.environment import positive_int
from warpdrive.space.cells import Layout, along, coordinates, corners, layout, shape_for
from warpdrive.space.position import place_of, range_of

__all__ = ["Search"]

CELLS_FROM = 300

FIRST_RING = 1  # cells on each side of the own one that are searched at once

SLACK = wp.constant(1.0e-6)  # of coordinates, many times what rounding changes in them
NEARLY = wp.constant(0.99999)  # of a distance that nobody beyond can come closer than, the same for its square


# ---------------------------------------------------------------- small functions of which searches are made


@wp.func
def _by_lists(s: Any) -> bool:
    return s.cell_columns > 0


@wp.func
def _always(s: Any) -> bool:
    return True


@wp.func
def _never(s: Any) -> bool:
    return False


# Whether to search by cell lists: known when the function is made, or asked of the state.
CHOICE = {None: _by_lists, True: _always, False: _never}


@wp.func
def _beyond(s: Any, u: wp.vec3, at: wp.vec3i, ring: int) -> float:
    """A length that all agents outside the box of cells around `at` are farther away than; infinity: there are none."""
    least = float(wp.inf)
    count = wp.vec3i(s.cell_columns, s.cell_rows, s.cell_planes)
    for axis in range(3):
        before = at[axis] - ring  # the first cell of the box
        behind = at[axis] + ring + 1  # the first one after it
        if before > 0:
            gap = u[axis] - float(before) - SLACK * (wp.abs(u[axis]) + float(before))
            least = wp.min(least, gap * s.cell_side[axis])
        if behind < count[axis]:
            gap = float(behind) - u[axis] - SLACK * (wp.abs(u[axis]) + float(behind))
            least = wp.min(least, gap * s.cell_side[axis])
    return least * NEARLY


# ---------------------------------------------------------------- the nearest


@functools.cache
def _nearest_to(position: tuple[str, ...], dimensions: int, cells: bool | None, k: int, group: str | None) -> Any:
    """The Warp function `(s, env, place, besides, radius)` of the k nearest: indices and squares of distances.

    The nearest so far are kept sorted in two vectors whose length Warp knows when it compiles. Up to 16 the loops over
    them are unrolled, which puts them into registers on a GPU; most others then cost one read and one comparison.
    """
    place_at, in_cells, bounds = place_of(position, dimensions), coordinates(dimensions), range_of(group)
    by_lists = CHOICE[cells]
    last = k - 1
    Indices, Squares = wp.types.vector(k, int), wp.types.vector(k, float)

    @wp.func
    def compare_all(s: Any, env: int, place: Any, besides: int, radius: float):
        index = Indices(-1)
        square = Squares(radius * radius)
        first, end = bounds(s)
        for other in range(first, end):
            if other != besides and s.active[env, other]:
                d = wp.length_sq(place_at(s, env, other) - place)
                if d < square[last]:
                    for j in range(last, 0, -1):
                        if d < square[j - 1]:
                            square[j] = square[j - 1]
                            index[j] = index[j - 1]
                        elif d < square[j]:
                            square[j] = d
                            index[j] = other
                    if d < square[0]:
                        square[0] = d
                        index[0] = other
        return index, square

    @wp.func
    def search_cells(s: Any, env: int, place: Any, besides: int, radius: float):
        index = Indices(-1)
        square = Squares(radius * radius)
        first, end = bounds(s)
        u = in_cells(s, place)
        x, y, z = along(u[0], s.cell_columns), along(u[1], s.cell_rows), along(u[2], s.cell_planes)
        inner = int(-1)  # the box of cells up to this distance from the own one has been searched
        outer = int(FIRST_RING)
        while inner < outer:
            for pz in range(wp.max(z - outer, 0), wp.min(z + outer, s.cell_planes - 1) + 1):
                for py in range(wp.max(y - outer, 0), wp.min(y + outer, s.cell_rows - 1) + 1):
                    # Cells of a row lie one after the other: a whole row is one run, or two left and right of the box.
                    row = (pz * s.cell_rows + py) * s.cell_columns
                    runs = int(1)
                    if wp.abs(pz - z) <= inner and wp.abs(py - y) <= inner:
                        runs = 2
                    for run in range(runs):
                        left = x - outer
                        right = x + outer
                        if runs == 2 and run == 0:
                            right = x - inner - 1
                        if run == 1:
                            left = x + inner + 1
                        left = wp.max(left, 0)
                        right = wp.min(right, s.cell_columns - 1)
                        if left <= right:
                            for slot in range(s.cell_start[env, row + left], s.cell_start[env, row + right + 1]):
                                other = s.cell_members[env, slot]
                                if other != besides and other >= first and other < end:
                                    d = wp.length_sq(place_at(s, env, other) - place)
                                    if d < square[last] or (d == square[last] and other < index[last]):
                                        if s.active[env, other]:
                                            # The same where agents do not come in index order: equally near ones stand by index.
                                            for j in range(last, 0, -1):
                                                if d < square[j - 1] or (d == square[j - 1] and other < index[j - 1]):
                                                    square[j] = square[j - 1]
                                                    index[j] = index[j - 1]
                                                elif d < square[j] or (d == square[j] and other < index[j]):
                                                    square[j] = d
                                                    index[j] = other
                                            if d < square[0] or (d == square[0] and other < index[0]):
                                                square[0] = d
                                                index[0] = other
            inner = outer
            beyond = _beyond(s, u, wp.vec3i(x, y, z), outer)
            if beyond <= 0.0 or (beyond < wp.inf and beyond * beyond <= square[last]):
                outer += 1
        return index, square

    @wp.func
    def search(s: Any, env: int, place: Any, besides: int, radius: float):
        index = Indices(-1)
        square = Squares(wp.inf)
        if radius >= 0.0:
            if by_lists(s):
                index, square = search_cells(s, env, place, besides, radius)
            else:
                index, square = compare_all(s, env, place, besides, radius)
        return index, square

    return search


@functools.cache
def _nearest(position: tuple[str, ...], dimensions: int, cells: bool | None, k: int, group: str | None) -> Any:
    """The Warp function `(s, env, agent, radius)` of the k nearest others of an agent: indices and distances."""
    place_at, search = place_of(position, dimensions), _nearest_to(position, dimensions, cells, k, group)
    Distances = wp.types.vector(k, float)

    @wp.func
    def nearest(s: Any, env: int, agent: int, radius: float = wp.inf):
        index, square = search(s, env, place_at(s, env, agent), agent, radius)
        distance = Distances(wp.inf)
        for j in range(k):
            if index[j] >= 0:
                distance[j] = wp.sqrt(square[j])
        return index, distance

    return nearest


# ---------------------------------------------------------------- all within a radius


def _fold(position: tuple[str, ...], dimensions: int, cells: bool | None, function: Any, group: str | None) -> Any:
    """The Warp function `(s, env, agent, radius, start)` that goes through all others within a radius."""
    place_at, in_cells, bounds = place_of(position, dimensions), coordinates(dimensions), range_of(group)
    by_lists = CHOICE[cells]

    @wp.func
    def fold_all(s: Any, env: int, agent: int, radius: float, start: Any):
        value = start
        place = place_at(s, env, agent)
        first, end = bounds(s)
        for other in range(first, end):
            if other != agent and s.active[env, other]:
                d = wp.length_sq(place_at(s, env, other) - place)
                if d < radius * radius:
                    value = function(s, env, agent, other, wp.sqrt(d), value)
        return value

    @wp.func
    def fold_cells(s: Any, env: int, agent: int, radius: float, start: Any):
        value = start
        place = place_at(s, env, agent)
        first, end = bounds(s)
        u = in_cells(s, place)
        reach = radius * s.cell_rate
        reach = reach + SLACK * (reach + wp.abs(u))
        low = wp.vec3i(
            along(u[0] - reach[0], s.cell_columns),
            along(u[1] - reach[1], s.cell_rows),
            along(u[2] - reach[2], s.cell_planes),
        )
        high = wp.vec3i(
            along(u[0] + reach[0], s.cell_columns),
            along(u[1] + reach[1], s.cell_rows),
            along(u[2] + reach[2], s.cell_planes),
        )
        for z in range(low[2], high[2] + 1):
            for y in range(low[1], high[1] + 1):
                row = (z * s.cell_rows + y) * s.cell_columns
                for slot in range(s.cell_start[env, row + low[0]], s.cell_start[env, row + high[0] + 1]):
                    other = s.cell_members[env, slot]
                    if other != agent and other >= first and other < end:
                        d = wp.length_sq(place_at(s, env, other) - place)
                        if d < radius * radius and s.active[env, other]:
                            value = function(s, env, agent, other, wp.sqrt(d), value)
        return value

    @wp.func
    def fold(s: Any, env: int, agent: int, radius: float, start: Any):
        value = start
        if radius > 0.0:
            if by_lists(s):
                value = fold_cells(s, env, agent, radius, start)
            else:
                value = fold_all(s, env, agent, radius, start)
        return value

    return fold


# ---------------------------------------------------------------- what an author makes


def per_cell(neighbours: int) -> float:
    """Agents that a cell should hold on average when so many neighbours are sought."""
    return max(1.0, neighbours / 3)


class Search:
    """A search for neighbours by the fields that hold positions; make it once, at the top of a module.

    What its methods return are Warp functions, to be called in phases. All of them find agents that take part
    (`s.active`) and lie closer than a radius, by distances in float32, equally near ones by index. Where agents have
    been sorted into cells they look into the cells nearby only, else at all agents: what is found is the same.

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
        if not (isinstance(names, tuple) and names and all(isinstance(n, str) and n.isidentifier() for n in names)):
            raise ValueError(f"position must be a field's name or a tuple of names, got {position!r}")
        if dimensions is None:
            dimensions = 2 if isinstance(position, str) else len(names)
        if dimensions not in (1, 2, 3):
            raise ValueError(f"dimensions must be 1, 2 or 3, got {dimensions!r}")
        if len(names) not in (1, dimensions):
            raise ValueError(f"position must name one field, or one for each of {dimensions} dimensions, got {names}")
        if cells not in (True, False, None):
            raise ValueError(f"cells must be True, False or None, got {cells!r}")
        self.position, self.dimensions, self.by_cells = names, dimensions, cells

    def nearest(self, k: int, among: str | None = None) -> Any:
        """The function `(s, env, agent)` or `(s, env, agent, radius)` of the k nearest others of an agent.

        It returns two vectors of length k: indices among all agents, nearest first, then -1 where there are no more;
        and distances, infinity where there are no more. A negative radius finds nobody.

        Args:
            k: number of neighbours; up to 16 are kept in registers on a GPU.
            among: the group to search; None: all agents.
        """
        return _nearest(self.position, self.dimensions, self.by_cells, positive_int("k", k), among)

    def fold(self, function: Any, among: str | None = None) -> Any:
        """The function `(s, env, agent, radius, start)` that gathers from all others of an agent within a radius.

        It returns the last of the values `value = function(s, env, agent, other, distance, value)`, beginning with
        `start`. Neighbours come in index order, or cell after cell where agents have been sorted: sums of floats may
        differ in the last bits between the two, and never otherwise.

        Args:
            function: a @wp.func.
            among: the group to search; None: all agents.
        """
        return _fold(self.position, self.dimensions, self.by_cells, function, among)

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
        if cells is None:
            cells = self.by_cells if self.by_cells is not None else agents >= CELLS_FROM
        shape = shape_for([y - x for x, y in zip(a, b, strict=True)], agents / per_cell(neighbours)) if cells else ()
        return layout(self.position, a, b, agents, shape)
