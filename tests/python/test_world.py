"""Which rank a process is."""

from __future__ import annotations

import pytest
from redox.world import World

VARIABLES = [
    *("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_TASKS_PER_NODE"),
    *("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"),
]


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def test_alone() -> None:
    assert World.resolve() == World(0, 1, 1)


@pytest.mark.parametrize(
    ("variables", "world"),
    [
        ({"RANK": "3", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4"}, World(3, 8, 2)),
        ({"RANK": "0", "WORLD_SIZE": "2"}, World(0, 2, 1)),
        ({"SLURM_PROCID": "5", "SLURM_STEP_NUM_TASKS": "8", "SLURM_STEP_TASKS_PER_NODE": "4(x2)"}, World(5, 8, 2)),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}, World(1, 2, 1)),
        ({"WORLD_SIZE": "1"}, World(0, 1, 1)),
    ],
)
def test_launchers(variables: dict[str, str], world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert World.resolve() == world


def test_arguments_come_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "8")
    assert World.resolve(1, 2) == World(1, 2, 1)
    assert World.resolve(size=1) == World(0, 1, 1)
    assert World.resolve(nodes=4) == World(3, 8, 4)


def test_an_environment_without_a_rank_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match="WORLD_SIZE=2 but no RANK"):
        World.resolve()
    monkeypatch.setenv("RANK", "x")
    with pytest.raises(ValueError, match="RANK='x'"):
        World.resolve()


@pytest.mark.parametrize(
    "arguments", [(None, 2, None), (1, None, None), (2, 2, None), (-1, 2, None), (0, 0, None), (0, 2, 3)]
)
def test_impossible_worlds(arguments: tuple[int | None, int | None, int | None]) -> None:
    with pytest.raises(ValueError, match=r"rank|world_size|nodes"):
        World.resolve(*arguments)


def test_more_addresses_than_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("REDOX_PEERS", "a:1,b:1,")
    with pytest.raises(ValueError, match="REDOX_PEERS='a:1,b:1,': 3 addresses"):
        World.resolve()


def test_scripts_that_hand_on_the_launchers_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "5", "WORLD_SIZE": "8", "SLURM_PROCID": "5", "SLURM_NODEID": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("SLURM_STEP_TASKS_PER_NODE", "4(x2)")
    assert World.resolve() == World(5, 8, 1)  # a step of one task on each node, perhaps: nothing says
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "8")
    assert World.resolve() == World(5, 8, 2)
    monkeypatch.setenv("RANK", "1")
    with pytest.raises(ValueError, match="SLURM_NODEID"):
        World.resolve()
