/* An example: read two epochs of a packed data set of encoded images and labels, as a trainer in C would.
 *
 *     trainer train.redox
 *
 * Batches are lent: their memory belongs to the loader, which assembles the next ones meanwhile. The program needs to
 * know the fields of its data set; `redox info` prints them. The first is of any kind with samples of different sizes
 * (an image), the second an int.
 *
 *     cc -std=c99 trainer.c $(redox-config --cflags --libs) -o trainer
 */
#include <redox.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { IMAGE, LABEL, FIELDS };

/* Prints why a call failed and passes its status on. */
static redox_status explain(const char *what, redox_status status) {
  char words[1024];
  if (status < 0) {
    words[0] = '\0';
    redox_last_error(words, sizeof words);
    fprintf(stderr, "trainer: %s: %s\n", what, words[0] != '\0' ? words : redox_strerror(status));
  }
  return status;
}

/* Reads one epoch and prints what it saw. */
static redox_status train(redox_loader loader) {
  redox_field fields[FIELDS];
  redox_batch batch;
  redox_slot slot;
  redox_status status;
  uint64_t samples = 0, bytes = 0, batches = 0;
  int64_t labels = 0;
  uint32_t i;

  memset(&batch, 0, sizeof batch);
  memset(fields, 0, sizeof fields);
  batch.struct_size = (uint32_t)sizeof batch;
  batch.n_fields = FIELDS;
  batch.fields = fields;
  while ((status = redox_acquire(loader, &batch, -1, &slot)) == REDOX_OK) {
    const uint64_t *offsets = fields[IMAGE].offsets;
    const int64_t *label = (const int64_t *)fields[LABEL].data;

    for (i = 0; i < batch.n_samples; i++) {
      /* Sample i: the bytes of `data` from offsets[i] up to offsets[i + 1]. A trainer decodes them here. */
      bytes += offsets[i + 1] - offsets[i];
      labels += label[i];
    }
    samples += batch.n_samples;
    batches++;
    redox_release(slot);
  }
  if (status != REDOX_END_OF_EPOCH) {
    return explain("reading", status);
  }
  printf("epoch %" PRIu64 ": %" PRIu64 " samples in %" PRIu64 " batches, %" PRIu64 " bytes, sum of labels %" PRId64 "\n",
         batch.epoch, samples, batches, bytes, labels);
  return REDOX_OK;
}

int main(int argc, char **argv) {
  redox_dataset dataset;
  redox_loader loader;
  int epoch, failed = 1;

  if (argc != 2) {
    fprintf(stderr, "usage: trainer DATASET\n");
    return 2;
  }
  if (explain(argv[1], redox_open(argv[1], NULL, REDOX_ABI_VERSION, &dataset)) != REDOX_OK) {
    return 1;
  }
  if (explain("options", redox_loader_new(dataset, "{\"batch_size\": 64, \"shuffle_seed\": 1, \"prefetch\": 3}", &loader)) ==
      REDOX_OK) {
    for (epoch = 0, failed = 0; epoch < 2 && !failed; epoch++) {
      failed = train(loader) != REDOX_OK;
    }
    redox_loader_rest(loader, 10000); /* of several nodes, slower ones may still want samples that this one has */
    redox_loader_close(loader);
  }
  redox_close(dataset);
  return failed;
}
