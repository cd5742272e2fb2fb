"""The command line from outside: what it prints, its exit codes, pipes and Ctrl-C."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import redox
from test_resume import ENVIRONMENT
from test_sources import make_tree, png, write_tar

COMMANDS = ("pack", "info", "verify", "cat", "plan", "simulate", "bench", "top", "demo")


def run(*words: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "redox", *map(str, words)]
    return subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=100, check=False, **options)


def good(*words: str | Path) -> str:
    done = run(*words)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli") / "tree"
    for label, name in enumerate(["cat", "dog"]):
        for i in range(20):
            make_tree(folder, [f"{name}/{i}.png"], png(100 * label + i))
    return folder


@pytest.fixture(scope="module")
def data(tree: Path) -> Path:
    good("pack", tree, tree.parent / "x.redox", "--chunk-size", "1kb")
    return tree.parent / "x.redox"


def test_help_has_an_example() -> None:
    assert "redox pack" in good("--help")
    for name in COMMANDS:
        said = good(name, "--help")
        assert f"example: redox {name}" in " ".join(said.split()), name
        assert "--json" in said
    assert good("--version") == f"redox {redox.__version__}\n"


def test_pack_tells_what_there_is(tree: Path, tmp_path: Path) -> None:
    done = run("pack", tree, tmp_path / "x")
    assert done.returncode == 0
    assert done.stderr == ""  # no bar in a pipe
    assert "40" in done.stdout
    again = json.loads(good("pack", tree, tmp_path / "x", "--json"))
    assert again["samples"] == 40
    assert again["classes"] == ["cat", "dog"]
    assert run("pack", tree, tmp_path / "x", "--seed", "7").returncode == 1
    assert json.loads(good("pack", tree, tmp_path / "x", "--seed", "7", "--overwrite", "--json"))["samples"] == 40
    tars = [write_tar(tmp_path / f"{i}.tar", [(f"{i}.txt", b"x"), (f"{i}.cls", b"1")]) for i in range(3)]
    packed = json.loads(good("pack", *tars, tmp_path / "y", "--field", "cls=int", "--json"))
    assert (packed["samples"], packed["fields"]) == (3, {"cls": "int"})


def test_pack_lists_what_it_skips(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree", ["a/1.png", "a/2.png"], png())
    (tree / "a" / "3.png").symlink_to("nowhere")
    assert "a/3.png" in run("pack", tree, tmp_path / "x").stderr
    assert "a/3.png" in good("pack", tree, tmp_path / "x", "--on-error", "skip")
    packed = json.loads(good("pack", tree, tmp_path / "y", "--on-error", "skip", "--json"))
    assert [entry["key"] for entry in packed["skipped"]] == ["a/3.png"]


def test_info(data: Path) -> None:
    told = json.loads(good("info", data, "--json"))
    assert {"path", "format_version", "fingerprint", "samples", "chunks", "shards", "bytes", "stored_bytes"} <= set(
        told
    )
    assert {"codec", "fields", "classes", "window", "memory", "mixing"} <= set(told)
    assert told["samples"] == 40
    assert told["memory"]["needed"] > 0
    assert told["mixing"]["vif"] < 1.5
    assert "cat, dog" in good("info", data)


def test_info_warns_of_poor_mixing(tmp_path: Path) -> None:
    with redox.Writer(tmp_path / "x", shuffle=False, chunk_size="1kb") as w:
        for i in range(4000):
            w.write({"label": i // 100, "data": bytes(100)})
    for name in ("info", "simulate"):
        done = run(name, tmp_path / "x")
        assert done.returncode == 0
        assert "shuffle=True" in done.stderr


def test_cat(data: Path) -> None:
    with redox.open(data) as d:
        number = d.find("dog/7.png")
    told = json.loads(good("cat", data, str(number), "--json"))
    assert (told["number"], told["key"], told["source"]) == (number, "dog/7.png", 20 + 17)  # in the order of names
    assert base64.b64decode(told["sample"]["image"]["base64"]) == png(107)
    assert told["sample"]["label"] == 1
    assert json.loads(good("cat", data, "--key", "dog/7.png", "--json")) == told
    assert "dog/7.png" in good("cat", data, str(number))
    command = [sys.executable, "-m", "redox", "cat", str(data), str(number), "--field", "image"]
    assert subprocess.run(command, env=ENVIRONMENT, capture_output=True, check=True).stdout == png(107)
    for words in (["--key", "nobody"], ["40"], [str(number), "--field", "nothing"]):
        done = run("cat", data, *words)
        assert (done.returncode, done.stdout) == (1, "")
        assert len(done.stderr.splitlines()) == 1
    assert run("cat", data).returncode == 2


def test_cat_of_every_kind(tmp_path: Path) -> None:
    sample = {"a": b"\0", "s": "ü", "i": 1 << 60, "f": 0.5, "b": True, "j": {"x": [None]}, "n": None}
    sample["x"] = np.arange(4.0).reshape(2, 2)
    fields = {"a": "bytes", "s": "str", "i": "int", "f": "float", "b": "bool", "j": "json", "x": "float64", "n": "int?"}
    redox.pack([sample], tmp_path / "x", fields=fields)
    told = json.loads(good("cat", tmp_path / "x", "0", "--json"))["sample"]
    array = {"dtype": "float64", "shape": [2, 2], "data": [[0.0, 1.0], [2.0, 3.0]]}
    assert told == {**sample, "a": {"base64": "AA=="}, "x": array}
    assert "float64[2, 2]" in good("cat", tmp_path / "x", "0")


def test_options_between_other_arguments(data: Path, tmp_path: Path) -> None:
    told = json.loads(good("cat", data, "3", "5", "--json"))
    assert json.loads(good("cat", data, "--json", "3", "5")) == told
    assert json.loads(good("cat", data, "3", "--json", "5")) == told
    assert good("cat", data, "--field", "label", "3", "5") == good("cat", data, "3", "5", "--field", "label")
    (tmp_path / "x.jsonl").write_text("1\n2\n")
    packed = json.loads(good("pack", tmp_path / "x.jsonl", "--codec", "none", tmp_path / "x", "--json"))
    assert (packed["samples"], packed["codec"]) == (2, "none")


def test_json_has_no_nan(tmp_path: Path) -> None:
    redox.pack([{"a": float("nan"), "x": [float("inf"), 1.0], "i": 1}], tmp_path / "x")

    def refused(word: str) -> None:
        raise AssertionError(word)

    told = json.loads(good("cat", tmp_path / "x", "0", "--json"), parse_constant=refused)["sample"]
    assert (told["a"], told["x"]["data"], told["i"]) == (None, [None, 1.0], 1)


def test_plan(data: Path, tmp_path: Path) -> None:
    words = ("--batch-size", "8", "--world-size", "2", "--epoch", "1", "--seed", "5")
    told = json.loads(good("plan", data, "--step", "1", *words, "--json"))
    with redox.open(data) as d:
        wanted = d.batch_indices(1, epoch=1, seed=5, batch_size=8, world_size=2)
    assert told["ranks"] == wanted.tolist()
    assert good("plan", data, "--step", "1", *words).splitlines()[1].startswith("rank 1: ")
    assert "dog/" in good("plan", data, "--keys")
    words = (*words, "--nodes", "2", "--exchange", "0.5", "--keep", "run", "--drop-last")
    told = json.loads(good("plan", data, *words, "--json"))
    options = {"epoch": 1, "seed": 5, "batch_size": 8, "world_size": 2, "nodes": 2, "exchange": 0.5, "keep": "run"}
    with redox.open(data) as d:
        assert told["ranks"] == d.batch_indices(0, drop_last=True, **options).tolist()
    done = run("plan", data, "--step", "100")
    assert (done.returncode, done.stdout) == (1, "")


def test_plan_from_a_state(data: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    ds = redox.RedoxDataset(data, batch_size=8, shuffle_seed=3, batched=True, with_index=True, decode=False)
    ds.set_epoch(2)
    batches = iter(ds)
    next(batches)
    file = tmp_path / "state.json"
    file.write_text(json.dumps(ds.state_dict()))
    wanted = next(batches)[-1].tolist()
    told = json.loads(good("plan", data, "--state", file, "--batch-size", "8", "--json"))
    assert (told["epoch"], told["ranks"]) == (2, [wanted])
    for wrong in ("[]", '{"version": 1}', json.dumps({**ds.state_dict(), "dataset": "0" * 64})):
        file.write_text(wrong)
        done = run("plan", data, "--state", file)
        assert (done.returncode, done.stdout) == (1, "")
        assert str(file) in done.stderr


def test_simulate(data: Path) -> None:
    told = json.loads(good("simulate", data, "--batch-size", "4", "--world-size", "2", "--nodes", "2", "--json"))
    with redox.open(data) as d:
        assert told["reads"] == d.info.chunks
    assert told["samples"] == 40
    assert "reads" in good("simulate", data)
    assert "reads" in good("simulate", data, "--exchange", "0.25", "--world-size", "2", "--nodes", "2")
    assert run("simulate", data, "--exchange", "1.5").returncode == 2
    assert redox.simulate(data, batch_size=4, world_size=2, nodes=2).to_json() == told


def test_verify(data: Path, tmp_path: Path) -> None:
    assert "good" in good("verify", data)
    assert json.loads(good("verify", data, "--json"))["ok"] is True
    hurt = tmp_path / "hurt"
    redox.pack([os.urandom(500) for _ in range(100)], hurt, chunk_size="4kb", codec="none")
    shard = next((hurt / "shards").iterdir())
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(content)
    done = run("verify", hurt, "--json")
    told = json.loads(done.stdout)
    assert (done.returncode, told["ok"]) == (1, False)
    assert told["damage"]
    assert run("verify", hurt).returncode == 1


def test_repair(data: Path, tmp_path: Path) -> None:
    lost = tmp_path / "lost"
    redox.pack([{"a": i} for i in range(100)], lost, chunk_size="1kb")
    (lost / "chunks.idx").unlink()
    assert run("verify", lost).returncode == 1
    assert run("verify", lost, "--repair").returncode == 0
    assert run("verify", lost).returncode == 0
    with redox.open(lost) as d:
        assert sorted(s["a"] for s in d) == list(range(100))


@pytest.mark.parametrize("name", ["info", "verify", "cat", "plan", "simulate", "bench"])
def test_what_is_no_data_set(name: str, tmp_path: Path) -> None:
    words = [name, tmp_path, "0"] if name == "cat" else [name, tmp_path]
    done = run(*words)
    assert done.returncode == 1
    assert str(tmp_path) in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "line",
    [
        "",
        "nothing",
        "info",
        "pack x",
        "pack a b --codec zip",
        "pack a b --seed x",
        "pack a b --chunk-size big",
        "cat x one",
        "cat x",
        "simulate x --batch-size 0",
        # what only the library finds wrong:
        "pack . b --chunk-size 3",
        "pack . b --shard-size 3",
        "pack . b --workers 5000",
        "pack . b --seed 99999999999999999999",
        "pack . b --field a=zip",
        "simulate DATA --nodes 3",
        "simulate DATA --batch-size 99999999999",
        "plan DATA --partitions 99999",
        "plan DATA --nodes 3",
        "plan DATA --world-size 9999999999999",
        "bench DATA --batch-size 99999999999",
    ],
)
def test_usage(data: Path, line: str) -> None:
    done = run(*(data if word == "DATA" else word for word in line.split()))
    assert done.returncode == 2
    assert "usage: redox" in done.stderr
    assert done.stdout == ""


def test_a_reader_that_goes(data: Path) -> None:
    numbers = " ".join(str(i) for i in range(40)) + " "
    line = f"{sys.executable} -m redox cat {data} {numbers * 50} --json | head -n 1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", line], env=ENVIRONMENT, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "[\n", "")


@pytest.mark.parametrize("late", [False, True])
def test_ctrl_c(tmp_path: Path, late: bool) -> None:
    line = json.dumps({"a": "x" * 1000}) + "\n"
    (tmp_path / "x.jsonl").write_text(line * 300_000)
    command = [sys.executable, "-m", "redox", "pack", str(tmp_path / "x.jsonl"), str(tmp_path / "x"), "--codec", "none"]
    packing = subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    place = "shards/*" if late else ".redox-pack/spill/*"  # shards are begun when all samples were taken
    while not any((tmp_path / "x").glob(place)) and packing.poll() is None:
        time.sleep(0.01)
    packing.send_signal(signal.SIGINT)
    begin = time.monotonic()
    out, err = packing.communicate(timeout=20)
    assert time.monotonic() - begin < 2
    assert (packing.returncode, out, err) == (130, "", "redox: interrupted\n")
    with pytest.raises(redox.NotADatasetError):
        redox.open(tmp_path / "x")
    assert json.loads(good(*command[3:], "--json"))["samples"] == 300_000


def test_bench(data: Path) -> None:
    before = set(data.parent.iterdir())
    told = json.loads(good("bench", data, "--seconds", "1", "--batch-size", "8", "--json"))
    assert told["redox"]["samples_per_s"] > 0
    assert told["times_best_files"] > 0
    assert set(data.parent.iterdir()) == before


def test_top_without_engines(data: Path) -> None:
    assert json.loads(good("top", str(data), "--json")) == {"engines": []}
    assert "no engines" in good("top", str(data))
    assert isinstance(json.loads(good("top", "--every", "0.05", "--json"))["engines"], list)  # other programs' engines
    assert run("top", "--every", "0").returncode == 2
    assert "num_workers=0" in good("top", "--help")


def test_config(tmp_path: Path) -> None:
    def config(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "redox._config", *words]
        return subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False)

    assert config("--version").stdout == f"{redox.__version__}\n"
    assert config().returncode == 2
    flags = config("--cflags", "--libs").stdout.split()
    include = next(f for f in flags if f.startswith("-I")).removeprefix("-I")
    assert (Path(include) / "redox.h").is_file()
    (tmp_path / "x.c").write_text(
        "#include <redox.h>\n#include <stdio.h>\nint main(void) { puts(redox_version()); return 0; }\n"
    )
    built = subprocess.run(["cc", "x.c", *flags, "-o", "x"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    assert subprocess.run([tmp_path / "x"], capture_output=True, text=True, check=True).stdout.strip()
