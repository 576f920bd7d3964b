// SentencePiece's functions, opened at run time. Their names are those of its C++ interface.

#include "core/optional_libraries.h"
#include "run_time_functions.h"

// What src/model/sentencepiece.cc calls: constructor, destructors, LoadFromSerializedProto, Encode,
// Decode, Status::ToString.
// clang-format off
#define STOF_FUNCTIONS(F) \
  F(_ZN13sentencepiece22SentencePieceProcessorC1Ev) \
  F(_ZN13sentencepiece22SentencePieceProcessorD1Ev) \
  F(_ZN13sentencepiece4util6StatusD1Ev) \
  F(_ZN13sentencepiece22SentencePieceProcessor23LoadFromSerializedProtoESt17basic_string_viewIcSt11char_traitsIcEE) \
  F(_ZNK13sentencepiece22SentencePieceProcessor6EncodeESt17basic_string_viewIcSt11char_traitsIcEEPSt6vectorIiSaIiEE) \
  F(_ZNK13sentencepiece22SentencePieceProcessor6DecodeERKSt6vectorIiSaIiEEPNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE) \
  F(_ZNK13sentencepiece4util6Status8ToStringB5cxx11Ev)
// clang-format on

STOF_FUNCTIONS(STOF_JUMP)

void stof_open_sentencepiece() {
  static constexpr stof::RunTimeFunction kFunctions[] = {STOF_FUNCTIONS(STOF_ENTRY)};
  static const bool opened = (  // tried again where it throws
      stof::open_functions(kFunctions, "SentencePiece", "libsentencepiece.so.0", nullptr,
                           "texts become tokens of .model and of LLaMA's GGUF files",
                           "libsentencepiece0"),
      true);
  static_cast<void>(opened);
}
