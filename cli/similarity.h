#pragma once
// Vectors of float32 compared with each other.

#include <cstdint>
#include <span>
#include <string>

#include "stof/tensor.h"

namespace stof::cli {

/// Euclidean length.
double norm(std::span<const float> values);

/// Cosine of the angle between two vectors of the same length; 0 where one is zero.
double cosine(std::span<const float> a, std::span<const float> b);

/// Row i of a float32 [rows, columns] tensor.
std::span<const float> tensor_row(const Tensor& matrix, std::int64_t row);

/// The similarity table of the rows of `embeddings`, numbered from 1.
std::string similarity_table(const Tensor& embeddings, std::int64_t num_rows);

}  // namespace stof::cli
