#!/bin/bash
# Compiles the C and C++ tests and examples against the library in FOLDER and runs them, all with AddressSanitizer:
#
#     tests/c/run.sh FOLDER
#
# FOLDER has libredox.so.0, built with `capi/build.py --asan` (any other build works too, it just sees less).
set -eu -o pipefail
here=$(cd "$(dirname "$0")" && pwd)
library=$(cd "$1" && pwd)
build=$library/tests
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$build"

strict="-Wall -Wextra -pedantic -Werror -Wshadow -I$here/../../include"
c="gcc -std=c99 -D_POSIX_C_SOURCE=200809L -Wstrict-prototypes $strict"
cxx="g++ -std=c++17 $strict"
sanitize="-g -O1 -fsanitize=address -fno-omit-frame-pointer"
link="-L$library -l:libredox.so.0 -Wl,-rpath,$library -pthread"
# A hang is a failure.
run="timeout 120"
export ASAN_OPTIONS=detect_leaks=1

echo "header: C99 and C++17 on its own"
for standard in c99 c11 c17; do
  echo '#include "redox.h"' | gcc -std=$standard -Wstrict-prototypes $strict -fsyntax-only -x c -
done
for standard in c++11 c++17 c++20; do
  echo '#include "redox.h"' | g++ -std=$standard $strict -fsyntax-only -x c++ -
done

count=0
for test in dataset loader writer job fork threads; do
  echo "$test"
  $c $sanitize "$here/check.c" "$here/$test.c" -o "$build/$test" $link
  $run "$build/$test" "$work/$test"
  count=$((count + 1))
done

echo "examples"
$c $sanitize "$here/check.c" "$here/images.c" -o "$build/images" $link
$c $sanitize "$here/trainer.c" -o "$build/trainer-c" $link
$cxx $sanitize "$here/trainer.cc" -o "$build/trainer-cc" $link
$run "$build/images" "$work/images.redox"
# 1,000 samples of 3 i bytes with label i % 10: 1,498,500 bytes, labels that sum up to 4,500.
$run "$build/trainer-c" "$work/images.redox" | tee "$work/c"
test "$(grep -c '^epoch [01]: 1000 samples in 16 batches, 1498500 bytes, sum of labels 4500$' "$work/c")" = 2
$run "$build/trainer-cc" "$work/images.redox" 3 | tee "$work/cc"
awk '{n += $3; bytes += $5; labels += $10} END {exit !(NR == 3 && n == 1000 && bytes == 1498500 && labels == 4500)}' "$work/cc"
# Two nodes, which are processes here, share the same samples over QUIC.
port=$((20000 + RANDOM % 10000))
export WORLD_SIZE=2 REDOX_PEERS=127.0.0.1:$port,127.0.0.1:$((port + 1)) REDOX_TOKEN="a token of this test"
RANK=1 $run "$build/trainer-c" "$work/images.redox" > "$work/node1" & node1=$!
RANK=0 $run "$build/trainer-c" "$work/images.redox" > "$work/node0"
wait $node1
awk '{n[$2] += $3; bytes[$2] += $8; labels[$2] += $13}
     END {exit !(n["0:"] == 1000 && bytes["0:"] == 1498500 && labels["0:"] == 4500 && n["1:"] == 1000)}' "$work/node0" "$work/node1"
unset WORLD_SIZE REDOX_PEERS
if REDOX_TOKEN=short RANK=0 WORLD_SIZE=2 REDOX_PEERS=127.0.0.1:$port,127.0.0.1:1 "$build/trainer-c" "$work/images.redox" 2> "$work/error"
then exit 1; fi
grep -q REDOX_TOKEN "$work/error"
if RANK=0 WORLD_SIZE=2 "$build/trainer-c" "$work/images.redox" 2> "$work/error"; then exit 1; fi
grep -q 'REDOX_PEERS.*exchange="off"' "$work/error"
if "$build/trainer-c" "$work/nothing" 2> "$work/error"; then exit 1; fi
grep -q "$work/nothing" "$work/error"

echo "$count test programs and 2 examples passed under AddressSanitizer"
