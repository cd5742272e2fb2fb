/* Writes a small data set of "images" and labels for the examples: images DATASET. */
#include "check.h"

int main(int argc, char **argv) {
  unsigned char image[3000];
  redox_writer writer;
  int64_t i;

  CHECK(argc == 2);
  EXPECT(REDOX_OK, redox_writer_new(argv[1],
                                    "{\"fields\": [{\"name\": \"image\", \"kind\": \"bytes\"},"
                                    " {\"name\": \"label\", \"kind\": \"int\"}], \"layout\": \"tuple\","
                                    " \"chunk_size\": 65536}",
                                    &writer));
  for (i = 0; i < 1000; i++) {
    redox_field fields[2];
    int64_t label = i % 10;

    memset(fields, 0, sizeof fields);
    memset(image, (int)(i % 256), sizeof image);
    fields[0].data = image;
    fields[0].cap = (uint64_t)(i * 3);
    fields[1].data = &label;
    fields[1].cap = sizeof label;
    EXPECT(REDOX_OK, redox_writer_write(writer, fields, 2));
  }
  EXPECT(REDOX_OK, redox_writer_commit(writer));
  return 0;
}
