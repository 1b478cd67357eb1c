// Columns of several matrices side by side in one, in any order, and back.
#include <cstdint>
#include <cstring>

namespace {

// `width` columns from `column` on of the rows of matrix number `part`.
struct Block {
    int64_t part, column, width;
};

}  // namespace

// `whole` [rows][columns of all blocks] from the blocks of `parts` [rows][widths], elements of `size` bytes; with `back` the other way.
extern "C" void columns(char* whole, int64_t rows, const Block* blocks, int64_t count, char* const* parts, const int64_t* widths, int64_t size,
                        int back) {
    for (int64_t row = 0; row < rows; ++row) {
        for (const Block* block = blocks; block != blocks + count; ++block) {
            char* part = parts[block->part] + (row * widths[block->part] + block->column) * size;
            std::memcpy(back ? part : whole, back ? whole : part, block->width * size);
            whole += block->width * size;
        }
    }
}
