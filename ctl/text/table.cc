#include "ctl/text/table.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace traincheck::ctl {
namespace {

size_t Width(const std::string& text) {
  return std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  });
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
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  }
  return text;
}

Table::Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

void Table::AddRow(std::vector<std::string> cells) {
  assert(cells.size() == columns_.size());
  for (std::string& cell : cells) cell = OneLine(std::move(cell));
  rows_.push_back(std::move(cells));
}

std::string Table::Render() const {
  std::vector<std::string> titles;
  for (const Column& column : columns_) titles.push_back(column.title);
  std::vector<size_t> widths;
  for (size_t i = 0; i < columns_.size(); ++i) {
    size_t width = Width(titles[i]);
    for (const auto& row : rows_) width = std::max(width, Width(row[i]));
    widths.push_back(width);
  }
  std::string out;
  auto append = [&](const std::vector<std::string>& cells) {
    std::string line;
    for (size_t i = 0; i < cells.size(); ++i) {
      if (i > 0) line += "  ";
      AppendCell(cells[i], widths[i], columns_[i].align, &line);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  };
  append(titles);
  for (const auto& row : rows_) append(row);
  return out;
}

}  // namespace traincheck::ctl
