// Time and energy of each mode as bars (SVG).

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "stof/simulate.h"

namespace stof::simulate {
namespace {

struct Part {
  const char* name;
  const char* colour;
  double Cost::*energy;
};
constexpr Part kParts[] = {{"dot products", "#4269d0", &Cost::dot_products_pj},
                           {"registers", "#97bbf5", &Cost::registers_pj},
                           {"accumulators", "#6cc5b0", &Cost::accumulators_pj},
                           {"shared memory", "#3ca951", &Cost::shared_pj},
                           {"metadata", "#ff725c", &Cost::metadata_pj},
                           {"softmax", "#efb118", &Cost::softmax_pj},
                           {"L2", "#9c6b4e", &Cost::l2_pj},
                           {"DRAM", "#a463f2", &Cost::dram_pj},
                           {"static", "#9498a0", &Cost::static_pj}};

constexpr double kLeft = 190, kWidth = 520, kBar = 22, kGap = 12;

/// Names come from us but for the layer's.
std::string svg_escaped(const std::string& text) {
  std::string out;
  for (const char c : text)
    out += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : std::string(1, c);
  return out;
}

std::string svg_text(double x, double y, const std::string& text, const char* anchor = "start") {
  return fmt::format("<text x=\"{:.0f}\" y=\"{:.0f}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor,
                     svg_escaped(text));
}

}  // namespace

std::string Simulation::to_svg() const {
  struct Row {
    std::string name;
    const LayerCost* cost;
  };
  std::vector<Row> rows = {{"dense, not pruned", &base}};
  for (const Comparison& c : modes)
    rows.push_back({std::string(to_string(c.mode)) + ", pruned", &c.cost});
  double most_pj = 1, most_cycles = 1;
  for (const Row& row : rows) {
    most_pj = std::max(most_pj, row.cost->total_pj);
    most_cycles = std::max(most_cycles, row.cost->cycles);
  }
  const double block = (kBar + kGap) * static_cast<double>(rows.size());
  const double height = 90 + 2 * (block + 40) + 30;
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
      "viewBox=\"0 0 {0:.0f} {1:.0f}\" font-family=\"sans-serif\" font-size=\"12\">\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
      kLeft + kWidth + 110, height);
  svg += svg_text(12, 22,
                  fmt::format("{}: {} queries, {} keys, {:.1f} % of pairs kept", layer.name, seq_q,
                              seq_kv, 100 * kept_fraction));
  double y = 56;
  svg += svg_text(12, y - 8, "cycles of a layer");
  for (const Row& row : rows) {
    const double attention =
        (row.cost->cycles - row.cost->products.cycles / machine.num_sms) / most_cycles * kWidth;
    const double products = row.cost->products.cycles / machine.num_sms / most_cycles * kWidth;
    svg += svg_text(kLeft - 8, y + 15, row.name, "end");
    svg += fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{}\" fill=\"#4269d0\"/>\n",
        kLeft, y, attention, kBar);
    svg += fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{}\" fill=\"#9498a0\"/>\n",
        kLeft + attention, y, products, kBar);
    svg +=
        svg_text(kLeft + attention + products + 6, y + 15, fmt::format("{:.4g}", row.cost->cycles));
    y += kBar + kGap;
  }
  y += 40;
  svg += svg_text(12, y - 8, "energy of a layer, attention by component and other products");
  for (const Row& row : rows) {
    double x = kLeft;
    svg += svg_text(kLeft - 8, y + 15, row.name, "end");
    const auto bar = [&](double pj, const char* colour, const char* name) {
      const double width = pj / most_pj * kWidth;
      svg += fmt::format(
          "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{}\" fill=\"{}\"><title>{}: "
          "{:.4g} pJ</title></rect>\n",
          x, y, width, kBar, colour, name, pj);
      x += width;
    };
    for (const Part& part : kParts) bar(row.cost->attention.*part.energy, part.colour, part.name);
    bar(row.cost->products.total_pj(), "#d5d8dd", "other products");
    svg += svg_text(x + 6, y + 15, fmt::format("{:.4g} uJ", row.cost->total_pj * 1e-6));
    y += kBar + kGap;
  }
  double x = 12;
  y += 8;
  for (const Part& part : kParts) {
    svg += fmt::format("<rect x=\"{:.0f}\" y=\"{:.0f}\" width=\"10\" height=\"10\" fill=\"{}\"/>\n",
                       x, y, part.colour);
    svg += svg_text(x + 14, y + 10, part.name);
    x += 86;
  }
  return svg + "</svg>\n";
}

}  // namespace stof::simulate
