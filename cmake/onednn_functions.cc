// oneDNN's C functions, opened at run time.

#include <dnnl_version.h>

#include "core/optional_libraries.h"
#include "run_time_functions.h"

// clang-format off
// What src/backend/cpu and dnnl.hpp call; the linker names what is missing here.
#define STOF_COMMON(F) \
  F(dnnl_engine_create) F(dnnl_engine_destroy) F(dnnl_memory_create) \
  F(dnnl_memory_desc_get_size) F(dnnl_memory_destroy) F(dnnl_memory_get_engine) \
  F(dnnl_memory_get_memory_desc) F(dnnl_post_ops_append_binary) \
  F(dnnl_post_ops_append_eltwise) F(dnnl_post_ops_create) F(dnnl_post_ops_destroy) \
  F(dnnl_primitive_attr_create) F(dnnl_primitive_attr_destroy) \
  F(dnnl_primitive_attr_set_post_ops) F(dnnl_primitive_attr_set_scratchpad_mode) \
  F(dnnl_primitive_create) F(dnnl_primitive_desc_destroy) F(dnnl_primitive_desc_query_md) \
  F(dnnl_primitive_destroy) F(dnnl_primitive_execute) F(dnnl_reorder_primitive_desc_create) \
  F(dnnl_stream_create) F(dnnl_stream_destroy) F(dnnl_stream_wait) F(dnnl_version)
#if DNNL_VERSION_MAJOR >= 3
#define STOF_FUNCTIONS(F) \
  STOF_COMMON(F) F(dnnl_inner_product_forward_primitive_desc_create) F(dnnl_memory_desc_clone) \
  F(dnnl_memory_desc_create_with_tag) F(dnnl_memory_desc_destroy) \
  F(dnnl_primitive_desc_next_impl)
#else
#define STOF_FUNCTIONS(F) \
  STOF_COMMON(F) F(dnnl_inner_product_forward_desc_init) F(dnnl_memory_desc_init_by_tag) \
  F(dnnl_primitive_desc_iterator_create) F(dnnl_primitive_desc_iterator_destroy) \
  F(dnnl_primitive_desc_iterator_fetch)
#endif
// clang-format on
#define STOF_TEXT_OF(x) #x
#define STOF_TEXT(x) STOF_TEXT_OF(x)

STOF_FUNCTIONS(STOF_JUMP)

void stof_open_onednn() {
  static constexpr stof::RunTimeFunction kFunctions[] = {STOF_FUNCTIONS(STOF_ENTRY)};
  // The release whose headers this was compiled with; Debian's asks for OpenCL's loader.
  static const bool opened = (  // tried again where it throws
      stof::open_functions(kFunctions, "oneDNN", "libdnnl.so." STOF_TEXT(DNNL_VERSION_MAJOR),
                           "libOpenCL.so.1", "models multiply matrices on the CPU",
                           "libdnnl" STOF_TEXT(DNNL_VERSION_MAJOR)),
      true);
  static_cast<void>(opened);
}
