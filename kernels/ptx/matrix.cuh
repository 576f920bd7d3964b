#pragma once
// Warp-wide matrix fragments and products (PTX ISA, "ldmatrix", "mma").

#include "ptx/math.cuh"

namespace stof::ptx {

/// Loads four 8x8 matrices of 16-bit elements; lanes 8i..8i+7 give the addresses of matrix i's rows
/// (16 bytes each). Register i holds the lane's two elements of matrix i: row lane/4, columns
/// 2*(lane%4) and the next.
__device__ __forceinline__ void load_matrices(u32* registers, u32 row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(registers[0]), "=r"(registers[1]), "=r"(registers[2]), "=r"(registers[3])
               : "r"(row)
               : "memory");
}

/// The reverse: stores four 8x8 matrices, registers and addresses as for load_matrices().
__device__ __forceinline__ void store_matrices(u32 row, u32 a, u32 b, u32 c, u32 d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row), "r"(a),
               "r"(b), "r"(c), "r"(d)
               : "memory");
}

/// The same matrices transposed: row and column change places in the lane's elements.
__device__ __forceinline__ void load_matrices_transposed(u32* registers, u32 row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(registers[0]), "=r"(registers[1]), "=r"(registers[2]), "=r"(registers[3])
               : "r"(row)
               : "memory");
}

/// c[4] += a b for a 16x16 and a 16x8 matrix. a: registers of load_matrices over the quarters upper
/// left, lower left, upper right, lower right. b0, b1: the lane's elements of b's upper and lower
/// half, column lane/4, rows 2*(lane%4) and the next. c: rows lane/4 (0, 1) and lane/4 + 8 (2, 3),
/// columns 2*(lane%4) and the next.
__device__ __forceinline__ void multiply(BFloat16, float* c, const u32* a, u32 b0, u32 b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ void multiply(Float16, float* c, const u32* a, u32 b0, u32 b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// c[4] += a b for a 16x32 matrix of which each row's every four columns have two elements, and a
/// 32x8 matrix (PTX ISA, "mma.sp::ordered_metadata"). a: the kept elements, as of a 16x16 matrix: the
/// lane's pair of a register is of one four, lane%4 of the left or the right 16 columns. b0 .. b3: the
/// four eights of rows. places: two bits an element, in the lanes 2 kSelector (left 16 columns) and
/// 2 kSelector + 1 (right) of each quad: of row lane/4 in the lower half, of row lane/4 + 8 above.
template <int kSelector>
__device__ __forceinline__ void multiply_sparse(BFloat16, float* c, const u32* a, u32 b0, u32 b1,
                                                u32 b2, u32 b3, u32 places) {
  asm volatile(
      "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
      "{%4, %5, %6, %7}, {%8, %9, %10, %11}, {%0, %1, %2, %3}, %12, %13;"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(b2), "r"(b3), "r"(places),
        "n"(kSelector));
}

template <int kSelector>
__device__ __forceinline__ void multiply_sparse(Float16, float* c, const u32* a, u32 b0, u32 b1,
                                                u32 b2, u32 b3, u32 places) {
  asm volatile(
      "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
      "{%4, %5, %6, %7}, {%8, %9, %10, %11}, {%0, %1, %2, %3}, %12, %13;"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(b2), "r"(b3), "r"(places),
        "n"(kSelector));
}

}  // namespace stof::ptx
