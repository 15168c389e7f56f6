"""One clock for all processes (I31): whoever's clock is set, nobody's lease ends early or late."""

from __future__ import annotations

from fairlane.ledger.postgres.shared_clock import SYNC_PERIOD_MICROSECONDS, SharedClock
from fairlane.units import SECOND

HOUR = 3_600 * SECOND
START = 1_700_000_000 * SECOND


class Database:
    """A wall clock that can be set, and one row."""

    def __init__(self) -> None:
        self.passed, self.ahead, self.agreed, self.delay = 0, 0, "0/0/0", 0

    async def read(self) -> tuple[int, str]:
        self.passed += self.delay
        return START + self.passed + self.ahead, self.agreed

    async def write(self, old: str, new: str) -> bool:
        if self.agreed != old:
            return False
        self.agreed = new
        return True

    def process(self, *, wall: int = 0) -> Process:
        return Process(self, wall)


class Process:
    """Its wall clock can be set, and its machine can stand still."""

    def __init__(self, database: Database, wall: int) -> None:
        self._database, self.ahead, self.behind, self.slept = database, wall, 0, 0
        self.clock = SharedClock(
            database.read, database.write, self._monotonic, self._wall, self._boot
        )

    def _monotonic(self) -> int:
        return (77 * SECOND + self._database.passed - self.behind) * 1000

    def _wall(self) -> int:
        return (START + self._database.passed - self.behind + self.ahead) * 1000

    def _boot(self) -> int:
        return self._monotonic() + self.slept * 1000

    async def start(self) -> Process:
        await self.clock.start()
        await self.clock.stop()  # the test compares when it wants to
        return self

    def error(self, since: int = START) -> int:
        """How far it is from the time that has really passed."""
        return self.clock.now() - since - self._database.passed


async def pass_time(database: Database, duration: int, *processes: Process) -> None:
    for _ in range(duration // SECOND):
        database.passed += SECOND
        for process in processes:
            await process.clock.compare()


async def test_a_process_has_the_databases_time_whatever_its_own_wall_clock_says() -> None:
    """I31: gateways an hour off agree with each other."""
    database = Database()
    early = await database.process(wall=-HOUR).start()
    late = await database.process(wall=HOUR).start()
    assert early.clock.now() == late.clock.now() == START


async def test_a_wall_clock_that_is_set_while_a_process_runs_changes_nothing() -> None:
    """I31: an hour forward, and back again."""
    database = Database()
    process = await database.process().start()
    for ahead in (HOUR, -HOUR, 0):
        process.ahead = ahead
        await pass_time(database, 30 * SECOND, process)
        assert abs(process.error()) < SECOND // 10


async def test_time_goes_on_when_the_databases_clock_is_set() -> None:
    """I31: an hour forward or back, for all who are there and for all who come."""
    for jump in (HOUR, -HOUR, 5 * SECOND):
        database = Database()
        here = [await database.process().start() for _ in range(3)]
        await pass_time(database, 20 * SECOND, *here)
        database.ahead = jump
        await pass_time(database, 20 * SECOND, *here)
        newcomer = await database.process().start()
        for process in (*here, newcomer):
            assert abs(process.error()) < SECOND // 10
            assert process.clock.steady()


async def test_a_clock_that_database_and_process_share_may_be_set() -> None:
    """I31: both stand on one machine, whose time is set, and set back."""
    for jump in (HOUR, -HOUR):
        database = Database()
        process = await database.process().start()
        await pass_time(database, 20 * SECOND, process)
        for ahead in (jump, 0):
            database.ahead = process.ahead = ahead
            await pass_time(database, 20 * SECOND, process)
            assert abs(process.error()) < SECOND // 10


async def test_who_starts_while_the_databases_clock_is_wrong_judges_nobody_yet() -> None:
    """I31: until the others have said how late it is."""
    database = Database()
    here = await database.process().start()
    await pass_time(database, 20 * SECOND, here)
    database.ahead = HOUR
    newcomer = await database.process().start()
    assert not newcomer.clock.steady()
    await pass_time(database, 2 * SYNC_PERIOD_MICROSECONDS, here, newcomer)
    assert abs(newcomer.error()) < SECOND
    assert abs(here.error()) < SECOND


async def test_a_machine_that_stood_still_takes_the_time_over() -> None:
    """I32: it does not set everybody else's clock back."""
    database = Database()
    here = [await database.process().start() for _ in range(2)]
    asleep = await database.process().start()
    await pass_time(database, 20 * SECOND, *here, asleep)
    database.passed += 60 * SECOND
    asleep.behind, asleep.slept = 60 * SECOND, 60 * SECOND
    await pass_time(database, 30 * SECOND, *here, asleep)
    for process in (*here, asleep):
        assert abs(process.error()) < SECOND


async def test_processes_that_disagree_about_a_jump_come_to_an_end() -> None:
    """I32: one whose clocks all stood still believes that the database's was set."""
    database = Database()
    here = [await database.process().start() for _ in range(2)]
    asleep = await database.process().start()
    await pass_time(database, 20 * SECOND, *here, asleep)
    database.passed += 60 * SECOND
    asleep.behind = 60 * SECOND
    await pass_time(database, 60 * SECOND, asleep, *here)
    agreed = database.agreed.split("/")[1]
    await pass_time(database, 300 * SECOND, asleep, *here)
    assert database.agreed.split("/")[1] == agreed, "nobody corrects anybody any more"
    times = [process.clock.now() for process in (*here, asleep)]
    assert max(times) - min(times) < SECOND


async def test_an_answer_that_took_long_says_nothing() -> None:
    """I32: stopped between asking the database and looking at its own clock."""
    database = Database()
    process = await database.process().start()
    await pass_time(database, 20 * SECOND, process)
    database.delay = 60 * SECOND
    for _ in range(3):
        await process.clock.compare()
    database.delay = 0
    assert abs(process.error()) < SECOND // 10
    assert database.agreed.startswith("0/0/")


async def test_a_small_difference_is_made_up_for_without_a_step() -> None:
    database = Database()
    process = await database.process().start()
    await pass_time(database, 20 * SECOND, process)
    for ahead in (SECOND // 2, -SECOND // 2):
        database.ahead = ahead
        before = process.clock.now()
        for _ in range(200):
            database.passed += SECOND // 10
            await process.clock.compare()
            step = process.clock.now() - before
            assert SECOND // 12 < step < SECOND // 8
            before = process.clock.now()
        assert abs(process.error() - ahead) < SECOND // 100
