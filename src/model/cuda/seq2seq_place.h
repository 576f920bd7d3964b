#pragma once
// An encoder-decoder on an NVIDIA GPU.

#include <memory>

#include "model/seq2seq.h"

namespace stof::model {

/// As place_decoder_on_gpu().
std::unique_ptr<const Seq2SeqPlace> place_seq2seq_on_gpu(const Seq2SeqModel& model, DType dtype);

}  // namespace stof::model
