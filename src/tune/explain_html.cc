// The page of `stof explain MODEL --html`: no scripts, no files besides it.

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "core/text.h"
#include "tune/explain.h"

namespace stof::tune {
namespace {

constexpr const char* kStyle =
    "body{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:60em;padding:0 1em;"
    "color:#1c2430;background:#fff}"
    "h1{font-size:1.4em}h2{font-size:1.1em;margin-top:2em}"
    "table{border-collapse:collapse;width:100%}"
    "th,td{text-align:left;padding:.15em .6em;font-variant-numeric:tabular-nums}"
    "th{color:#5b6675;font-weight:600}td.n,th.n{text-align:right}"
    "tr.first td{border-top:1px solid #d5dbe3}td.s{border-left:.35em solid}"
    "code{font:13px ui-monospace,monospace}.q{color:#5b6675}svg{max-width:100%;height:auto}"
    "@media(prefers-color-scheme:dark){body{color:#dfe5ee;background:#161b22}"
    "tr.first td{border-color:#39424f}.q,th{color:#98a4b3}}";

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&quot;";
        break;
      default:
        result += c;
    }
  return result;
}

std::string base64(const std::string& bytes) {
  constexpr const char* kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t word = 0;
    for (std::size_t j = 0; j < 3; ++j)
      word = word << 8 | (i + j < bytes.size() ? static_cast<unsigned char>(bytes[i + j]) : 0u);
    for (std::size_t j = 0; j < 4; ++j)
      text += i + j > bytes.size() ? '=' : kDigits[word >> (18 - 6 * j) & 63];
  }
  return text;
}

/// One colour a family, the same on every page.
const char* colour(const std::string& family) {
  constexpr std::array kColours = {"#3b6fb6", "#c2703d", "#4a9a6b", "#8a5fb0",
                                   "#b0484f", "#3f9aa3", "#9a8a3b"};
  std::uint32_t sum = 2166136261u;  // FNV-1a
  for (const char c : family) sum = (sum ^ static_cast<unsigned char>(c)) * 16777619u;
  return kColours[sum % kColours.size()];
}

std::string us_cell(double us) {
  return fmt::format("<td class=n>{}</td>", us > 0 ? fmt::format("{:.1f}", us) : "");
}

std::string segment_table(const Explanation& explanation) {
  std::string html =
      "<table><tr><th>operator<th>name<th>kernel<th>parameters<th class=n>predicted, us"
      "<th class=n>measured, us<th class=n>of roofline</tr>\n";
  for (const ExplainedSegment& segment : explanation.segments) {
    for (std::size_t i = 0; i < segment.operators.size(); ++i) {
      const auto& [kind, name] = segment.operators[i];
      html +=
          fmt::format("<tr{}><td class=s style=\"border-left-color:{}\">{}</td><td class=q>{}</td>",
                      i == 0 ? " class=first" : "", colour(segment.choice.family), escaped(kind),
                      escaped(name));
      if (i == 0) {
        const std::string choice = segment.choice.text();
        const std::size_t blank = std::min(choice.find(' '), choice.size());
        html += fmt::format("<td>{}{}</td><td><code>{}</code></td>", escaped(segment.choice.family),
                            segment.in_layer ? "" : " <span class=q>(once)</span>",
                            escaped(choice.substr(std::min(blank + 1, choice.size()))));
        html += us_cell(segment.predicted_us) + us_cell(segment.measured_us);
        html += segment.measured_us > 0 ? fmt::format("<td class=n>{:.0f} %</td>",
                                                      100 * segment.bound_us / segment.measured_us)
                                        : "<td></td>";
      }
      html += "</tr>\n";
    }
  }
  return html + "</table>\n";
}

/// Bars one behind the other, as long as the launches take.
std::string timeline(const Explanation& explanation) {
  constexpr double kWidth = 960, kHeight = 46;
  const double scale = explanation.pass_us > 0 ? kWidth / explanation.pass_us : 0;
  std::string bars;
  double at = 0;
  for_each_launch(explanation, [&](const ExplainedSegment& segment, int layer) {
    bars += fmt::format(
        "<rect x=\"{:.2f}\" y=\"4\" width=\"{:.2f}\" height=\"26\" fill=\"{}\">"
        "<title>{}{}: {:.1f} us</title></rect>\n",
        at * scale, std::max(0.3, segment.us() * scale - 0.4), colour(segment.choice.family),
        escaped(segment.what), layer >= 0 ? fmt::format(" (layer {})", layer) : "", segment.us());
    at += segment.us();
  });
  return fmt::format(
      "<svg viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" role=\"img\" "
      "aria-label=\"timeline of a forward pass\">\n{2}"
      "<text x=\"0\" y=\"44\" font-size=\"12\" fill=\"currentColor\">0</text>"
      "<text x=\"{0}\" y=\"44\" font-size=\"12\" text-anchor=\"end\" fill=\"currentColor\">{3}"
      "</text></svg>\n",
      kWidth, kHeight, bars, human_duration(explanation.pass_us * 1e-6));
}

/// A layer's operators downwards, one box a segment.
std::string scheme_column(const std::string& title,
                          const std::vector<std::vector<std::string>>& segments, double x) {
  constexpr double kRow = 20, kBox = 200;
  std::string svg =
      fmt::format("<text x=\"{}\" y=\"16\" font-weight=\"600\" fill=\"currentColor\">{}</text>\n",
                  x, escaped(title));
  double y = 26;
  for (const auto& operators : segments) {
    const double height = kRow * static_cast<double>(operators.size());
    svg += fmt::format(
        "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"4\" fill=\"none\" "
        "stroke=\"#3b6fb6\"/>\n",
        x, y, kBox, height);
    for (std::size_t i = 0; i < operators.size(); ++i)
      svg += fmt::format("<text x=\"{}\" y=\"{}\" fill=\"currentColor\">{}</text>\n", x + 8,
                         y + kRow * (static_cast<double>(i) + 0.75), escaped(operators[i]));
    y += height + 5;
  }
  return svg;
}

std::string schemes(const Explanation& explanation) {
  std::vector<std::vector<std::string>> now;
  std::size_t operators = 0;
  for (const ExplainedSegment& segment : explanation.segments) {
    if (!segment.in_layer) continue;
    auto& names = now.emplace_back();
    for (const auto& [kind, name] : segment.operators) names.push_back(kind);
    operators += names.size();
  }
  const double height = 26 + 25 * static_cast<double>(operators);
  return fmt::format(
      "<svg viewBox=\"0 0 460 {0}\" width=\"460\" height=\"{0}\" font-size=\"13\" role=\"img\" "
      "aria-label=\"segments of a layer before and after tuning\">\n{1}{2}</svg>\n",
      height, scheme_column("untuned", explanation.untuned_segments, 4),
      scheme_column("now", now, 244));
}

/// Best pass so far over the seconds of the search, as steps.
std::string search_curve(const Explanation& explanation) {
  if (explanation.curve.empty())
    return "<p class=q>There was no search yet: stof tune makes one.</p>\n";
  constexpr double kWidth = 600, kHeight = 200, kLeft = 80, kBottom = 24;
  double last = std::max(explanation.search_seconds, 1e-9), high = 0, low = HUGE_VAL;
  for (const auto& [seconds, us] : explanation.curve) {
    last = std::max(last, seconds);
    high = std::max(high, us);
    low = std::min(low, us);
  }
  const double span = std::max(high - low, high * 0.01);
  const auto x = [&](double seconds) { return kLeft + seconds / last * (kWidth - kLeft - 10); };
  const auto y = [&](double us) { return 10 + (high - us) / span * (kHeight - kBottom - 20); };
  std::string points;
  for (std::size_t i = 0; i < explanation.curve.size(); ++i) {
    const auto& [seconds, us] = explanation.curve[i];
    if (i > 0)
      points += fmt::format("{:.1f},{:.1f} ", x(seconds), y(explanation.curve[i - 1].second));
    points += fmt::format("{:.1f},{:.1f} ", x(seconds), y(us));
  }
  points += fmt::format("{:.1f},{:.1f}", x(last), y(explanation.curve.back().second));
  return fmt::format(
      "<svg viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" font-size=\"12\" role=\"img\" "
      "aria-label=\"best pass so far during the search\">\n"
      "<polyline fill=\"none\" stroke=\"#3b6fb6\" stroke-width=\"2\" points=\"{2}\"/>\n"
      "<text x=\"{3}\" y=\"{4}\" text-anchor=\"end\" fill=\"currentColor\">{5}</text>\n"
      "<text x=\"{3}\" y=\"{6}\" text-anchor=\"end\" fill=\"currentColor\">{7}</text>\n"
      "<text x=\"{8}\" y=\"{9}\" text-anchor=\"end\" fill=\"currentColor\">{10:.1f} s</text>"
      "</svg>\n",
      kWidth, kHeight, points, kLeft - 6, y(high) + 4, human_duration(high * 1e-6), y(low) + 4,
      human_duration(low * 1e-6), kWidth - 10, kHeight - 6, last);
}

}  // namespace

std::string Explanation::to_html() const {
  std::string html = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width\"><title>stof explain</title>"
      "<style>{}</style></head><body>\n<h1>{}</h1>\n<p>{}<br>scheme <code>{}</code>, {}</p>\n",
      kStyle, escaped(model), escaped(device), escaped(scheme), escaped(source));
  if (measured_pass_us > 0)
    html += fmt::format("<p>A forward pass takes {} tuned, {} untuned.</p>\n",
                        human_duration(measured_pass_us * 1e-6),
                        human_duration(untuned_pass_us * 1e-6));
  for (const std::string& note : notes) html += fmt::format("<p>{}</p>\n", escaped(note));
  html += "<h2>Segments</h2>\n" + segment_table(*this);
  html += "<h2>Timeline of a forward pass</h2>\n" + timeline(*this);
  html += "<h2>A layer before and after tuning</h2>\n" + schemes(*this);
  html += "<h2>The search</h2>\n" + search_curve(*this);
  html += "<h2>Why neighbours are not fused</h2>\n<table><tr><th>before<th>after<th>why</tr>\n";
  for (const ExplainedBoundary& boundary : boundaries)
    html += fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td></tr>\n", escaped(boundary.before),
                        escaped(boundary.after), escaped(boundary.why));
  html += fmt::format(
      "</table>\n<h2>Tiles of the mask</h2>\n<p><code>{}</code></p>\n"
      "<img alt=\"tiles of the mask\" src=\"data:image/png;base64,{}\">\n</body></html>\n",
      escaped(mask_text), base64(mask_picture));
  return html;
}

}  // namespace stof::tune
