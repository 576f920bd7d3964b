// Quality against kept fraction of each pruner, on real models and text (docs/pruning.md).
//   prune_accuracy OUT [--texts N] [--windows N] [--tokens N]
// Writes OUT.jsonl line by line (what is there already is not measured again, so that a run can be
// interrupted and taken up), then OUT.png and OUT.html. Needs what scripts/setup --models fetches.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "core/env.h"
#include "core/file.h"
#include "mask/draw/canvas.h"
#include "stof/text_encoder.h"
#include "stof/text_generator.h"

namespace {

using Json = nlohmann::ordered_json;
using namespace stof;

struct Settings {
  std::string out;
  std::size_t texts = 48;
  std::size_t windows = 2;
  std::size_t tokens = 512;
};

/// What is measured: a pruner, turned by its knob or given as it is.
struct Series {
  const char* name;
  const char* pruner;
  std::vector<double> knobs;
};

/// Blocks are small because the texts are: 256 tokens for MiniLM.
const std::vector<Series>& series_of(bool decoder) {
  static const std::vector<Series> encoder_series = {
      {"N:M of 8", "nm(1,8)", {0.125, 0.25, 0.375, 0.5, 0.75}},
      {"block_topk mean", "block_topk(1, block=16)", {0.2, 0.35, 0.5, 0.65, 0.8}},
      {"block_topk max", "block_topk(1, block=16, pool=max)", {0.2, 0.35, 0.5, 0.65, 0.8}},
      {"mass", "mass(1, block=16)", {0.3, 0.5, 0.7, 0.85, 0.95}},
      {"vertical_slash", "vertical_slash(1, block=16, probes=32)", {0.2, 0.35, 0.5, 0.65, 0.8}},
  };
  static const std::vector<Series> decoder_series = {
      {"N:M of 8", "nm(1,8)", {0.125, 0.25, 0.375, 0.5, 0.75}},
      {"block_topk mean", "block_topk(1, block=32)", {0.2, 0.35, 0.5, 0.65, 0.8}},
      {"block_topk max", "block_topk(1, block=32, pool=max)", {0.2, 0.35, 0.5, 0.65, 0.8}},
      {"mass", "mass(1, block=32)", {0.3, 0.5, 0.7, 0.85, 0.95}},
      {"vertical_slash", "vertical_slash(1, block=32)", {0.2, 0.35, 0.5, 0.65, 0.8}},
  };
  return decoder ? decoder_series : encoder_series;
}

std::string read_document(const char* name) {
  return read_text_file(cache_folder() + "/corpus/django-docs/" + name, 1 << 24);
}

std::vector<std::string> passages(std::size_t count) {
  const std::string whole = read_document("ref/models/querysets.txt") +
                            read_document("topics/db/queries.txt") +
                            read_document("ref/settings.txt");
  std::vector<std::string> texts;
  constexpr std::size_t kBytes = 1200;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t begin = whole.find(' ', i * ((whole.size() - 2 * kBytes) / count)) + 1;
    texts.push_back(whole.substr(begin, kBytes));
  }
  return texts;
}

double dot(const float* a, const float* b, std::int64_t size) {
  double sum = 0;
  for (std::int64_t i = 0; i < size; ++i) sum += double{a[i]} * double{b[i]};
  return sum;
}

double cosine(const float* a, const float* b, std::int64_t size) {
  return dot(a, b, size) / std::sqrt(dot(a, a, size) * dot(b, b, size));
}

std::vector<double> similarities(const Tensor& embeddings) {
  const std::int64_t rows = embeddings.shape()[0], width = embeddings.shape()[1];
  const float* data = embeddings.as<float>().data();
  std::vector<double> all;
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < i; ++j)
      all.push_back(cosine(data + i * width, data + j * width, width));
  return all;
}

std::vector<double> ranks(const std::vector<double>& values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return values[a] < values[b]; });
  std::vector<double> ranks(values.size());
  for (std::size_t i = 0; i < order.size(); ++i) ranks[order[i]] = static_cast<double>(i);
  return ranks;
}

/// Spearman's.
double rank_agreement(const std::vector<double>& a, const std::vector<double>& b) {
  const std::vector<double> x = ranks(a), y = ranks(b);
  const double n = static_cast<double>(x.size());
  double squares = 0;
  for (std::size_t i = 0; i < x.size(); ++i) squares += (x[i] - y[i]) * (x[i] - y[i]);
  return 1 - 6 * squares / (n * (n * n - 1));
}

/// What pruning kept, over all layers, heads and texts.
struct Kept {
  double pairs = 0, imbalance = 0, calls = 0;

  mask::PruneOptions options(const std::string& pruner) {
    mask::PruneOptions options;
    options.pruner = mask::Pruner::parse(pruner);
    options.on_pruned = [this](const mask::PrunedMask& pruned) {
      pairs += pruned.report.kept_fraction();
      imbalance = std::max(imbalance, pruned.report.imbalance());
      calls += 1;
    };
    return options;
  }
};

class Lines {
 public:
  explicit Lines(std::string path) : path_(std::move(path)) {
    std::ifstream file(path_);
    for (std::string line; std::getline(file, line);) lines_.push_back(Json::parse(line));
  }
  bool has(const std::string& model, const std::string& pruner) const {
    return std::ranges::any_of(lines_, [&](const Json& line) {
      return line["model"] == model && line["pruner"] == pruner;
    });
  }
  void add(const Json& line) {
    lines_.push_back(line);
    std::ofstream file(path_, std::ios::app);
    file << line.dump() << '\n';
  }
  const std::vector<Json>& all() const { return lines_; }

 private:
  std::string path_;
  std::vector<Json> lines_;
};

std::string pruner_at(const Series& series, double knob) {
  return mask::Pruner::parse(series.pruner).with_keep(knob).to_text();
}

void show(std::size_t done, std::size_t all, const std::string& what) {
  std::fprintf(stderr, "\r%3zu of %zu  %-60s", done, all, what.c_str());
  if (done == all) std::fprintf(stderr, "\n");
}

void measure_encoder(const Settings& settings, Lines& lines) {
  const TextEncoder encoder = TextEncoder::load(cache_folder() + "/models/all-minilm-l6-v2");
  const std::vector<std::string> texts = passages(settings.texts);
  const Tensor whole = encoder.embed(texts);
  const std::vector<double> expected = similarities(whole);
  std::size_t done = 0, all = 0;
  for (const Series& series : series_of(false)) all += series.knobs.size();
  for (const Series& series : series_of(false))
    for (const double knob : series.knobs) {
      const std::string pruner = pruner_at(series, knob);
      show(done, all, "MiniLM " + pruner);
      ++done;
      if (lines.has("all-minilm-l6-v2", pruner)) continue;
      Kept kept;
      EncodeOptions options;
      options.prune = kept.options(pruner);
      const Tensor pruned = encoder.embed(texts, options);
      const std::int64_t width = encoder.hidden_size();
      double sum = 0, worst = 1;
      for (std::int64_t i = 0; i < whole.shape()[0]; ++i) {
        const double c = cosine(whole.as<float>().data() + i * width,
                                pruned.as<float>().data() + i * width, width);
        sum += c;
        worst = std::min(worst, c);
      }
      lines.add({{"model", "all-minilm-l6-v2"},
                 {"series", series.name},
                 {"pruner", pruner},
                 {"knob", knob},
                 {"kept_fraction", kept.pairs / kept.calls},
                 {"imbalance", kept.imbalance},
                 {"texts", texts.size()},
                 {"cosine_mean", sum / static_cast<double>(texts.size())},
                 {"cosine_worst", worst},
                 {"rank_agreement", rank_agreement(similarities(pruned), expected)}});
    }
  show(all, all, "MiniLM");
}

/// Mean negative log-likelihood of each token but the first of a window.
double loss_of(const TextGenerator& generator, const std::vector<std::int32_t>& ids,
               const GenerateOptions& options) {
  const Tensor logits = generator.logits(ids, options);
  const auto width = static_cast<std::size_t>(generator.vocab_size());
  double sum = 0;
  for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
    const auto row = logits.as<float>().subspan(i * width, width);
    const double most = *std::max_element(row.begin(), row.end());
    double all = 0;
    for (const float x : row) all += std::exp(double{x} - most);
    sum += most + std::log(all) - double{row[static_cast<std::size_t>(ids[i + 1])]};
  }
  return sum / static_cast<double>(ids.size() - 1);
}

void measure_decoder(const Settings& settings, Lines& lines) {
  const std::string name = "smollm2-135m-instruct";
  const TextGenerator generator = TextGenerator::load(cache_folder() + "/models/" + name);
  std::vector<std::vector<std::int32_t>> windows;
  const char* documents[] = {"intro/overview.txt", "topics/testing/overview.txt",
                             "topics/http/middleware.txt", "topics/cache.txt"};
  for (std::size_t i = 0; i < settings.windows; ++i) {
    std::vector<std::int32_t> ids =
        generator.tokenize(read_document(documents[i % std::size(documents)]).substr(0, 1 << 14));
    ids.resize(std::min(ids.size(), settings.tokens));
    windows.push_back(std::move(ids));
  }
  const auto perplexity = [&](const GenerateOptions& options) {
    double sum = 0;
    for (const auto& window : windows) sum += loss_of(generator, window, options);
    return std::exp(sum / static_cast<double>(windows.size()));
  };
  GenerateOptions whole;
  whole.prefill_chunk = static_cast<std::int64_t>(settings.tokens);
  const double expected = perplexity(whole);
  std::size_t done = 0, all = 0;
  for (const Series& series : series_of(true)) all += series.knobs.size();
  for (const Series& series : series_of(true))
    for (const double knob : series.knobs) {
      const std::string pruner = pruner_at(series, knob);
      show(done, all, "SmolLM2 " + pruner);
      ++done;
      if (lines.has(name, pruner)) continue;
      Kept kept;
      GenerateOptions options = whole;
      options.prune = kept.options(pruner);
      const double found = perplexity(options);
      lines.add({{"model", name},
                 {"series", series.name},
                 {"pruner", pruner},
                 {"knob", knob},
                 {"kept_fraction", kept.pairs / kept.calls},
                 {"imbalance", kept.imbalance},
                 {"windows", windows.size()},
                 {"tokens", settings.tokens},
                 {"perplexity", found},
                 {"perplexity_not_pruned", expected},
                 {"perplexity_ratio", found / expected}});
    }
  show(all, all, "SmolLM2");
}

// --- plots ------------------------------------------------------------------------------------

struct Panel {
  const char *model, *figure, *title;
  double low, high;  ///< of the figure; what lies outside is drawn at the edge
};
constexpr Panel kPanels[] = {
    {"all-minilm-l6-v2", "cosine_mean", "MiniLM: cosine to the embedding not pruned", 0.7, 1},
    {"all-minilm-l6-v2", "rank_agreement", "MiniLM: rank agreement of similarities", 0.7, 1},
    {"smollm2-135m-instruct", "perplexity_ratio", "SmolLM2: perplexity over that not pruned", 1, 2},
};
constexpr mask::Colour kColours[] = {
    {0, 114, 178}, {213, 94, 0}, {230, 159, 0}, {0, 158, 115}, {204, 121, 167}};
constexpr std::int64_t kPanelWidth = 460, kPanelHeight = 300, kMargin = 50;

struct Point {
  double x, y;
};

std::vector<Point> points_of(const std::vector<Json>& lines, const Panel& panel,
                             const std::string& series) {
  std::vector<Point> points;
  for (const Json& line : lines)
    if (line["model"] == panel.model && line["series"] == series)
      points.push_back({line["kept_fraction"].get<double>(), line[panel.figure].get<double>()});
  std::ranges::sort(points, {}, &Point::x);
  for (Point& point : points) {
    const double share = std::clamp((point.y - panel.low) / (panel.high - panel.low), 0.0, 1.0);
    point.x = kMargin + point.x * (kPanelWidth - 2 * kMargin);
    point.y = kPanelHeight - kMargin - share * (kPanelHeight - 2 * kMargin);
  }
  return points;
}

std::string html_of(const std::vector<Json>& lines) {
  std::string html =
      "<!doctype html><meta charset=\"utf-8\"><title>Quality of pruned attention</title>\n"
      "<style>body{font:14px sans-serif;margin:24px}table{border-collapse:collapse}"
      "td,th{padding:3px 10px;text-align:right;border-bottom:1px solid #ddd}"
      "td:first-child,th:first-child{text-align:left}</style>\n<h1>Quality of pruned attention"
      "</h1>\n";
  for (const Panel& panel : kPanels) {
    html += fmt::format(
        "<svg width=\"{}\" height=\"{}\" font-size=\"11\">\n<text x=\"{}\" y=\"20\" "
        "font-size=\"13\">{}</text>\n",
        kPanelWidth, kPanelHeight + 20, kMargin, panel.title);
    for (int i = 0; i <= 4; ++i) {
      const double x = kMargin + i * (kPanelWidth - 2 * kMargin) / 4.0;
      const double y = kPanelHeight - kMargin - i * (kPanelHeight - 2 * kMargin) / 4.0;
      html += fmt::format(
          "<line x1=\"{0}\" y1=\"{1}\" x2=\"{2}\" y2=\"{1}\" stroke=\"#ddd\"/><text x=\"{3}\" "
          "y=\"{4}\" text-anchor=\"end\">{5:.3g}</text><text x=\"{6}\" y=\"{7}\" "
          "text-anchor=\"middle\">{8} %</text>\n",
          kMargin, y, kPanelWidth - kMargin, kMargin - 6, y + 4,
          panel.low + i * (panel.high - panel.low) / 4, x, kPanelHeight - kMargin + 16, 25 * i);
    }
    std::size_t s = 0;
    for (const Series& series : series_of(false)) {
      const mask::Colour c = kColours[s];
      std::string path;
      for (const Point& p : points_of(lines, panel, series.name))
        path += fmt::format("{:.1f},{:.1f} ", p.x, p.y);
      html += fmt::format(
          "<polyline points=\"{0}\" fill=\"none\" stroke=\"rgb({1},{2},{3})\" "
          "stroke-width=\"2\"/><text x=\"{4}\" y=\"{5}\" fill=\"rgb({1},{2},{3})\">{6}</text>\n",
          path, c.r, c.g, c.b, kMargin + static_cast<std::int64_t>(s) * 80, kPanelHeight + 10,
          series.name);
      ++s;
    }
    html += "</svg>\n";
  }
  html +=
      "<table><tr><th>pruner<th>model<th>kept<th>fullest row / mean<th>cosine, mean<th>worst"
      "<th>rank agreement<th>perplexity<th>not pruned</tr>\n";
  const auto cell = [](const Json& line, const char* name, const char* format) {
    return line.contains(name)
               ? "<td>" + fmt::format(fmt::runtime(format), line[name].get<double>())
               : std::string("<td>");
  };
  for (const Json& line : lines)
    html += fmt::format(
        "<tr><td>{}<td>{}<td>{:.1f} %{}{}{}{}{}{}</tr>\n", line["pruner"].get<std::string>(),
        line["model"].get<std::string>(), 100 * line["kept_fraction"].get<double>(),
        cell(line, "imbalance", "{:.2f}"), cell(line, "cosine_mean", "{:.4f}"),
        cell(line, "cosine_worst", "{:.4f}"), cell(line, "rank_agreement", "{:.4f}"),
        cell(line, "perplexity", "{:.2f}"), cell(line, "perplexity_not_pruned", "{:.2f}"));
  return html + "</table>\n";
}

void draw_line(mask::Canvas& canvas, std::int64_t left, const Point& a, const Point& b,
               mask::Colour colour) {
  const double steps = std::max({1.0, std::abs(b.x - a.x), std::abs(b.y - a.y)});
  for (double i = 0; i <= steps; i += 1) {
    const double x = a.x + (b.x - a.x) * i / steps, y = a.y + (b.y - a.y) * i / steps;
    canvas.fill(left + static_cast<std::int64_t>(std::lround(x)),
                static_cast<std::int64_t>(std::lround(y)), 2, 2, colour);
  }
}

mask::Image png_of(const std::vector<Json>& lines) {
  mask::Canvas canvas(kPanelWidth * std::ssize(kPanels), kPanelHeight + 30);
  std::int64_t left = 0;
  for (const Panel& panel : kPanels) {
    canvas.text(left + kMargin, 16, panel.title, 1, mask::kInk);
    for (int i = 0; i <= 4; ++i) {
      const std::int64_t x = left + kMargin + i * (kPanelWidth - 2 * kMargin) / 4;
      const std::int64_t y = kPanelHeight - kMargin - i * (kPanelHeight - 2 * kMargin) / 4;
      canvas.fill(left + kMargin, y, kPanelWidth - 2 * kMargin, 1, mask::kHidden);
      const std::string label = fmt::format("{:.3g}", panel.low + i * (panel.high - panel.low) / 4);
      canvas.text(left + kMargin - 6 - mask::text_width(label, 1), y - 4, label, 1, mask::kInk);
      canvas.text(x - 10, kPanelHeight - kMargin + 8, fmt::format("{} %", 25 * i), 1, mask::kInk);
    }
    std::size_t s = 0;
    for (const Series& series : series_of(false)) {
      const std::vector<Point> points = points_of(lines, panel, series.name);
      for (std::size_t i = 0; i + 1 < points.size(); ++i)
        draw_line(canvas, left, points[i], points[i + 1], kColours[s]);
      for (const Point& p : points)
        canvas.fill(left + std::lround(p.x) - 2, std::lround(p.y) - 2, 6, 6, kColours[s]);
      canvas.text(left + kMargin + static_cast<std::int64_t>(s % 3) * 130,
                  kPanelHeight - 14 + static_cast<std::int64_t>(s / 3) * 14, series.name, 1,
                  kColours[s]);
      ++s;
    }
    left += kPanelWidth;
  }
  return canvas.release();
}

int run(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    std::size_t* const number = argument == "--texts"     ? &settings.texts
                                : argument == "--windows" ? &settings.windows
                                : argument == "--tokens"  ? &settings.tokens
                                                          : nullptr;
    if (number != nullptr && i + 1 < argc) {
      *number = std::stoul(argv[++i]);
    } else if (number == nullptr && settings.out.empty() && !argument.starts_with("--")) {
      settings.out = argument;
    } else {
      settings.out.clear();
      break;
    }
  }
  if (settings.out.empty()) {
    std::fprintf(stderr, "usage: prune_accuracy OUT [--texts N] [--windows N] [--tokens N]\n");
    return 2;
  }
  Lines lines(settings.out + ".jsonl");
  measure_encoder(settings, lines);
  measure_decoder(settings, lines);
  write_file(settings.out + ".html", html_of(lines.all()));
  mask::save_png(png_of(lines.all()), settings.out + ".png");
  return 0;
}

}  // namespace

int main(int argc, char** argv) try {
  return run(argc, argv);
} catch (const std::exception& error) {
  std::fprintf(stderr, "prune_accuracy: %s\n", error.what());
  return 1;
}
