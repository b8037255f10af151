// A table for people: aligned columns, two spaces between them, no colours.
//
//   Table table({{"ID"}, {"RECORDS", Align::kRight}});
//   table.AddRow({"cnn-1", "1200"});
//   std::cout << table.Render();
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_CTL_TEXT_TABLE_H_
#define TRAINCHECK_CTL_TEXT_TABLE_H_

#include <cstddef>
#include <string>
#include <vector>

namespace traincheck::ctl {

enum class Align { kLeft, kRight };

struct Column {
  std::string title;
  Align align = Align::kLeft;
};

class Table {
 public:
  explicit Table(std::vector<Column> columns);

  // REQUIRES: one cell a column. Each is put through OneLine, so that foreign
  // text cannot break the lines or steer the terminal.
  void AddRow(std::vector<std::string> cells);

  bool empty() const { return rows_.empty(); }

  // Title line and rows, each with a newline and no trailing spaces.
  // Widths count UTF-8 characters. Where a row is wider than the terminal (0:
  // there is none), the last column is folded, beside the others or, where
  // they leave no room, below them.
  std::string Render(size_t terminal_columns = 0) const;

 private:
  std::vector<size_t> Widths() const;
  std::string Line(const std::vector<std::string>& cells,
                   const std::vector<size_t>& widths) const;

  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// `text` in one line: ends of lines and tabs become spaces, and what else is
// not printable (base/printable_text.h) is escaped.
std::string OneLine(std::string text);

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_TEXT_TABLE_H_
