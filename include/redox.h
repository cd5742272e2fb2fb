/* SPDX-License-Identifier: Apache-2.0
 *
 * redox.h - the C face of Redox, a training-data loader.
 *
 * Conventions, the same everywhere:
 *   - Every function that can fail returns a redox_status; results come last, through pointers.
 *   - Handles are integers (table index + generation). 0 is never valid. A stale, closed or made-up
 *     handle gives REDOX_EBADF, never a crash.
 *   - The caller owns all memory it passes in. What a function must not keep it does not keep.
 *   - Text goes into (buf, cap); *need receives the length with its terminating NUL. If cap is too small:
 *     REDOX_ERANGE, buf untouched, nothing consumed. buf may be NULL when cap is 0.
 *   - Options are a JSON object in UTF-8, or NULL for the defaults. Unknown, repeated or impossible options:
 *     REDOX_EINVAL. A handle among them that is 0 or stale: REDOX_EBADF.
 *   - After a failure redox_last_error() has this thread's failure in words.
 *   - Any function may be called from any thread. In a process forked after the library was loaded every
 *     function that returns a redox_status returns REDOX_EFORK; the others go on working there.
 */
#ifndef REDOX_H
#define REDOX_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define REDOX_VERSION "0.1.0" /* of this header; redox_version() is that of the library */
#define REDOX_ABI_VERSION 1u
#define REDOX_ABSENT INT64_MIN /* in redox_plan_indices: no sample here */
#define REDOX_LOG_MIN 8192u    /* bytes that a buffer for redox_log_read has at least */

typedef uint64_t redox_dataset; /* an opened data set */
typedef uint64_t redox_loader;  /* one rank's passes over a data set, epoch after epoch */
typedef uint64_t redox_writer;  /* a data set being written */
typedef uint64_t redox_subset;  /* a chosen set of stored numbers */
typedef uint64_t redox_slot;    /* a lent batch */
typedef uint64_t redox_mesh;    /* this node's connections to the nodes that share the epochs */
typedef uint64_t redox_job;     /* long work in the background: packing files, verifying */

typedef enum {
  REDOX_OK = 0,
  REDOX_END_OF_EPOCH = 1,  /* no samples; the next call starts the next epoch */
  REDOX_EINVAL = -1,       /* an argument or option is wrong */
  REDOX_EBADF = -2,        /* stale, closed or unknown handle */
  REDOX_ERANGE = -3,       /* a buffer is too small; every `need` is set and nothing was consumed */
  REDOX_ENOTDATASET = -4,  /* no manifest there, or half-packed */
  REDOX_EFORMAT = -5,      /* not ours, newer, or inconsistent */
  REDOX_ECORRUPT = -6,     /* a checksum or structure is wrong */
  REDOX_EIO = -7,          /* storage failed after its retries */
  REDOX_EMEMORY = -8,      /* the memory limit is too small for the window */
  REDOX_ESTATE = -9,       /* a state that does not fit */
  REDOX_EPEER = -10,       /* a peer is lost and storage can't stand in, or refused us */
  REDOX_ETIMEDOUT = -11,   /* nothing came in time */
  REDOX_ECANCELED = -12,   /* redox_cancel or redox_job_cancel */
  REDOX_EFORK = -13,       /* called in a process forked after loading */
  REDOX_EVERSION = -14,    /* the caller was compiled for another ABI */
  REDOX_EINTERNAL = -15    /* a bug of ours */
} redox_status;

/* One field (column) of a batch. Fixed-size fields are one contiguous buffer of n_samples items; the others
 * are data + offsets, as in Arrow: sample i is data[offsets[i] .. offsets[i+1]). */
typedef struct {
  void *data;
  uint64_t cap, need;        /* bytes */
  uint64_t *offsets;         /* cap_samples + 1 entries; NULL for fixed-size fields */
  uint64_t *shape;           /* arrays of any shape: cap_samples x shape_cap dimensions, or NULL */
  uint32_t ndim, shape_cap;  /* ndim: the largest number of dimensions in this batch; unused ones are
                                UINT64_MAX. ndim > shape_cap: REDOX_ERANGE */
  uint8_t *valid;            /* fields that may be missing (`?`): 1 byte a sample, 0 = missing, or NULL */
  uint64_t reserved[2];
} redox_field;

typedef struct {
  uint32_t struct_size;      /* sizeof(redox_batch), set by the caller */
  uint32_t flags;            /* out: REDOX_BATCH_* */
  uint32_t n_fields;         /* in: entries of `fields`; must equal the loader's number of fields */
  uint32_t cap_samples;      /* in: room, in samples */
  uint32_t n_samples;        /* out; with REDOX_ERANGE: how many the batch has */
  uint32_t reserved;
  uint64_t epoch, step;      /* out: the epoch, and this rank's number of the batch in it */
  int64_t *index;            /* out: stored numbers, cap_samples entries, or NULL. Padding under pad="mark": -1 - i */
  redox_field *fields;
} redox_batch;

#define REDOX_BATCH_SKIPPED 1u /* at least one sample of this batch stands in for a corrupt one */

/* ---- data sets ---------------------------------------------------------------------------------------- */

/* Opens the data set at `path`. Reads the manifest and the chunk index, no samples. abi = REDOX_ABI_VERSION. */
redox_status redox_open(const char *path, const char *options_json, uint32_t abi, redox_dataset *out);
/* What is in it, as JSON: samples, chunks, fields (in batch order, with kind, dtype, shape, item size), ... */
redox_status redox_info(redox_dataset ds, char *json, size_t cap, size_t *need);
/* Random access: the n samples with these stored numbers, in this order. For looking, not for training. */
redox_status redox_read(redox_dataset ds, const int64_t *numbers, size_t n, redox_batch *batch);
/* What redox_read did so far, as JSON with the names of redox_stats. */
redox_status redox_read_stats(redox_dataset ds, char *json, size_t cap, size_t *need);
/* Source numbers of n stored numbers; and their keys, NUL-terminated one after the other. Either may be NULL; without
 * `keys` only *need is set. */
redox_status redox_origin(redox_dataset ds, const int64_t *numbers, size_t n, int64_t *sources, char *keys, size_t cap,
                          size_t *need);
/* The stored number of the sample with this key, or REDOX_EINVAL. Reads the tables of all chunks once. */
redox_status redox_find_key(redox_dataset ds, const char *key, int64_t *number);
/* The stored numbers of global batch `step`, from the plan alone: world_size x batch_size entries, rank by rank,
 * REDOX_ABSENT where a rank gets none. *need: entries. Options: those of a loader, and `epoch`, `seed`. */
redox_status redox_plan_indices(redox_dataset ds, const char *options_json, uint64_t step, int64_t *out, size_t cap,
                                size_t *need);
/* What an epoch would cost, without reading data, as JSON. */
redox_status redox_simulate(redox_dataset ds, const char *options_json, char *json, size_t cap, size_t *need);
/* A subset for the loader option "subset_handle": n stored numbers in ascending order, copied. */
redox_status redox_subset_new(redox_dataset ds, const int64_t *numbers, size_t n, redox_subset *out);
redox_status redox_subset_close(redox_subset subset);
redox_status redox_close(redox_dataset ds);

/* ---- loading ------------------------------------------------------------------------------------------ */

redox_status redox_loader_new(redox_dataset ds, const char *options_json, redox_loader *out);
/* Fills the caller's buffers with this rank's next batch. timeout_ms < 0: the loader's own timeout. */
redox_status redox_next_batch(redox_loader loader, redox_batch *batch, int64_t timeout_ms);
/* As redox_next_batch, but samples of varying size go to memory of their own: sample i of field k to parts[k][i], which
 * has offsets[i + 1] - offsets[i] bytes. parts[k] NULL, or parts NULL: to data, as ever. Where those are not the sizes
 * of this batch: REDOX_ERANGE, and offsets has them, so a first call with data NULL and cap 0 asks for them. */
redox_status redox_next_parts(redox_loader loader, redox_batch *batch, void *const *const *parts, int64_t timeout_ms);
/* Lends the next batch, assembled ahead in the loader's memory: sets data, offsets, shape, valid and index of
 * `batch` (whose n_fields and fields the caller supplies) to memory that stays valid and unchanged until
 * redox_release(*slot), even after the loader was closed. The memory may be written to. When the caller holds
 * all slots: REDOX_ERANGE with every `need` set; redox_next_batch then still works. */
redox_status redox_acquire(redox_loader loader, redox_batch *batch, int64_t timeout_ms, redox_slot *slot);
redox_status redox_release(redox_slot slot);
redox_status redox_set_epoch(redox_loader loader, uint64_t epoch);
redox_status redox_state(redox_loader loader, char *json, size_t cap, size_t *need);
redox_status redox_restore(redox_loader loader, const char *json);
redox_status redox_stats(redox_loader loader, char *json, size_t cap, size_t *need);
/* Wakes every call that waits in this loader (REDOX_ECANCELED). The loader stays usable. */
redox_status redox_cancel(redox_loader loader);
/* At the end of a program of several nodes: waits until what other nodes want of an epoch that was delivered whole has been
 * sent to them, else they have to read it from storage. Nodes that have gone are not waited for. REDOX_ETIMEDOUT: not all
 * of it. */
redox_status redox_loader_rest(redox_loader loader, int64_t timeout_ms);
redox_status redox_loader_close(redox_loader loader);

/* ---- several nodes ------------------------------------------------------------------------------------ */

/* Nodes that share the epochs of a data set send each other samples (option "exchange"). A loader whose world has more
 * than one node finds the others by itself where the environment names them (REDOX_PEERS, see docs/capi.md), or uses a
 * mesh (option "mesh"), which is made before it: each node listens, publishes its card by any means that only the job
 * can write to, and gets the cards of all nodes. Options: those of the loaders, and "listen" (host:port), "interface"
 * (name or address), "reach" (a host in whose direction to listen), "ordinal" (how manyth ports from REDOX_PEERS on). */
redox_status redox_mesh_new(redox_dataset ds, const char *options_json, redox_mesh *out);
/* How the others reach this node, and the key that it will prove: JSON. "static": true where the environment names all
 * nodes, so that no card has to go anywhere. */
redox_status redox_mesh_card(redox_mesh mesh, char *json, size_t cap, size_t *need);
/* Takes the cards of all nodes, a JSON array (NULL: as the environment has them), and waits until all are connected:
 * REDOX_EPEER when one refuses this node, REDOX_EINVAL when its data set or options differ, REDOX_ETIMEDOUT names who is
 * missing. timeout_ms 0: does not wait; < 0: the option. May be called again when nodes were started anew. */
redox_status redox_mesh_meet(redox_mesh mesh, const char *cards_json, int64_t timeout_ms);
redox_status redox_mesh_close(redox_mesh mesh); /* loaders that use it keep it */

/* ---- writing ------------------------------------------------------------------------------------------ */

redox_status redox_writer_new(const char *dst, const char *options_json, redox_writer *out);
/* One sample: for each field `data` and `cap` = its bytes; `shape`, `ndim` for arrays of any shape; `valid`
 * pointing to 0 for a missing value. Copied before the call returns. REDOX_EINVAL, and the writer goes on without it: sizes
 * that do not fit, a str that is not UTF-8, a json that is not JSON. */
redox_status redox_writer_write(redox_writer writer, const redox_field *fields, uint32_t n_fields);
/* The same with the sample's number in its source, ascending up to INT64_MAX, and its key in UTF-8 (NULL: the number). */
redox_status redox_writer_write_from(redox_writer writer, const redox_field *fields, uint32_t n_fields, uint64_t source,
                                     const char *key);
/* How many source samples an interrupted earlier run has safely taken: go on with that number. */
redox_status redox_writer_resumed(redox_writer writer, uint64_t *samples);
/* Publishes the data set. On failure nothing opens as one; the writer is closed either way. */
redox_status redox_writer_commit(redox_writer writer);
/* Ends a writer without a data set; from another thread also a commit that is under way. Where storage stands still both
 * return within about 1 s of the abort (REDOX_ECANCELED) and leave behind what hangs. */
redox_status redox_writer_abort(redox_writer writer);

/* ---- long work ---------------------------------------------------------------------------------------- */

/* Starts `kind`: "pack_files" (a tree of files, read in parallel) or "verify". See docs/capi.md for options. */
redox_status redox_job_new(const char *kind, const char *options_json, redox_job *out);
/* Waits up to timeout_ms, for ever if it is negative. REDOX_ETIMEDOUT: still running, json = progress {"done", "total",
 * "unit"}. REDOX_OK: done, json = result, which can be asked for again. Else it failed. */
redox_status redox_job_wait(redox_job job, int64_t timeout_ms, char *json, size_t cap, size_t *need);
/* Asks the work to stop; from any thread, and too late does no harm. Waits return REDOX_ECANCELED within about 1 s, even
 * if a read or write hangs in storage that stands still: the work is then left behind. */
redox_status redox_job_cancel(redox_job job);
/* Cancels it if it still runs, and waits as redox_job_wait does then. The handle is stale, whatever it returns. */
redox_status redox_job_close(redox_job job);

/* ---- engine processes --------------------------------------------------------------------------------- */

/* The whole life of an engine process, which serves batches to other processes of its node (docs/attached.md): takes over
 * a listening SOCK_SEQPACKET unix socket and returns when the last training process that it serves is gone. Options:
 * "log_file", a file descriptor opened for appending that is given to clients. */
redox_status redox_engine_serve(int socket, const char *options_json);

/* ---- about -------------------------------------------------------------------------------------------- */

const char *redox_version(void);
uint32_t redox_abi_version(void);
/* A hash of the sources that the library was built from: tells a checkout's library from its newer sources. Empty in
 * a forked child. */
const char *redox_source_hash(void);
const char *redox_strerror(redox_status status);
/* This thread's last failure, in words. Returns the length needed with its NUL; writes if cap suffices. */
size_t redox_last_error(char *buf, size_t cap);
/* The same failure as JSON: {"status", "message", and what applies of "path", "errno", "shard", "chunk", "sample", "needed",
 * "given", "window", "peer"}. */
size_t redox_last_error_json(char *buf, size_t cap);
/* Takes the log lines since the last call, as many as fit, one JSON object a line: {"level", "message"}; empty when there
 * are none. Lines too old are dropped and counted. cap under REDOX_LOG_MIN: REDOX_ERANGE. */
redox_status redox_log_read(char *buf, size_t cap, size_t *need);

#ifdef __cplusplus
}
#endif
#endif /* REDOX_H */
