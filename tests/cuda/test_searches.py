"""Searches in tables: warps that vote find the places that single threads find, whatever the table holds."""

from pathlib import Path

from taskfuse.cuda.expressions import BALLOT
from taskfuse.cuda.text import closure
from tests.cuda.host import needs_compiler, run

PROGRAM = """
#include <pthread.h>
#include <vector>
thread_local unsigned lane;
struct Index { struct { operator unsigned() const { return lane; } } x; unsigned y = 0, z = 0; } threadIdx;
struct { unsigned x = 32, y = 1, z = 1; } blockDim;
pthread_barrier_t all_lanes;
unsigned votes;
bool diverged;
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline unsigned __activemask() { return diverged ? 1 : 0xffffffffu; }
inline void __match_all_sync(unsigned, int, int* one_key) { *one_key = 1; }
unsigned __ballot_sync(unsigned, bool vote) {
  if (vote) __sync_fetch_and_or(&votes, 1u << lane);
  pthread_barrier_wait(&all_lanes);
  const unsigned found = votes;
  pthread_barrier_wait(&all_lanes);
  votes = 0;
  pthread_barrier_wait(&all_lanes);
  return found;
}
"""
MAIN = """
std::vector<int> table;
int key, found[32];
void* search(void* number) {
  lane = (unsigned)(size_t)number;
  found[lane] = upper_bound_by_ballot((int)table.size(), [&](int k) {
    if (k < 1 || k > (int)table.size() - 2) abort();
    return table[k];
  }, key);
  return nullptr;
}
int main() {
  pthread_barrier_init(&all_lanes, nullptr, 32);
  unsigned random = 1;
  int places = 0;
  for (int trial = 0; trial < 600; ++trial) {
    const int size = 1 + (random >> 8) % (trial % 2 ? 300 : 40);
    table.assign(size, 0);
    for (int k = 0; k < size; ++k) {
      random = random * 1664525u + 1013904223u;
      table[k] = trial % 3 ? (random >> 8) % 64 : (k ? table[k - 1] : 0) + (random >> 8) % 3;
    }
    random = random * 1664525u + 1013904223u;
    key = (random >> 8) % (trial % 3 ? 64 : size);
    diverged = true;
    search(nullptr);
    const int alone = found[0];
    if (trial % 3 == 0) {
      int smaller = 0;
      for (int k = 1; k <= size - 2; ++k) smaller += table[k] <= key;
      if (alone != smaller) { printf("of %d, %d: %d, not %d\\n", size, key, alone, smaller); return 0; }
    }
    diverged = false;
    pthread_t lanes[32];
    for (size_t k = 0; k < 32; ++k) pthread_create(&lanes[k], nullptr, search, (void*)k);
    for (size_t k = 0; k < 32; ++k) pthread_join(lanes[k], nullptr);
    for (int k = 0; k < 32; ++k) if (found[k] != alone) { printf("trial %d: %d, not %d\\n", trial, found[k], alone); return 0; }
    places += alone > 0;
  }
  puts(places > 300 ? "same" : "few places");
}
"""


@needs_compiler
def test_a_vote_finds_what_a_thread_finds(tmp_path: Path) -> None:
    helpers = "\n".join(h.text for h in closure([BALLOT]))
    assert run(tmp_path, PROGRAM + helpers + MAIN) == "same\n"
