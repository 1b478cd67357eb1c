// Ids on their way to the shards that hold their rows: laid out by receiver, and put together again from what all ranks sent.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <vector>

namespace {

// The shards of one feature's table that have the same columns: `blocks` of them, from number `first` on, by rising rows.
struct Cut {
    int64_t feature, first, blocks;
};

// A shard's rows. `shard`: its place among all that ids are sent to.
struct Block {
    int64_t shard, begin, stop;
};

// The block that has `id`. Blocks are mostly even, so the first guess is right. What no block has goes to an end.
inline const Block& block_of(const Block* blocks, int64_t n, int64_t rows, int64_t id) {
    int64_t at = std::clamp<int64_t>(id / rows, 0, n - 1);
    while (at + 1 < n && id >= blocks[at].stop) ++at;
    while (at > 0 && id < blocks[at].begin) --at;
    return blocks[at];
}

// Where each of `n` parts of these sizes begins, and where the last ends.
std::vector<int64_t> begins(const std::vector<int64_t>& sizes) {
    std::vector<int64_t> begin(sizes.size() + 1);
    std::partial_sum(sizes.begin(), sizes.end(), begin.begin() + 1);
    return begin;
}

std::vector<int64_t> totals(const int32_t* lengths, int64_t parts, int64_t samples) {
    std::vector<int64_t> total(parts);
    for (int64_t p = 0; p < parts; ++p) total[p] = std::accumulate(lengths + p * samples, lengths + (p + 1) * samples, int64_t{0});
    return total;
}

}  // namespace

extern "C" {

// `ids` [n] and `lengths` [features][samples] -> for each shard the ids in its rows, counted from its first: `to_lengths` [shards][samples]
// and `to_ids`, shard after shard. `ends`: by receiver, up to which shard they are its own. `sizes` [receivers][3]: how many lengths and ids
// it gets, and samples. Returns 0; 1 where lengths do not add up to n.
int ids_to_shards(const int32_t* lengths, const int64_t* ids, int64_t n, int64_t features, int64_t samples, const Cut* cuts, int64_t n_cuts,
                  const Block* blocks, int64_t shards, const int64_t* ends, int64_t receivers, int32_t* to_lengths, int64_t* to_ids,
                  int64_t* sizes, int threads) {
    const std::vector<int64_t> of_feature = begins(totals(lengths, features, samples));
    if (of_feature.back() != n) return 1;
    std::vector<int64_t> counts(shards);
#pragma omp parallel for schedule(dynamic) num_threads(threads)
    for (int64_t c = 0; c < n_cuts; ++c) {
        const Cut cut = cuts[c];
        const Block* of = blocks + cut.first;
        const int32_t* length = lengths + cut.feature * samples;
        for (int64_t b = 0; b < cut.blocks; ++b) {
            int32_t* to = to_lengths + of[b].shard * samples;
            if (cut.blocks == 1) std::memcpy(to, length, samples * sizeof *to);
            else std::memset(to, 0, samples * sizeof *to);
        }
        const int64_t* id = ids + of_feature[cut.feature];
        const int64_t rows = std::max<int64_t>(1, of->stop - of->begin);
        if (cut.blocks == 1) counts[of->shard] = of_feature[cut.feature + 1] - of_feature[cut.feature];
        else for (int64_t s = 0; s < samples; ++s)
            for (int32_t i = 0; i < length[s]; ++i) {
                const int64_t shard = block_of(of, cut.blocks, rows, *id++).shard;
                ++counts[shard];
                ++to_lengths[shard * samples + s];
            }
    }
    const std::vector<int64_t> place = begins(counts);
#pragma omp parallel for schedule(dynamic) num_threads(threads)
    for (int64_t c = 0; c < n_cuts; ++c) {
        const Cut cut = cuts[c];
        const Block* of = blocks + cut.first;
        const int64_t *id = ids + of_feature[cut.feature], *last = ids + of_feature[cut.feature + 1];
        const int64_t rows = std::max<int64_t>(1, of->stop - of->begin);
        if (cut.blocks == 1 && of->begin == 0) {
            std::memcpy(to_ids + place[of->shard], id, (last - id) * sizeof *id);
            continue;
        }
        std::vector<int64_t> next(cut.blocks);
        for (int64_t b = 0; b < cut.blocks; ++b) next[b] = place[of[b].shard];
        for (; id < last; ++id) {
            const Block& block = block_of(of, cut.blocks, rows, *id);
            to_ids[next[&block - of]++] = *id - block.begin;
        }
    }
    for (int64_t r = 0, shard = 0; r < receivers; shard = ends[r++]) {
        sizes[3 * r] = (ends[r] - shard) * samples;
        sizes[3 * r + 1] = place[ends[r]] - place[shard];
        sizes[3 * r + 2] = samples;
    }
    return 0;
}

// What ranks sent for the same shards, `lengths` [ranks][shards][samples] and `ids`, as one batch of all their samples: `to_lengths`
// [shards][ranks][samples], `to_ids` and their `offsets` [shards * ranks * samples + 1]. The samples of rank order[0] come first.
void ids_of_ranks(const int32_t* lengths, const int64_t* ids, int64_t ranks, int64_t shards, int64_t samples, const int64_t* order,
                  int32_t* to_lengths, int64_t* offsets, int64_t* to_ids) {
    const std::vector<int64_t> counts = totals(lengths, ranks * shards, samples), from = begins(counts);
    int64_t at = 0;
    for (int64_t s = 0; s < shards; ++s)
        for (int64_t k = 0; k < ranks; ++k) {
            const int64_t part = order[k] * shards + s;
            const int32_t* length = lengths + part * samples;
            std::memcpy(to_lengths, length, samples * sizeof *length);
            std::memcpy(to_ids + at, ids + from[part], counts[part] * sizeof *ids);
            for (int64_t i = 0; i < samples; ++i) *offsets++ = at, at += length[i];
            to_lengths += samples;
        }
    *offsets = at;
}
}
