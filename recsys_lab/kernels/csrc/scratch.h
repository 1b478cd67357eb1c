// Memory that a thread keeps from call to call, so that no call waits for fresh pages.
#pragma once
#include <cstddef>
#include <cstdlib>
#if defined(__linux__)
#include <sys/mman.h>
#endif

template <class T>
class Scratch {
    T* data_ = nullptr;
    size_t size_ = 0;

  public:
    Scratch() = default;
    Scratch(const Scratch&) = delete;
    ~Scratch() { std::free(data_); }
    T* operator*() const { return data_; }
    // At least `count` elements, their content lost when it grows. New memory is zero.
    T* at_least(size_t count) {
        if (count > size_) {
            std::free(data_);
            constexpr size_t PAGE = 1 << 21;
            const size_t bytes = (count * sizeof(T) + PAGE - 1) / PAGE * PAGE;
            const bool huge = count * sizeof(T) > PAGE / 4;
            if (huge) {
                data_ = (T*)std::aligned_alloc(PAGE, bytes);
#if defined(__linux__)
                madvise(data_, bytes, MADV_HUGEPAGE);
#endif
                __builtin_memset((void*)data_, 0, bytes);
                size_ = bytes / sizeof(T);
            } else {
                const size_t small = (count * sizeof(T) + 4095) / 4096 * 4096;
                data_ = (T*)std::aligned_alloc(4096, small);
                __builtin_memset((void*)data_, 0, small);
                size_ = small / sizeof(T);
            }
        }
        return data_;
    }
};
