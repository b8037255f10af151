// A table for people: aligned columns, two spaces between them, no colours.
//
//   Table table({{"ID"}, {"RECORDS", Align::kRight}});
//   table.AddRow({"cnn-1", "1200"});
//   std::cout << table.Render();
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_CTL_TEXT_TABLE_H_
#define TRAINCHECK_CTL_TEXT_TABLE_H_

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

  // REQUIRES: one cell a column. Control characters in a cell become spaces,
  // so that foreign text cannot break the lines or steer the terminal.
  void AddRow(std::vector<std::string> cells);

  bool empty() const { return rows_.empty(); }

  // Title line and rows, each with a newline and no trailing spaces.
  // Widths count UTF-8 characters.
  std::string Render() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// `text` without control characters: each becomes a space.
std::string OneLine(std::string text);

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_TEXT_TABLE_H_
