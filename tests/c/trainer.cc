// An example: several threads, each a rank of its own, read one epoch of a packed data set of encoded images and
// labels. Together they get every sample once.
//
//     trainer train.redox [THREADS]
//
// Batches are copied into each thread's own memory, which grows when a batch needs more. The ranks share one engine
// (option "share"), and so its memory and its reads: a chunk is read once for all of them.
//
//     c++ -std=c++17 trainer.cc $(redox-config --cflags --libs) -pthread -o trainer
#include <redox.h>

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

// Throws what went wrong in words.
redox_status check(redox_status status) {
  if (status < 0) {
    std::string words(redox_last_error(nullptr, 0), '\0');
    redox_last_error(words.data(), words.size());
    words.pop_back();  // its NUL
    throw std::runtime_error(words.empty() ? redox_strerror(status) : words);
  }
  return status;
}

// A loader that closes itself.
class Loader {
 public:
  Loader(redox_dataset dataset, const std::string &options) { check(redox_loader_new(dataset, options.c_str(), &handle_)); }
  Loader(const Loader &) = delete;
  Loader &operator=(const Loader &) = delete;
  ~Loader() { redox_loader_close(handle_); }
  redox_loader handle() const { return handle_; }

 private:
  redox_loader handle_ = 0;
};

// A batch of images and labels in memory of its own.
class Batch {
 public:
  explicit Batch(std::uint32_t samples) : offsets_(samples + 1), labels_(samples) {
    batch_.struct_size = sizeof batch_;
    batch_.n_fields = 2;
    batch_.fields = fields_;
    batch_.cap_samples = samples;
    fields_[0].offsets = offsets_.data();
    fields_[1].data = labels_.data();
    fields_[1].cap = labels_.size() * sizeof labels_[0];
  }

  // Fills itself with the next batch; false at the end of the epoch.
  bool next(const Loader &loader) {
    for (;;) {
      fields_[0].data = images_.data();
      fields_[0].cap = images_.size();
      const redox_status status = redox_next_batch(loader.handle(), &batch_, -1);
      if (status == REDOX_ERANGE && fields_[0].need > images_.size()) {
        images_.resize(fields_[0].need);  // nothing was consumed: ask for the same batch again
        continue;
      }
      return check(status) != REDOX_END_OF_EPOCH;
    }
  }

  std::uint32_t size() const { return batch_.n_samples; }
  std::uint64_t bytes(std::uint32_t i) const { return offsets_[i + 1] - offsets_[i]; }
  std::int64_t label(std::uint32_t i) const { return labels_[i]; }

 private:
  redox_batch batch_{};
  redox_field fields_[2]{};
  std::vector<unsigned char> images_;
  std::vector<std::uint64_t> offsets_;
  std::vector<std::int64_t> labels_;
};

std::mutex output;

void train(const Loader &loader, int rank) {
  std::uint64_t samples = 0, bytes = 0;
  std::int64_t labels = 0;
  Batch batch(64);
  while (batch.next(loader)) {
    for (std::uint32_t i = 0; i < batch.size(); i++) {
      bytes += batch.bytes(i);
      labels += batch.label(i);
    }
    samples += batch.size();
  }
  const std::lock_guard<std::mutex> lock(output);
  std::cout << "rank " << rank << ": " << samples << " samples, " << bytes << " bytes, sum of labels " << labels << "\n";
}

// memory_limit holds for all ranks together; "auto" would be what the first one alone needs.
std::string options(int rank, int world, redox_loader share) {
  return "{\"batch_size\": 64, \"pad\": false, \"nodes\": 1, \"memory_limit\": 268435456, \"rank\": " + std::to_string(rank) +
         ", \"world_size\": " + std::to_string(world) + (share != 0 ? ", \"share\": " + std::to_string(share) : "") + "}";
}

}  // namespace

int main(int argc, char **argv) {
  const int world = argc > 2 ? std::atoi(argv[2]) : 3;
  redox_dataset dataset = 0;
  if (argc < 2 || world < 1) {
    std::cerr << "usage: trainer DATASET [THREADS]\n";
    return 2;
  }
  try {
    check(redox_open(argv[1], nullptr, REDOX_ABI_VERSION, &dataset));
    std::vector<std::unique_ptr<Loader>> loaders;
    for (int rank = 0; rank < world; rank++) {
      const redox_loader share = rank == 0 ? 0 : loaders[0]->handle();
      loaders.push_back(std::make_unique<Loader>(dataset, options(rank, world, share)));
    }
    std::vector<std::thread> threads;
    int failed = 0;
    for (int rank = 0; rank < world; rank++) {
      threads.emplace_back([&, rank] {
        try {
          train(*loaders[static_cast<std::size_t>(rank)], rank);
        } catch (const std::exception &error) {
          const std::lock_guard<std::mutex> lock(output);
          std::cerr << "trainer: rank " << rank << ": " << error.what() << "\n";
          failed = 1;
        }
      });
    }
    for (std::thread &thread : threads) {
      thread.join();
    }
    loaders.clear();
    check(redox_close(dataset));
    return failed;
  } catch (const std::exception &error) {
    std::cerr << "trainer: " << error.what() << "\n";
    return 1;
  }
}
