"""The search for a size, on rates, memory and time that are made up."""

import math

import pytest

from warpdrive.learn.size_search import Measured, SizeSearch

MIB = 2**20


class Machine:
    """A machine whose rate and memory are known; `limit` is where an update does not fit after all.

    Measuring makes five updates, which take `slow` times the seconds that the rate says.
    """

    def __init__(self, rate, per_step=MIB, constant=0, memory=2**50, limit=math.inf, slow=0.0):
        self.rate, self.per_step, self.constant, self.memory, self.limit = rate, per_step, constant, memory, limit
        self.slow, self.now = slow, 0.0
        self.tried = []

    def arrays(self, num_envs, steps):
        return num_envs * steps * MIB

    def measure(self, num_envs, steps):
        self.tried.append((num_envs, steps))
        needed = self.constant + self.per_step * num_envs * steps
        if needed > self.limit:
            raise MemoryError
        rate = float(self.rate(num_envs, steps))
        seconds = self.slow * num_envs * steps / rate
        self.now += 5 * seconds
        return Measured(
            num_envs=num_envs,
            rollout_steps=steps,
            env_steps_per_s=rate,
            agent_steps_per_s=3 * rate,
            num_bytes=needed,
            seconds_per_update=seconds,
        )

    def search(self, steps=10, start=16, lengths=False, **options):
        return SizeSearch(
            measure=self.measure,
            array_bytes=self.arrays,
            free=lambda: self.memory,
            rollout_steps=steps,
            start=start,
            lengths=lengths,
            clock=lambda: self.now,
            **options,
        )


def saturating(num_envs, steps):
    """Rises in proportion up to 256 environments and not at all beyond."""
    return min(num_envs, 256)


def test_it_doubles_until_the_rate_no_longer_rises():
    """The smallest number at the highest rate is taken, two doublings beyond it were tried, each row reported."""
    machine, rows = Machine(saturating), []
    search = machine.search(report=rows.append)
    assert search.run().num_envs == 256
    assert [n for n, _ in machine.tried] == [16, 32, 64, 128, 256, 512, 1024]
    assert rows == search.rows
    assert search.stopped == "2 doublings brought less than 5% more"


def test_one_flat_doubling_is_passed_over():
    """A step in the rate does not end the search."""
    assert Machine(lambda n, t: 32 if n < 64 else n).search(most_envs=512).run().num_envs == 512


def test_small_gains_add_up():
    """Doublings of 4 % each are followed: two of them are a gain."""
    machine = Machine(lambda n, t: 1.04 ** math.log2(n))
    machine.search(most_envs=1024).run()
    assert machine.tried[-1] == (1024, 10)


def test_within_five_percent_fewer_environments_are_taken():
    """64 reach 96 % of what 128 do: 64 are taken."""
    assert Machine(lambda n, t: {16: 50, 32: 80, 64: 96, 128: 100, 256: 90, 512: 80}[n]).search().run().num_envs == 64


def test_what_would_not_fit_is_not_tried():
    """Memory is predicted from the line through two sizes; a tenth stays free."""
    machine = Machine(lambda n, t: n, per_step=3 * MIB, constant=100 * MIB, memory=4096 * MIB)
    search = machine.search()
    assert search.run().num_envs == 64
    # 100 + 3 * 640 = 2020 MiB at 64; 128 would take 3940, more than nine tenths of 4096.
    assert machine.tried == [(16, 10), (32, 10), (64, 10)]
    assert search.predicted_bytes(128, 10) == 3940 * MIB
    assert search.stopped == "128 environments x 10 steps would need 3.85 GiB of 4.00 GiB free"


def test_a_prediction_never_rises_slower_than_the_arrays():
    """Where the measured memory does not show that arrays grow, the arrays count."""
    search = Machine(lambda n, t: n, per_step=0, constant=100 * MIB).search(most_envs=32)
    search.run()
    assert search.predicted_bytes(64, 10) == 100 * MIB + 320 * MIB


def test_memory_that_ends_all_the_same_ends_the_search():
    """An update that does not fit against the prediction is the end, and the best so far is taken."""
    machine = Machine(lambda n, t: n, limit=2000 * MIB)
    search = machine.search()
    assert search.run().num_envs == 128
    assert machine.tried[-1] == (256, 10)
    assert search.stopped == "256 environments x 10 steps do not fit into memory"


@pytest.mark.parametrize("options", [{"memory": 100 * MIB}, {"limit": 100 * MIB}])
def test_when_not_even_the_first_fits(options):
    """There is nothing to take: a MemoryError says so."""
    with pytest.raises(MemoryError, match="not even 16 environments can be trained: 16 environments x 10 steps"):
        Machine(saturating, **options).search().run()


def test_time_ends_the_search():
    """A measurement that would take the search beyond its time is not begun; the first always is."""
    # An update of 16 environments takes 16 s, one of 32 takes 20 s, one of 64 takes 25 s; five of each are made.
    machine = Machine(lambda n, t: 10 * 1.6 ** (math.log2(n) - 4), slow=1.0)
    search = machine.search(seconds=430.0)
    assert search.run().num_envs == 64
    assert machine.now == 5 * (16 + 20 + 25)  # 305 s: five updates of 128, at most 50 s each, would end after 555 s
    assert search.stopped == "128 environments x 10 steps would take the search beyond 430 s"
    assert Machine(lambda n, t: n, slow=10.0).search(seconds=1.0).run().num_envs == 16


@pytest.mark.parametrize(("most", "tried"), [(100, [16, 32, 64, 100]), (64, [16, 32, 64]), (9, [9])])
def test_the_most_allowed_is_tried_last(most, tried):
    """Doubling ends at the limit itself, which may lie below the start."""
    machine = Machine(lambda n, t: n)
    search = machine.search(most_envs=most)
    assert search.run().num_envs == most
    assert [n for n, _ in machine.tried] == tried
    assert search.stopped == f"{most} environments are the most allowed"


def test_the_length_of_the_rollout_stays_unless_another_brings_more():
    """At equal rates the algorithm's own length is kept; twice as many for half as long and so on were tried."""
    machine = Machine(saturating)
    chosen = machine.search(lengths=True).run()
    assert (chosen.num_envs, chosen.rollout_steps) == (256, 10)
    assert machine.tried[-3:] == [(512, 5), (128, 20), (256, 20)]


@pytest.mark.parametrize(
    ("rate", "most", "size"),
    [
        (lambda n, t: min(n, 256) / t, 1024, (1024, 2)),  # short rollouts, of the same batch
        (lambda n, t: min(n, 64) * min(t, 40), 1024, (64, 40)),  # long ones
        (lambda n, t: min(n * t, 10_000), 256, (256, 40)),  # large batches of as many environments as are allowed
    ],
)
def test_other_lengths_are_taken_where_they_bring_more(rate, most, size):
    """The search goes on in the direction that brings more as long as it does."""
    chosen = Machine(rate).search(lengths=True, most_envs=most).run()
    assert (chosen.num_envs, chosen.rollout_steps) == size


def test_lengths_keep_to_the_limits():
    """Neither fewer than the least nor more than the most environments, and no rollout of no steps, is tried."""
    machine = Machine(lambda n, t: n / t)
    machine.search(steps=1, start=16, least_envs=16, most_envs=64, lengths=True).run()
    assert all(16 <= n <= 64 and t >= 1 for n, t in machine.tried)
    assert len(set(machine.tried)) == len(machine.tried)
