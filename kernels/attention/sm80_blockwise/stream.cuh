#pragma once
// What a block computes, as one stream of steps over all its items: thread 0 writes steps a few ahead
// of their use into shared memory, so that copies run on from one item into the next.

#include "attention/queue.cuh"
#include "attention/records.cuh"
#include "attention/sm80_blockwise/loader.cuh"
#include "ptx/barrier.cuh"

namespace stof {

/// One key tile of one item.
struct alignas(16) Step {
  i32 tile;
  i32 payload;  // -1: full
  i32 item;     // into Stream::items
  i32 flags;
};
constexpr i32 kFirstOfItem = 1, kLastOfItem = 2, kHasTile = 4, kNoMore = 8;

struct Item {
  WorkRecord record;
  Sequence sequence;
  const unsigned char* keys;  // the sequence's first row of the key/value head
  const unsigned char* values;
};

/// Steps that follow from the one before: full tiles of one run, neither an item's first nor its last
/// nor the one that takes a ticket. Thread 0 writes a step between two barriers, so most are to cost
/// it one load and two stores.
struct alignas(16) PlainSteps {
  i32 left;
  i32 tile;   // of the next
  i32 item;
  i32 given;  // of these, written so far
};

/// In shared memory: registers are short. Written by thread 0 only.
struct Stream {
  static constexpr int kSteps = 8, kItems = 4;
  Item items[kItems];
  WorkRecord incoming;  // the next item, copied here early; num_partial -1: none
  Step steps[kSteps];   // ring
  PlainSteps plain;
  // Where the list walk stands in items[item], before the plain steps.
  TileRun run;  // what is left of the run under way
  i32 run_index;
  i32 item;
  i32 tile, num_tiles;  // tiles written, tiles in all
  i32 arrives;          // the first step at whose writing `incoming` is sure to be there
  i32 unused;
};

static_assert(sizeof(Stream) == kStreamBytes);

/// Thread 0's part: takes tickets and writes steps.
template <class D>
class Feeder {
 public:
  /// Steps are written this far ahead: copies need them kStages - 1 ahead, and a barrier later.
  static constexpr int kAhead = D::kStages > 2 ? D::kStages : 2;
  static_assert(kAhead + 2 < Stream::kSteps && kAhead < Stream::kItems);

  __device__ __forceinline__ Feeder(const AttentionParams& params, const Operands& operands,
                                    Stream& stream)
      : params_(params), operands_(operands), stream_(stream) {}

  static constexpr u32 kNone = ~0u;

  __device__ __forceinline__ void begin() const {
    stream_.tile = stream_.num_tiles = stream_.item = 0;
    stream_.plain = {0, 0, 0, 0};
    u32 ticket = blockIdx.x;
#pragma unroll 1
    for (int n = -kAhead; n < 0; ++n) {
      if (ticket != kNone) request(ticket, 0);
      ticket = advance(n);
    }
    if (ticket != kNone) request(ticket, 0);
  }

  /// At the end of step n: writes a step. Returns the ticket taken, if it was time for one: its
  /// number is not there yet, so it is used in the next step.
  __device__ __forceinline__ u32 advance(int n) const {
    return write(n + kAhead) ? gridDim.x + atomicAdd(params_.queue, 1u) : kNone;
  }

  /// In step n, before its group of copies ends: has the ticket's record copied to Stream::incoming.
  __device__ __forceinline__ void request(u32 ticket, int n) const {
    stream_.arrives = n + kAhead + (D::kStages > 2 ? 2 : 1);
    if (ticket >= static_cast<u32>(params_.num_records)) {
      stream_.incoming.num_partial = -1;
      return;
    }
    const u32 target = ptx::shared_address(&stream_.incoming);
    ptx::copy_16(target, params_.records + ticket);
    ptx::copy_16(target + 16, reinterpret_cast<const unsigned char*>(params_.records + ticket) + 16);
  }

 private:
  /// Writes step n; called for n = 0, 1, ... Says whether it is time to take the next ticket: late,
  /// so that a long item does not hold one that another block could have started, and early enough
  /// for the record to arrive before the item's last step is written.
  __device__ __forceinline__ bool write(int n) const {
    Step& step = stream_.steps[n % Stream::kSteps];
    const PlainSteps plain = stream_.plain;
    if (plain.left > 0) {
      step = {plain.tile, -1, plain.item, kHasTile};
      stream_.plain = {plain.left - 1, plain.tile + 1, plain.item, plain.given + 1};
      return false;
    }
    stream_.tile += plain.given;
    stream_.run.begin += plain.given;
    i32 flags = 0;
    if (stream_.tile == stream_.num_tiles) {
      if (n < stream_.arrives) {  // a short item: wait for the copy alone
        ptx::commit_copies();
        ptx::wait_copies<0>();
      }
      if (stream_.incoming.num_partial < 0) {
        step = {0, -1, stream_.item, kNoMore};  // whole: copies read the item before the flags
        return false;
      }
      next_item();
      flags = kFirstOfItem;
    }
    const WorkRecord& record = stream_.items[stream_.item].record;
    const i32 i = stream_.tile, total = stream_.num_tiles;
    i32 payload = -1, tile = 0;
    if (i < record.num_partial) {
      const PartialTile entry = params_.partial[record.partial_begin + i];
      tile = entry.tile;
      payload = entry.payload;
    } else if (i < total) {
      if (stream_.run.begin == stream_.run.end) stream_.run = params_.runs[++stream_.run_index];
      tile = stream_.run.begin++;
    }
    if (total > 0) {
      flags |= kHasTile;
      stream_.tile = i + 1;
    }
    if (i + 1 >= total) flags |= kLastOfItem;
    step = {tile, payload, stream_.item, flags};
    // Plain ones end with the run, and before the step that takes a ticket or is the last.
    const i32 takes = total > 3 ? total - 3 : 0;
    i32 left = 0;
    if (i >= record.num_partial) {
      left = stream_.run.end - stream_.run.begin;
      const i32 until = (i < takes ? takes : total - 1) - (i + 1);
      if (until < left) left = until;
    }
    stream_.plain = {left, tile + 1, stream_.item, 0};
    return i == takes;
  }

  __device__ __forceinline__ void next_item() const {
    const WorkRecord record = stream_.incoming;
    stream_.item = (stream_.item + 1) % Stream::kItems;
    stream_.tile = 0;
    stream_.num_tiles = record.num_partial + record.num_full;
    stream_.run_index = record.run_begin;
    if (record.num_full > 0) stream_.run = params_.runs[record.run_begin];
    Item& item = stream_.items[stream_.item];
    item.record = record;
    if constexpr (D::kVarlen)
      item.sequence = params_.sequences[record.batch];
    else
      item.sequence = {0, params_.seq_q, 0, params_.seq_kv};
    const i32 batch = D::kVarlen ? 0 : record.batch;  // a packed batch is one entry
    const i32 head_kv = record.head / params_.heads_per_group;
    const i32 first = D::kVarlen ? item.sequence.kv_begin : 0;
    item.keys = head_rows(operands_.k, batch, head_kv) + first * operands_.k.row_stride;
    item.values = head_rows(operands_.v, batch, head_kv) + first * operands_.v.row_stride;
  }

  const AttentionParams& params_;
  const Operands& operands_;
  Stream& stream_;
};

}  // namespace stof
