#pragma once
// What tuning found, for the sessions of a model.

#include <functional>
#include <memory>

#include "exec/batch.h"
#include "tune/device.h"

namespace stof::model {

/// Looks in the tuning database of this machine and runs what it finds there on a few rows first.
/// Records are read once, and each choice is run once. `open_device` is called when there is a
/// record of the model and something to find out. Safe from several threads.
exec::TunedOf tuned_segments(exec::GraphOf graph_of,
                             std::function<std::unique_ptr<tune::Device>()> open_device);

}  // namespace stof::model
