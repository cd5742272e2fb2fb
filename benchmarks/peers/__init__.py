"""The loaders that are compared, each used as its own documentation recommends, one in each file.

An adapter `peers/NAME_peer.py` has

    PACKAGE                               the distribution that it needs, "" for torch alone
    write(path, rows, shape)              writes (number, bytes) pairs in its format
    load(path, shape, workers, cache)     a loader; iterating it is an epoch of batches, (values, labels) or a dict
                                          with "x" and "label"; `cache` is a local folder for what it wants to keep
    state(loader), resume(loader, state)  if it can be resumed: where it stands, and to go on there with a new one; the
                                          state is pickled between
"""
