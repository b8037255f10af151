// What a connection to the metrics port says, in pieces of any size: it is
// answered by the page's handler, refused, or waited for, and what goes back is
// HTTP that a client can read.
//
// Input: the size of a piece u8, then what is said.
#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/write.hpp>
#include <optional>
#include <sstream>
#include <string>

#include "server/metrics/http_exchange.h"
#include "tests/fuzz/fuzz_input.h"

namespace traincheck::server {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::system::error_code;

constexpr char kPage[] = "page\n";

// The connection: gives what was said piece by piece, then its end.
class Said {
 public:
  Said(std::string text, size_t piece)
      : text_(std::move(text)), piece_(std::max<size_t>(piece, 1)) {}

  template <typename Buffers>
  size_t read_some(const Buffers& buffers, error_code& error) {
    const size_t size = asio::buffer_copy(
        buffers,
        asio::buffer(text_.data() + at_, std::min(piece_, text_.size() - at_)));
    at_ += size;
    if (size == 0) {
      error = asio::error::eof;
    } else {
      error = {};
    }
    return size;
  }
  template <typename Buffers>
  size_t read_some(const Buffers& buffers) {
    error_code error;
    return read_some(buffers, error);
  }

 private:
  const std::string text_;
  const size_t piece_;
  size_t at_ = 0;
};

HttpAnswer Page(const std::string& path) {
  for (const char c : path) {
    Require(c != '?' && static_cast<unsigned char>(c) > ' ' && c != 0x7f);
  }
  if (path == "/metrics") return {.body = kPage};
  return {.status = 404, .body = "not here\n"};
}

// Reads an answer as a client does; `head` as one that asked for a HEAD.
void CheckReply(HttpReply reply, bool head) {
  const http::status status = reply.response.result();
  Require(status == http::status::ok || status == http::status::not_found ||
          status == http::status::bad_request ||
          status == http::status::method_not_allowed);
  Require(!head || reply.response.body().empty());
  std::ostringstream out;
  out << reply.response;
  http::response_parser<http::string_body> client;
  client.skip(head);
  client.eager(true);
  error_code error;
  const std::string text = out.str();
  const size_t used = client.put(asio::buffer(text), error);
  Require(!error && used == text.size());
  // One of HTTP/1.0 may end with the connection.
  if (!client.is_done()) client.put_eof(error);
  Require(!error && client.is_done());
  if (status == http::status::ok && !head)
    Require(client.get().body() == kPage);
}

void Answer(Said said) {
  beast::flat_buffer buffer(kMaxHttpBuffer);
  while (true) {
    HttpParser parser;
    LimitRequest(&parser);
    error_code error;
    http::read(said, buffer, parser, error);
    if (error == http::error::end_of_stream) return;
    if (error) {
      const HttpReply refusal = RefusalOfRequest();
      Require(!refusal.keep);
      return CheckReply(refusal, false);
    }
    const bool head = parser.get().method() == http::verb::head;
    HttpReply reply = ReplyTo(parser, Page);
    const bool keep = reply.keep;
    CheckReply(std::move(reply), head);
    if (!keep) return;
  }
}

}  // namespace
}  // namespace traincheck::server

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  traincheck::FuzzInput input(data, size);
  const size_t piece = input.Byte();
  traincheck::server::Answer({input.Rest(), piece});
  return 0;
}
