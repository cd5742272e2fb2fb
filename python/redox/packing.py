"""`redox.pack`: from any source to a data set.

Trees of files without a transform go to the core, which reads them itself, many at a time (`_pack_files`). Everything
else passes through Python: source → tasks → samples → transform → records (in worker processes where that pays) → the
core's writer, which spills, shuffles, compresses and publishes.
"""

from __future__ import annotations

import itertools
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from . import _native, identity, sources
from .encode import Encoder
from .info import Info
from .making import Encoding, Made, Maker, Refused, raised
from .paths import path_text
from .progress import Callback, Progress
from .schema import FieldsOption, Schema, check, given, infer
from .settings import WriteOptions, choice, cores
from .sink import WORK, Sink, existing
from .sources import Bad, Source, Task
from .sources.trees import text
from .workers import Workers

_log = logging.getLogger("redox")

_PEEK = 16  # samples that the schema is recognised from
_SLOW_S = 300e-6  # a sample that takes longer to make is worth worker processes
_MOST_WORKERS = 8  # by default; more rarely outrun the one process that feeds the core
_LISTED = 1000  # skipped samples that are named in the result


@dataclass(frozen=True)
class _Request:
    """One call of `pack`, checked."""

    source: Any
    dst: str
    found: str  # the format
    fields: FieldsOption
    transform: Callable[[Any], Any] | None
    on_error: str
    options: WriteOptions


def pack(
    src: Any,
    dst: str | os.PathLike[str],
    *,
    format: str = "auto",  # noqa: A002 - the public name
    shuffle: bool = True,
    seed: int = 0,
    codec: str = "auto",
    chunk_size: int | str = "auto",
    shard_size: int | str = "256mb",
    fields: FieldsOption = None,
    transform: Callable[[Any], Any] | None = None,
    workers: int | None = None,
    overwrite: bool = False,
    resume: bool = True,
    progress: Callback | bool | None = None,
    on_error: str = "raise",
) -> Info:
    """Packs a source into a data set at `dst`.

    An interrupted call (Ctrl-C, `kill -9`, a full disk) leaves nothing that opens as a data set; the same call again
    goes on where it stopped. Onto the complete data set of the same source and options it returns at once.

    Args:
        src: an image tree with one folder per class, a folder of any files, WebDataset tars (a path, a list, a brace
            pattern), a file of JSON lines, a map-style or iterable data set, a list of samples, a generator.
        dst: where the data set goes: a folder that is not there, is empty, or is ours.
        format: `"imagefolder"`, `"files"`, `"webdataset"`, `"jsonl"`, `"samples"`, or `"auto"`.
        shuffle: spread neighbours over the chunks by a seeded permutation, without holding the data in memory.
        seed: of that permutation.
        codec: `"lz4"`, `"none"`, or `"auto"` to try and choose.
        chunk_size: raw bytes a chunk, from 1 kb; `"auto"`: 8 MiB, less (from 256 KiB) for small data sets.
        shard_size: bytes a shard file.
        fields: kinds by field name (a list for tuples, one kind for single values). Recognised from the first sample
            if None. Keys of dict samples that it does not name are left out.
        transform: called with each sample, images decoded. Returns the sample to store, is a generator of several, or
            raises `redox.SkipSample`. It must depend on its sample alone (`workers=0` for one that does not).
        workers: processes for transforms and map-style data sets, threads for files; None chooses.
        overwrite: replace what is at `dst`, if it is ours.
        resume: go on with an interrupted call's work, and keep this one's if it is interrupted.
        progress: called with (samples done, total or None); True or False for a bar or none; None: a bar on a terminal.
        on_error: `"raise"`, or `"skip"`: samples that can't be read are counted and listed in the result.

    Returns:
        What is in the data set; `skipped` lists what was left out by `on_error`.

    Raises:
        ValueError: a wrong option, or a source without samples.
        TypeError: a value that fits no kind, or another than the first sample's; names field and sample.
        FileExistsError: `dst` holds something else, or a data set of another source or other options.
        StorageError: an unreadable source (a file name that is not UTF-8 and a pipe among files are that, too), a full
            disk.
    """
    options = WriteOptions(
        shuffle=shuffle,
        seed=seed,
        codec=codec,
        chunk_size=chunk_size,
        shard_size=shard_size,
        workers=workers,
        overwrite=overwrite,
        resume=resume,
    )
    choice("on_error", on_error, ("raise", "skip"))
    check(fields)
    if transform is not None and not callable(transform):
        raise ValueError(f"transform={transform!r}: expected a function of one sample")
    place = path_text("dst", dst)
    report = Progress(progress, "packing")
    found = sources.detect(src, format)
    _refuse_inside(src, place)
    request = _Request(src, place, found, fields, transform, on_error, options)
    try:
        if found in ("imagefolder", "files") and transform is None and fields is None:
            skipped = _pack_files(request, report)
        else:
            skipped = _pack_samples(request, report)
        info = Info.of(place, skipped=skipped)
        report(info.samples + len(skipped), info.samples + len(skipped))
    finally:
        report.close()
    advice = info.mixing["advice"]
    if advice:
        _log.warning("%s: %s", place, advice)
    return info


def _refuse_inside(src: Any, dst: str) -> None:
    """A data set inside the tree that it is made of would be packed with it the next time."""
    if not isinstance(src, (str, os.PathLike)) or not os.path.isdir(src):
        return
    root, place = os.path.realpath(src), os.path.realpath(dst)
    if os.path.commonpath([root, place]) == root:
        raise ValueError(f"dst={dst!r} lies inside src={os.fspath(src)!r}; choose a place outside")


def _pack_files(request: _Request, report: Progress) -> list[dict[str, Any]]:
    """A tree of files, read by the core."""
    src = os.fspath(request.source)
    for option, path in (("src", src), ("dst", request.dst)):
        if not path.isascii() and text(path) != path:
            raise ValueError(f"{option}={path!r}: expected a path in UTF-8")
    job = _native.job_new(
        "pack_files",
        {
            **request.options.native(),
            "src": src,
            "dst": request.dst,
            "format": request.found,
            "on_error": request.on_error,
        },
    )
    try:
        done = False
        while not done:
            done, state = _native.job_wait(job)
            if not done:
                report(int(state.get("done", 0)), state.get("total") or None)
    finally:
        _native.job_close(job)
    return list(state.get("skipped_sources") or [])


def _pack_samples(request: _Request, report: Progress) -> list[dict[str, Any]]:
    """Anything else, through Python."""
    source = sources.resolve(request.source, request.found, request.fields)
    digest = identity.fingerprint(
        source.identity(),
        {
            **request.options.content(),
            "format": request.found,
            "fields": request.fields,
            "transform": identity.of_callable(request.transform),
        },
    )
    if not request.options.overwrite:
        there = existing(request.dst)
        if there == digest:
            if os.path.exists(os.path.join(request.dst, WORK)):
                _Packing(request, source, digest, report).tidy()
            return []
        if there is not None:
            raise FileExistsError(
                f"{request.dst} is a data set of another source or of other options;"
                " pass overwrite=True to replace it, or another dst"
            )
    return _Packing(request, source, digest, report).run()


class _Unfit(Exception):  # noqa: N818 - a signal inside this module
    """A sample does not fit: going on later could not help, so nothing is kept."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class _Packing:
    """One pass of a source through Python into a writer."""

    def __init__(self, request: _Request, source: Source, digest: str, report: Progress) -> None:
        self._request = request
        self._source = source
        self._digest = digest
        self._report = report
        self._skipped: list[dict[str, Any]] = []
        self._written = 0

    def tidy(self) -> None:
        """Lets the core remove what a run left that was killed just after it had published."""
        maker = Maker(self._source, self._request.transform)
        schema = self._encoder(self._peek(maker, self._source.tasks(0, self._bad))).schema
        Sink(self._request.dst, schema, self._request.options, self._digest, self._source.classes).abort()

    def run(self) -> list[dict[str, Any]]:
        maker = Maker(self._source, self._request.transform)
        tasks = self._source.tasks(0, self._bad)
        started = time.perf_counter()
        head = self._peek(maker, tasks)
        seconds = (time.perf_counter() - started) / len(head)
        encoder = self._encoder(head)
        count = self._workers(seconds)
        # The workers start before the writer loads the library: what they inherit has no Go runtime in it, if the
        # program had not loaded it for something else.
        with Workers(maker.encoding(encoder), count) as workers:
            sink = Sink(self._request.dst, encoder.schema, self._request.options, self._digest, self._source.classes)
            try:
                first = 0 if maker.many else sink.resumed
                early = self._early(maker.encoding(encoder), head, first)
                late = workers.map(self._late(tasks, head[-1][0].number + 1, first))
                self._write(sink, itertools.chain(early, late), maker.many)
                sink.commit()
            except _Unfit as refusal:
                sink.discard()
                raise self._doubted(refusal.error) from None
            finally:
                sink.abort()
        return self._skipped

    def _peek(self, maker: Maker, tasks: Iterator[Task]) -> list[tuple[Task, list[Any]]]:
        """Makes the first samples: as many as tell the schema, in any case one."""
        head: list[tuple[Task, list[Any]]] = []
        found = False
        for task in tasks:
            samples = maker.samples(task)
            if isinstance(samples, Bad):
                self._bad(samples)
                samples = []
            head.append((task, samples))
            found = found or bool(samples)
            if found and len(head) >= _PEEK:
                break
        if not found:
            what = "every sample was left out" if head or self._skipped else "it holds no samples"
            raise ValueError(f"src: nothing to pack of {self._source.name}: {what}")
        return head

    def _encoder(self, head: list[tuple[Task, list[Any]]]) -> Encoder:
        flat = [(task.number, sample) for task, samples in head for sample in samples]
        fields = self._request.fields
        schema: Schema = (
            infer(flat, self._source.hints) if fields is None else given(flat[0][1], fields, self._source.hints)
        )
        return Encoder(schema, select=isinstance(fields, Mapping))

    def _workers(self, seconds: float) -> int:
        """As many processes as asked for; by default as many as there are cores, where samples are slow to make."""
        if self._request.options.workers is not None:
            return self._request.options.workers
        useful = self._request.transform is not None or self._source.costly
        enough = self._source.total is None or self._source.total > 4 * _PEEK
        return min(_MOST_WORKERS, cores()) if useful and enough and cores() > 1 and seconds > _SLOW_S else 0

    def _early(self, encode: Encoding, head: list[tuple[Task, list[Any]]], first: int) -> Iterator[Made | Refused]:
        """What was made to recognise the schema, so that no transform sees a sample twice."""
        return (encode.finish(task, samples) for task, samples in head if task.number >= first)

    def _late(self, tasks: Iterator[Task], seen: int, first: int) -> Iterator[Task]:
        """The tasks that are left: all from number `first` on."""
        if first > seen and not self._source.once:
            return self._source.tasks(first, self._bad)
        return (task for task in tasks if task.number >= first)

    def _write(self, sink: Sink, results: Iterator[Made | Bad | Refused], many: bool) -> None:
        total = self._source.total
        for result in results:
            if isinstance(result, Made):
                self._take(sink, result, many)
                self._report(result.number + 1, total)
            elif isinstance(result, Bad):
                self._bad(result)
            else:
                raise _Unfit(result.error)

    def _take(self, sink: Sink, made: Made, many: bool) -> None:
        """Writes what became of a sample.

        Where one sample becomes several, these are numbered in the order in which they come, and their keys tell whose
        they are. An interrupted run is then repeated from the source's beginning, and the core leaves out what it has.
        """
        if not many:
            if len(made.records) > 1:
                words = f"sample {made.number}: the transform returned a generator, but none for the first samples"
                raise _Unfit(TypeError(words))
            for record in made.records:
                sink.write(record, made.number, made.key)
        else:
            origin = made.number if made.key is None else made.key
            for place, record in enumerate(made.records):
                sink.write(record, self._written + place, f"{origin}#{place}")
        self._written += len(made.records)

    def _doubted(self, error: Exception) -> Exception:
        """Adds what may be why a sample does not fit."""
        doubt = self._source.doubt
        return TypeError(f"{error}; {doubt}") if doubt and type(error) is TypeError else error

    def _bad(self, bad: Bad) -> None:
        if self._request.on_error == "raise":
            raised(bad)
        if len(self._skipped) < _LISTED:
            self._skipped.append({"source": bad.number, "key": bad.key, "error": str(bad.error)})
