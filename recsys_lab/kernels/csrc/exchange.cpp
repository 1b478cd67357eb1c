// What ranks of one machine exchange through memory that they share.
//
// Each rank of a group has an outbox: a control block, and data behind it. Posting a message copies it there and never waits for a reader.
// Readers copy out of it, or add up. A message's place is free again when all have read it. The outbox is sparse: only what messages
// have touched takes memory. Messages have numbers, the same on all ranks, since all issue a group's collectives in one order.

#ifdef __linux__

#include <linux/futex.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <vector>

namespace {

constexpr int64_t kMessages = 1024;    // that a rank may have posted and that some rank has not read
constexpr int kRanks = 64;             // of a group
constexpr int64_t kAlign = 64;         // bytes, a cache line
constexpr int64_t kPatience = 100'000'000;  // ns between two looks at whether the other still lives

enum Outcome { kDone = 0, kLate = 1, kDead = 2, kOtherSize = 3 };

struct Message {
  std::atomic<int64_t> number;  // plus one, so that zero is none
  std::atomic<int32_t> unread;
  int64_t posted_ns;
  int64_t begin;                             // in the data
  int64_t starts[kRanks], bytes[kRanks];     // by reader, from begin
};

struct Outbox {
  int32_t pid;
  std::atomic<uint32_t> posts, sleepers;
  Message messages[kMessages];
};

constexpr int64_t kData = (sizeof(Outbox) + 4095) / 4096 * 4096;

struct Range {
  int64_t begin, end;
};

struct Exchange {
  int rank, size;
  int64_t capacity;
  std::vector<Outbox*> boxes;
  std::mutex posting;
  struct Live {
    Range range;
    Message* message;
  };
  std::vector<Live> live;  // by place

  char* data(int rank) const { return reinterpret_cast<char*>(boxes[rank]) + kData; }
};

int64_t now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000LL + now.tv_nsec;
}

// Until `word` is no longer `seen`, or for a while.
void sleep_on(std::atomic<uint32_t>& word, uint32_t seen) {
  timespec patience{0, kPatience};
  syscall(SYS_futex, &word, FUTEX_WAIT, seen, &patience, nullptr, 0);
}

bool lives(int32_t pid) { return kill(pid, 0) == 0 || errno != ESRCH; }

// The message `number` of `peer`, once it is there.
Outcome await(const Exchange& exchange, int64_t number, int peer, int64_t until_ns, Message** found) {
  Outbox& box = *exchange.boxes[peer];
  Message& message = box.messages[number % kMessages];
  for (;;) {
    if (message.number.load(std::memory_order_acquire) == number + 1) {
      *found = &message;
      return kDone;
    }
    box.sleepers.fetch_add(1);
    const uint32_t seen = box.posts.load();
    if (message.number.load() != number + 1) sleep_on(box.posts, seen);
    box.sleepers.fetch_sub(1);
    if (message.number.load(std::memory_order_acquire) == number + 1) continue;
    const bool dead = !lives(box.pid), late = now_ns() > until_ns;
    if (message.number.load(std::memory_order_acquire) == number + 1) continue;  // posted since the look before, by one that then ended
    if (dead) return kDead;
    if (late) return kLate;
  }
}

// Where `bytes` fit among the messages that are still unread.
bool place(Exchange& exchange, int64_t bytes, size_t* index, int64_t* begin) {
  auto& live = exchange.live;
  std::erase_if(live, [](const Exchange::Live& one) { return one.message->unread.load(std::memory_order_acquire) == 0; });
  int64_t free = 0;
  for (size_t i = 0; i < live.size(); ++i) {
    if (free + bytes <= live[i].range.begin) {
      *index = i, *begin = free;
      return true;
    }
    free = std::max(free, live[i].range.end);
  }
  *index = live.size(), *begin = free;
  return free + bytes <= exchange.capacity;
}

// Chunk `c` of n floats that gloo's ring adds up as one, and in which order: from rank c - 1 downwards.
Range chunk(int64_t n, int size, int c) {
  constexpr int64_t kSegment = 1 << 20;
  const int64_t total = n * 4;
  int64_t segments = std::max<int64_t>((total + kSegment - 1) / kSegment, 2 * size);
  segments = (segments + size - 1) / size * size;
  const int64_t segment = ((total + segments - 1) / segments + 3) / 4 * 4;
  const int64_t in_chunk = segments / size * segment;
  return {std::min(c * in_chunk, total) / 4, std::min((c + 1) * in_chunk, total) / 4};
}

}  // namespace

extern "C" {

int64_t exchange_bytes(int64_t capacity) { return kData + capacity; }

int exchange_most_ranks() { return kRanks; }

// `files`: of each rank's outbox, this rank's own among them. Null where they cannot be mapped.
void* exchange_open(int rank, int size, const int* files, int64_t capacity) {
  auto* exchange = new Exchange{rank, size, capacity, {}, {}, {}};
  for (int r = 0; r < size; ++r) {
    void* at = mmap(nullptr, kData + capacity, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, files[r], 0);
    if (at == MAP_FAILED) {
      for (Outbox* box : exchange->boxes) munmap(box, kData + capacity);
      delete exchange;
      return nullptr;
    }
    exchange->boxes.push_back(static_cast<Outbox*>(at));
  }
  exchange->boxes[rank]->pid = getpid();
  return exchange;
}

void exchange_close(void* handle) {
  auto* exchange = static_cast<Exchange*>(handle);
  for (Outbox* box : exchange->boxes) munmap(box, kData + exchange->capacity);
  delete exchange;
}

// Posts `bytes[r]` at `starts[r]` of `data` for each other rank r, as message `number`. The parts are in order, or all the same.
int exchange_post(void* handle, int64_t number, const char* data, const int64_t* starts, const int64_t* bytes, double timeout_s) {
  auto& exchange = *static_cast<Exchange*>(handle);
  Outbox& box = *exchange.boxes[exchange.rank];
  Message& message = box.messages[number % kMessages];
  int64_t first = INT64_MAX, last = 0;
  for (int r = 0; r < exchange.size; ++r)
    if (r != exchange.rank && bytes[r]) first = std::min(first, starts[r]), last = std::max(last, starts[r] + bytes[r]);
  const int64_t length = first == INT64_MAX ? 0 : last - first;
  const int64_t until = now_ns() + int64_t(timeout_s * 1e9);
  std::unique_lock posting(exchange.posting);
  size_t index;
  int64_t begin;
  const int64_t room = (length + kAlign - 1) / kAlign * kAlign;
  while (message.unread.load(std::memory_order_acquire) != 0 || !place(exchange, room, &index, &begin)) {
    posting.unlock();
    usleep(200);
    if (now_ns() > until) return kLate;
    posting.lock();
  }
  if (length) exchange.live.insert(exchange.live.begin() + index, {{begin, begin + room}, &message});
  message.unread.store(exchange.size - 1);
  posting.unlock();
  char* to = exchange.data(exchange.rank) + begin;
  const int64_t own_start = starts[exchange.rank], own_end = own_start + bytes[exchange.rank];
  const bool apart = length && own_start > first && own_end < last;  // this rank's own part lies between the others': nobody reads it
  if (apart) {
    std::memcpy(to, data + first, own_start - first);
    std::memcpy(to + (own_end - first), data + own_end, last - own_end);
  } else if (length) {
    std::memcpy(to, data + first, length);
  }
  message.begin = begin;
  for (int r = 0; r < exchange.size; ++r) message.starts[r] = starts[r] - (length ? first : starts[r]), message.bytes[r] = bytes[r];
  message.posted_ns = now_ns();
  message.number.store(number + 1, std::memory_order_release);
  box.posts.fetch_add(1);
  if (box.sleepers.load()) syscall(SYS_futex, &box.posts, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
  return kDone;
}

// What every other rank posted for this one, to `starts[r]` of `out`. `peer`: whose message is late, whose process ended, or has another size.
// `posted_ns`: when the last was posted.
int exchange_take(void* handle, int64_t number, char* out, const int64_t* starts, const int64_t* bytes, double timeout_s, int* peer,
                  int64_t* posted_ns) {
  auto& exchange = *static_cast<Exchange*>(handle);
  const int64_t until = now_ns() + int64_t(timeout_s * 1e9);
  *posted_ns = 0;
  for (int step = 1; step < exchange.size; ++step) {
    const int r = *peer = (exchange.rank + step) % exchange.size;
    Message* message;
    if (const Outcome outcome = await(exchange, number, r, until, &message)) return outcome;
    if (message->bytes[exchange.rank] != bytes[r]) return kOtherSize;
    std::memcpy(out + starts[r], exchange.data(r) + message->begin + message->starts[exchange.rank], bytes[r]);
    *posted_ns = std::max(*posted_ns, message->posted_ns);
    message->unread.fetch_sub(1, std::memory_order_release);
  }
  return kDone;
}

// out[0] on = the sum of all ranks' `n` floats from `begin` to `end`, in the order in which gloo's ring adds them: the same bits. Every
// rank posted all of its own as message `number`. `mine` is this rank's; `out` may lie in it, at `begin`.
int exchange_sum(void* handle, int64_t number, const float* mine, float* out, int64_t n, int64_t begin, int64_t end, double timeout_s,
                 int* peer, int64_t* posted_ns) {
  auto& exchange = *static_cast<Exchange*>(handle);
  const int64_t until = now_ns() + int64_t(timeout_s * 1e9);
  const int size = exchange.size;
  std::vector<const float*> all(size);
  std::vector<Message*> messages(size);
  *posted_ns = 0;
  for (int r = 0; r < size; ++r) {
    all[r] = mine;
    if ((*peer = r) == exchange.rank) continue;
    if (const Outcome outcome = await(exchange, number, r, until, &messages[r])) return outcome;
    if (messages[r]->bytes[exchange.rank] != n * 4) return kOtherSize;
    all[r] = reinterpret_cast<const float*>(exchange.data(r) + messages[r]->begin);
    *posted_ns = std::max(*posted_ns, messages[r]->posted_ns);
  }
  std::vector<float> sum;
  for (int c = 0; c < size; ++c) {
    const Range whole = chunk(n, size, c), range{std::max(whole.begin, begin), std::min(whole.end, end)};
    constexpr int64_t kBlock = 4096;  // floats that stay in the nearest cache
    for (int64_t at = range.begin; at < range.end; at += kBlock) {
      const int64_t count = std::min(kBlock, range.end - at);
      const float* first = all[(c - 1 + size) % size] + at;
      sum.assign(first, first + count);
      for (int i = 1; i < size; ++i) {
        const float* next = all[((c - 1 - i) % size + size) % size] + at;
        for (int64_t k = 0; k < count; ++k) sum[k] += next[k];
      }
      std::memcpy(out + (at - begin), sum.data(), count * 4);
    }
  }
  for (int r = 0; r < size; ++r)
    if (r != exchange.rank) messages[r]->unread.fetch_sub(1, std::memory_order_release);
  return kDone;
}

// [begin, end) of n floats that this rank adds up for all.
void exchange_chunk(int64_t n, int size, int c, int64_t* begin, int64_t* end) {
  const Range range = chunk(n, size, c);
  *begin = range.begin, *end = range.end;
}
}

#endif
