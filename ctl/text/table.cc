#include "ctl/text/table.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "base/printable_text.h"

namespace traincheck::ctl {
namespace {

// Characters, as a terminal counts them: bytes that continue one in UTF-8 do
// not.
size_t Width(const std::string& text) {
  return std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  });
}

constexpr char kGap[] = "  ";
// A last column that would be narrower stands below its row.
constexpr size_t kLeastRoom = 30;
constexpr size_t kIndent = 4;

// The first `width` characters.
size_t BytesOf(const std::string& text, size_t width) {
  size_t at = 0;
  for (size_t seen = 0; at < text.size(); ++at) {
    const bool begins = (static_cast<unsigned char>(text[at]) & 0xc0) != 0x80;
    if (begins && seen++ == width) break;
  }
  return at;
}

// Lines of at most `width` characters, ended at spaces where there are any; one
// line at least.
std::vector<std::string> Fold(std::string text, size_t width) {
  std::vector<std::string> lines;
  while (Width(text) > width) {
    // A word that is longer than the line is cut; a space right behind the line
    // may end it.
    const size_t fits = BytesOf(text, width);
    const size_t space = text.rfind(' ', fits);
    const bool at_space = space != std::string::npos && space > 0;
    lines.push_back(text.substr(0, at_space ? space : fits));
    text.erase(0, at_space ? space + 1 : fits);
  }
  lines.push_back(std::move(text));
  return lines;
}

void AppendCell(const std::string& cell, size_t width, Align align,
                std::string* line) {
  const std::string padding(width - Width(cell), ' ');
  if (align == Align::kRight) *line += padding;
  *line += cell;
  if (align == Align::kLeft) *line += padding;
}

}  // namespace

std::string OneLine(std::string text) {
  for (char& c : text) {
    if (c == '\n' || c == '\r' || c == '\t') c = ' ';
  }
  return EscapeUnprintable(text);
}

Table::Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

void Table::AddRow(std::vector<std::string> cells) {
  assert(cells.size() == columns_.size());
  // Escaped before widths are counted, because escapes make a cell wider.
  for (std::string& cell : cells) cell = OneLine(std::move(cell));
  rows_.push_back(std::move(cells));
}

std::vector<size_t> Table::Widths() const {
  std::vector<size_t> widths;
  for (size_t i = 0; i < columns_.size(); ++i) {
    size_t width = Width(columns_[i].title);
    for (const auto& row : rows_) width = std::max(width, Width(row[i]));
    widths.push_back(width);
  }
  return widths;
}

std::string Table::Line(const std::vector<std::string>& cells,
                        const std::vector<size_t>& widths) const {
  std::string line;
  for (size_t i = 0; i < cells.size(); ++i) {
    if (i > 0) line += kGap;
    AppendCell(cells[i], widths[i], columns_[i].align, &line);
  }
  // Spaces at the end would wrap on a narrow terminal.
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

// Widths are known only when all rows are there, so everything is put together
// here.
std::string Table::Render(size_t terminal_columns) const {
  std::vector<std::string> titles;
  for (const Column& column : columns_) titles.push_back(column.title);
  const std::vector<size_t> widths = Widths();
  const size_t gaps = sizeof(kGap) - 1;
  size_t before = 0;  // the last column
  for (size_t i = 0; i + 1 < widths.size(); ++i) before += widths[i] + gaps;
  // Only the last column is ever folded: it is prose, while others are ids and
  // numbers, which people copy or compare.
  const bool fits =
      terminal_columns == 0 || before + widths.back() <= terminal_columns;
  std::string out = Line(titles, widths);
  if (fits) {
    for (const auto& row : rows_) out += Line(row, widths);
    return out;
  }
  const bool beside = before + kLeastRoom <= terminal_columns;
  const size_t indent = beside ? before : kIndent;
  const size_t room =
      std::max(kLeastRoom, terminal_columns) - (beside ? before : kIndent);
  for (std::vector<std::string> row : rows_) {
    const std::vector<std::string> lines = Fold(row.back(), room);
    row.back() = beside ? lines[0] : "";
    out += Line(row, widths);
    for (size_t i = beside ? 1 : 0; i < lines.size(); ++i) {
      out += std::string(indent, ' ') + lines[i] + "\n";
    }
  }
  return out;
}

}  // namespace traincheck::ctl
