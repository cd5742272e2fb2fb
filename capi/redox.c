/* The entry points of redox.h: look for a fork, then call the Go export of the same name.
 *
 * They are C and not exported straight from Go because cgo cannot say const. Including both headers makes every
 * difference between redox.h and export.go a compile error.
 */
#include "shim.h"

#include "_cgo_export.h"

#include <pthread.h>

#define NOT_IN_FORKED_CHILD()                                                                                          \
  do {                                                                                                                 \
    if (redox_shim_forked()) {                                                                                         \
      return redox_shim_fail_forked();                                                                                 \
    }                                                                                                                  \
  } while (0)

/* ---- data sets -------------------------------------------------------------------------------------------- */

redox_status redox_open(const char *path, const char *options_json, uint32_t abi, redox_dataset *out) {
  NOT_IN_FORKED_CHILD();
  return goRedoxOpen((char *)path, (char *)options_json, abi, out);
}

redox_status redox_info(redox_dataset ds, char *json, size_t cap, size_t *need) {
  NOT_IN_FORKED_CHILD();
  return goRedoxInfo(ds, json, cap, need);
}

redox_status redox_read(redox_dataset ds, const int64_t *numbers, size_t n, redox_batch *batch) {
  NOT_IN_FORKED_CHILD();
  return goRedoxRead(ds, (int64_t *)numbers, n, batch);
}

redox_status redox_read_stats(redox_dataset ds, char *json, size_t cap, size_t *need) {
  NOT_IN_FORKED_CHILD();
  return goRedoxReadStats(ds, json, cap, need);
}

redox_status redox_origin(redox_dataset ds, const int64_t *numbers, size_t n, int64_t *sources, char *keys,
                          size_t cap, size_t *need) {
  NOT_IN_FORKED_CHILD();
  return goRedoxOrigin(ds, (int64_t *)numbers, n, sources, keys, cap, need);
}

redox_status redox_find_key(redox_dataset ds, const char *key, int64_t *number) {
  NOT_IN_FORKED_CHILD();
  return goRedoxFindKey(ds, (char *)key, number);
}

redox_status redox_plan_indices(redox_dataset ds, const char *options_json, uint64_t step, int64_t *out, size_t cap,
                                size_t *need) {
  NOT_IN_FORKED_CHILD();
  return goRedoxPlanIndices(ds, (char *)options_json, step, out, cap, need);
}

redox_status redox_simulate(redox_dataset ds, const char *options_json, char *json, size_t cap, size_t *need) {
  NOT_IN_FORKED_CHILD();
  return goRedoxSimulate(ds, (char *)options_json, json, cap, need);
}

redox_status redox_subset_new(redox_dataset ds, const int64_t *numbers, size_t n, redox_subset *out) {
  NOT_IN_FORKED_CHILD();
  return goRedoxSubsetNew(ds, (int64_t *)numbers, n, out);
}

redox_status redox_subset_close(redox_subset subset) {
  NOT_IN_FORKED_CHILD();
  return goRedoxSubsetClose(subset);
}

redox_status redox_close(redox_dataset ds) {
  NOT_IN_FORKED_CHILD();
  return goRedoxClose(ds);
}

/* ---- loading ---------------------------------------------------------------------------------------------- */

redox_status redox_loader_new(redox_dataset ds, const char *options_json, redox_loader *out) {
  NOT_IN_FORKED_CHILD();
  return goRedoxLoaderNew(ds, (char *)options_json, out);
}

redox_status redox_next_batch(redox_loader loader, redox_batch *batch, int64_t timeout_ms) {
  NOT_IN_FORKED_CHILD();
  return goRedoxNextBatch(loader, batch, timeout_ms);
}

redox_status redox_next_parts(redox_loader loader, redox_batch *batch, void *const *const *parts, int64_t timeout_ms) {
  NOT_IN_FORKED_CHILD();
  return goRedoxNextParts(loader, batch, (void *)parts, timeout_ms);
}

redox_status redox_acquire(redox_loader loader, redox_batch *batch, int64_t timeout_ms, redox_slot *slot) {
  NOT_IN_FORKED_CHILD();
  return goRedoxAcquire(loader, batch, timeout_ms, slot);
}

redox_status redox_release(redox_slot slot) {
  NOT_IN_FORKED_CHILD();
  return goRedoxRelease(slot);
}

redox_status redox_set_epoch(redox_loader loader, uint64_t epoch) {
  NOT_IN_FORKED_CHILD();
  return goRedoxSetEpoch(loader, epoch);
}

redox_status redox_state(redox_loader loader, char *json, size_t cap, size_t *need) {
  NOT_IN_FORKED_CHILD();
  return goRedoxState(loader, json, cap, need);
}

redox_status redox_restore(redox_loader loader, const char *json) {
  NOT_IN_FORKED_CHILD();
  return goRedoxRestore(loader, (char *)json);
}

redox_status redox_stats(redox_loader loader, char *json, size_t cap, size_t *need) {
  NOT_IN_FORKED_CHILD();
  return goRedoxStats(loader, json, cap, need);
}

redox_status redox_cancel(redox_loader loader) {
  NOT_IN_FORKED_CHILD();
  return goRedoxCancel(loader);
}

redox_status redox_loader_rest(redox_loader loader, int64_t timeout_ms) {
  NOT_IN_FORKED_CHILD();
  return goRedoxLoaderRest(loader, timeout_ms);
}

redox_status redox_loader_close(redox_loader loader) {
  NOT_IN_FORKED_CHILD();
  return goRedoxLoaderClose(loader);
}

/* ---- several nodes ---------------------------------------------------------------------------------------- */

redox_status redox_mesh_new(redox_dataset ds, const char *options_json, redox_mesh *out) {
  NOT_IN_FORKED_CHILD();
  return goRedoxMeshNew(ds, (char *)options_json, out);
}

redox_status redox_mesh_card(redox_mesh mesh, char *json, size_t cap, size_t *need) {
  NOT_IN_FORKED_CHILD();
  return goRedoxMeshCard(mesh, json, cap, need);
}

redox_status redox_mesh_meet(redox_mesh mesh, const char *cards_json, int64_t timeout_ms) {
  NOT_IN_FORKED_CHILD();
  return goRedoxMeshMeet(mesh, (char *)cards_json, timeout_ms);
}

redox_status redox_mesh_close(redox_mesh mesh) {
  NOT_IN_FORKED_CHILD();
  return goRedoxMeshClose(mesh);
}

/* ---- writing ---------------------------------------------------------------------------------------------- */

redox_status redox_writer_new(const char *dst, const char *options_json, redox_writer *out) {
  NOT_IN_FORKED_CHILD();
  return goRedoxWriterNew((char *)dst, (char *)options_json, out);
}

redox_status redox_writer_write(redox_writer writer, const redox_field *fields, uint32_t n_fields) {
  NOT_IN_FORKED_CHILD();
  return goRedoxWriterWrite(writer, (redox_field *)fields, n_fields);
}

redox_status redox_writer_write_from(redox_writer writer, const redox_field *fields, uint32_t n_fields,
                                     uint64_t source, const char *key) {
  NOT_IN_FORKED_CHILD();
  return goRedoxWriterWriteFrom(writer, (redox_field *)fields, n_fields, source, (char *)key);
}

redox_status redox_writer_resumed(redox_writer writer, uint64_t *samples) {
  NOT_IN_FORKED_CHILD();
  return goRedoxWriterResumed(writer, samples);
}

redox_status redox_writer_commit(redox_writer writer) {
  NOT_IN_FORKED_CHILD();
  return goRedoxWriterCommit(writer);
}

redox_status redox_writer_abort(redox_writer writer) {
  NOT_IN_FORKED_CHILD();
  return goRedoxWriterAbort(writer);
}

/* ---- long work -------------------------------------------------------------------------------------------- */

redox_status redox_job_new(const char *kind, const char *options_json, redox_job *out) {
  NOT_IN_FORKED_CHILD();
  return goRedoxJobNew((char *)kind, (char *)options_json, out);
}

redox_status redox_job_wait(redox_job job, int64_t timeout_ms, char *json, size_t cap, size_t *need) {
  NOT_IN_FORKED_CHILD();
  return goRedoxJobWait(job, timeout_ms, json, cap, need);
}

redox_status redox_job_cancel(redox_job job) {
  NOT_IN_FORKED_CHILD();
  return goRedoxJobCancel(job);
}

redox_status redox_job_close(redox_job job) {
  NOT_IN_FORKED_CHILD();
  return goRedoxJobClose(job);
}

/* ---- engine processes ------------------------------------------------------------------------------------- */

redox_status redox_engine_serve(int socket, const char *options_json) {
  NOT_IN_FORKED_CHILD();
  return goRedoxEngineServe(socket, (char *)options_json);
}

/* ---- about ------------------------------------------------------------------------------------------------ */

const char *redox_version(void) { return REDOX_VERSION; }

uint32_t redox_abi_version(void) { return REDOX_ABI_VERSION; }

static char source_hash[65];
static pthread_once_t source_hash_once = PTHREAD_ONCE_INIT;

static void ask_source_hash(void) { goRedoxSourceHash(source_hash, sizeof source_hash); }

const char *redox_source_hash(void) {
  if (redox_shim_forked()) {
    return "";
  }
  pthread_once(&source_hash_once, ask_source_hash);
  return source_hash;
}

redox_status redox_log_read(char *buf, size_t cap, size_t *need) {
  NOT_IN_FORKED_CHILD();
  return goRedoxLogRead(buf, cap, need);
}
