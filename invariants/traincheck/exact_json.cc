#include "invariants/traincheck/exact_json.h"

namespace traincheck {

namespace {

using nlohmann::json;

// A set adds some levels around a rule; ParseJsonUntrusted takes 32.
constexpr int kMaxDepth = 26;

// Looks at a document without building it.
class Inspector : public nlohmann::json_sax<json> {
 public:
  const std::string& error() const { return error_; }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  // Called only for integers that 64 bits hold.
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  // An integer that is too large comes here, too.
  bool number_float(number_float_t, const string_t& text) override {
    if (text.find_first_of(".eE") != string_t::npos) return true;
    return Refuse("an integer beyond 64 bits: " + text.substr(0, 64));
  }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override { return Enter(); }
  bool key(string_t&) override { return true; }
  bool end_object() override { return Leave(); }
  bool start_array(std::size_t) override { return Enter(); }
  bool end_array() override { return Leave(); }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    return Refuse("not valid JSON at byte " + std::to_string(position));
  }

 private:
  // PyPool::FromJson and json::dump walk a rule by recursion later, so a deeper
  // one is refused here.
  bool Enter() {
    if (++depth_ <= kMaxDepth) return true;
    return Refuse("nested deeper than " + std::to_string(kMaxDepth));
  }
  bool Leave() {
    --depth_;
    return true;
  }
  // False ends the parse; the first reason is kept.
  bool Refuse(std::string error) {
    if (error_.empty()) error_ = std::move(error);
    return false;
  }

  int depth_ = 0;
  std::string error_;
};

}  // namespace

absl::StatusOr<json> ParseExactJsonUntrusted(const std::string& text) {
  // Read twice: a document that has been built does not show any more that an
  // integer was rounded.
  Inspector inspector;
  if (!json::sax_parse(text, &inspector)) {
    return absl::InvalidArgumentError(inspector.error());
  }
  return json::parse(text, nullptr, /*allow_exceptions=*/false);
}

}  // namespace traincheck
