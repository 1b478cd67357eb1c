// A pool of threads that read and write: each has one request with the file system at a time.
#include "record_file.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace {

constexpr int64_t MOST_BYTES = 1 << 18;  // of one request, unless a record is larger
// Records closer than this are written as one, with what lies between: a page of the file's, which is read before a part of it is written.
constexpr int64_t BETWEEN_BYTES = 4096;

struct Extent {
    int64_t from, to;  // places
};

struct Job {
    int fd;
    bool write;
    const Place* places;
    const Part* parts;
    int64_t count, record;
    std::vector<Extent> extents;
    std::atomic<int64_t> next{0}, done{0};
    std::atomic<int> error{0};
    std::mutex lock;
    std::condition_variable ended;

    void copy(const Extent& e, char* buffer) const {
        for (int64_t i = e.from; i < e.to; ++i) {
            char* at = buffer + (places[i].row - places[e.from].row) * record;
            for (int64_t k = 0; k < count; ++k) {
                char* slot = parts[k].base + places[i].slot * parts[k].bytes;
                if (write) std::memcpy(at, slot, parts[k].bytes); else std::memcpy(slot, at, parts[k].bytes);
                at += parts[k].bytes;
            }
        }
    }

    // Bytes moved, fewer than `bytes` where the file or the disk ends; or minus an errno.
    int64_t request(bool writes, char* buffer, int64_t bytes, int64_t offset) const {
        for (int64_t moved = 0; moved < bytes;) {
            char* at = buffer + moved;
            const ssize_t got = writes ? pwrite(fd, at, bytes - moved, offset + moved) : pread(fd, at, bytes - moved, offset + moved);
            if (got < 0 && errno == EINTR) continue;
            if (got < 0) return -errno;
            if (got == 0) return moved;
            moved += got;
        }
        return bytes;
    }

    // What lies between records that are written is read first; behind the file's end it is 0. Nobody else writes to the file meanwhile.
    int one(const Extent& e) const {
        static thread_local std::vector<char> buffer;
        const int64_t first = places[e.from].row, span = places[e.to - 1].row - first + 1, bytes = span * record, offset = first * record;
        if ((int64_t)buffer.size() < bytes) buffer.resize(bytes);
        if (!write || span > e.to - e.from) {
            const int64_t read = request(false, buffer.data(), bytes, offset);
            if (read < 0) return (int)-read;
            if (!write && read < bytes) return TRUNCATED;
            std::fill(buffer.begin() + read, buffer.begin() + bytes, 0);
        }
        copy(e, buffer.data());
        if (!write) return 0;
        const int64_t written = request(true, buffer.data(), bytes, offset);
        return written < 0 ? (int)-written : written < bytes ? ENOSPC : 0;
    }

    // Requests until none is left; after an error nothing more is tried.
    void run() {
        const int64_t all = extents.size();
        for (int64_t i; (i = next++) < all;) {
            if (!error) {
                if (const int failed = one(extents[i])) {
                    int none = 0;
                    error.compare_exchange_strong(none, failed);
                }
            }
            if (++done == all) {
                std::lock_guard guard(lock);
                ended.notify_all();
            }
        }
    }
};

struct Pool {
    std::mutex lock;
    std::condition_variable wake;
    std::deque<std::shared_ptr<Job>> jobs;
    int threads = 0;

    void give(const std::shared_ptr<Job>& job, int helpers) {
        std::lock_guard guard(lock);
        for (; threads < helpers; ++threads) std::thread([this] { serve(); }).detach();
        for (int i = 0; i < helpers; ++i) jobs.push_back(job);
        wake.notify_all();
    }

    void serve() {
        for (;;) {
            std::shared_ptr<Job> job;
            {
                std::unique_lock guard(lock);
                wake.wait(guard, [this] { return !jobs.empty(); });
                job = std::move(jobs.front());
                jobs.pop_front();
            }
            job->run();
        }
    }
};

// Of this process: a child that is forked has none of its parent's threads. Never deleted, as its threads outlive all else.
Pool& pool() {
    static std::mutex lock;
    static Pool* of_process = nullptr;
    static pid_t owner = 0;
    std::lock_guard guard(lock);
    if (owner != getpid()) { of_process = new Pool; owner = getpid(); }
    return *of_process;
}

}  // namespace

int transfer(int fd, bool write, const Place* places, int64_t n, const Part* parts, int64_t count, int in_flight) {
    if (n == 0) return 0;
    auto job = std::make_shared<Job>();
    job->fd = fd; job->write = write; job->places = places; job->parts = parts; job->count = count; job->record = 0;
    for (int64_t k = 0; k < count; ++k) job->record += parts[k].bytes;
    const int64_t apart = 1 + (write ? (BETWEEN_BYTES - 1) / job->record : 0);
    for (int64_t from = 0, i = 1; i <= n; ++i)
        if (i == n || places[i].row - places[i - 1].row > apart || (places[i].row - places[from].row + 1) * job->record > MOST_BYTES) {
            job->extents.push_back({from, i});
            from = i;
        }
    const int64_t all = job->extents.size();
    if (all > 1 && in_flight > 1) pool().give(job, (int)std::min<int64_t>(in_flight, all) - 1);
    job->run();
    std::unique_lock guard(job->lock);
    job->ended.wait(guard, [&] { return job->done == all; });
    return job->error;
}
