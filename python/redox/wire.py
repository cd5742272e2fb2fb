"""The messages between an engine process and its clients; docs/attached.md explains them.

Little-endian, fixed layouts. Every message begins with HEAD: its kind, VERSION, two unused bytes and the number of the
request, which the answer repeats.
"""

from __future__ import annotations

from struct import Struct

VERSION = 1
MAX = 128 << 10  # bytes of a message

HEAD = Struct("<BBHI")  # kind, version, 0, number
BEGIN = Struct("<QQIIQQQqQq")  # base seed, nth, worker, workers, birth; then as WORD
WORD = Struct("<QQqQq")  # serial, epoch, position, named; epoch that was seen since, or -1
NEXT = Struct("<Q")  # number of the batch in the pass
CLAIM = Struct("<II")  # slot, generation
RELEASE = Struct("<IIq")  # slot, generation, tickets given away less those taken in
MEMORY = Struct("<Q")  # arena
SIZE = Struct("<q")  # bytes to allocate, samples that were skipped
READ = Struct("<II")  # worker, workers; then stored numbers, i64 each, if no file has them
WAIT = Struct("<Q")  # milliseconds, or COULD_NOT; behind it the cards, or the failure
URGENT = Struct("<Q")  # 1: lines of the log are wanted now, whoever else may ask

WELCOMED = Struct("<QQ")  # pid of the engine, instance
BEGAN = Struct("<QQQQQ")  # epoch, start, batches, arena, its size
BATCH = Struct("<IIIIQQQQ")  # slot, generation, samples, flags; arena, epoch, step, place of the index
COLUMN = Struct("<QQQQQQ")  # places of data, bytes of data, places of offsets, shape, validity, dimensions
KEEPING = Struct("<Q")  # behind the columns: COPY, NO_HURRY or 0
CLAIMED = Struct("<QQQQ")  # keeping, arena, epoch, step
MAPPED = Struct("<QQ")  # arena, its size
ALLOCATED = Struct("<IIQQ")  # slot, generation, arena, place

NOWHERE = (1 << 64) - 1  # the place of what a column lacks
NO_EPOCH = (1 << 64) - 1  # the epoch of samples that were read by number
COULD_NOT = (1 << 64) - 1  # a client has not got the cards
NO_BASE = (1 << 64) - 1  # the base seed of a pass that a trainer makes itself

# Keeping a batch: copy it and give it back at once; or its RELEASE may wait for the next request.
COPY, NO_HURRY = 1, 2

# Requests; RELEASE_, BYE and LEAVE have no answer.
HELLO, BEGIN_, NEXT_, CLAIM_, RELEASE_, MEMORY_, SET, CHECK, STATUS, ORIGIN, BYE, LEAVE, ALLOCATE = range(1, 14)
READ_, COUNTS, WHO_MEETS, MEET = range(14, 18)
# Of those who look, listen and count.
LOOK, LINES, SKIPPED = 20, 21, 22
# Answers.
DONE, FAILED, WELCOME, BEGAN_, BATCH_, ENDED, CLAIMED_, MAPPED_, TEXT, ALLOCATED_, YOUR_CARD = range(64, 75)
