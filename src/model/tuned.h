#pragma once
// What tuning found, for the sessions of a model.

#include <functional>
#include <memory>

#include "exec/batch.h"
#include "tune/device.h"

namespace stof::model {

/// Looks in the tuning database of this machine and runs what it finds there on a few rows first.
/// `open_device` is called when there is something to check. Safe from several threads.
exec::TunedOf tuned_segments(exec::GraphOf graph_of,
                             std::function<std::unique_ptr<tune::Device>()> open_device);

}  // namespace stof::model
