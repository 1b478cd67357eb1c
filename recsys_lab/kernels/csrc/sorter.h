// The next section's ids put into buckets while the rows of this one come from memory: a few ids at a time.
#pragma once
#include "partition.h"

// Work that may be done between rows, by one thread.
struct Later {
    bool done = true;
    void (*some)(Later&) = nullptr;  // a part of it; not to be called when it is done
};

// A section whose ids one thread puts into buckets: at once, or by parts. Its bags have no factors.
template <class Id>
struct Sorter : Later {
    Section section;
    Buckets buckets;
    bool wide = false;  // keys of 64 bits
    int64_t at_once = 0;
    uint64_t* keys = nullptr;

    // `planned`: `plan_buckets` of it.
    void begin(const Section& of, Buckets&& planned) {
        section = of;
        buckets = std::move(planned);
        wide = buckets.row_bits + buckets.source_bits > 32;
        keys = memory_.at_least(section.n());
        started_ = placing_ = done = false;
        some = wide ? part_of<uint64_t> : part_of<uint32_t>;
    }
    void none() { done = true; }
    // What is left of it.
    void finish() {
        if (done) return;
        if (!started_) {
            if (wide) partition<uint64_t, Id>(section, buckets, keys, 1);
            else partition<uint32_t, Id>(section, buckets, (uint32_t*)keys, 1);
            done = true;
        }
        at_once = section.n();
        while (!done) some(*this);
    }

  private:
    Scratch<uint64_t> memory_;
    Scratch<int64_t> count_memory_;
    int64_t* counts_ = nullptr;
    bool started_ = false, placing_ = false;
    Bags bags_{};

    void start() {
        started_ = true;
        counts_ = count_memory_.at_least(buckets.count);
        std::fill(counts_, counts_ + buckets.count, 0);
        bags_ = Bags(section.l, section.from, section.to);
    }
    void counted() {
        int64_t at = 0;
        buckets.begin.resize(buckets.count + 1);
        for (int64_t k = 0; k < buckets.count; ++k) {
            buckets.begin[k] = at;
            at += std::exchange(counts_[k], at);
        }
        buckets.begin[buckets.count] = at;
        placing_ = true;
        bags_ = Bags(section.l, section.from, section.to);
    }

    template <class Key>
    static void part_of(Later& later) {
        auto& me = static_cast<Sorter&>(later);
        if (!me.started_) me.start();
        const Put<Key> put{(Key*)me.keys, me.section.low, me.buckets.row_bits, me.buckets.source_bits};
        const Id* const ids = (const Id*)me.section.l.ids;
        for (int64_t left = me.at_once; left > 0;) {
            Bags& bags = me.bags_;
            if (bags.at == bags.to) {
                if (me.placing_) { me.done = true; return; }
                me.counted();
                continue;
            }
            const int64_t n = std::min(left, bags.left), base = bags.base;
            const Id* const of = ids + bags.at;
            if (me.placing_) for (int64_t i = 0; i < n; ++i) put(me.counts_, (int64_t)of[i] + base, bags.bag);
            else for (int64_t i = 0; i < n; ++i) ++me.counts_[put.bucket((int64_t)of[i] + base)];
            bags.pass(n);
            left -= n;
        }
    }
};
